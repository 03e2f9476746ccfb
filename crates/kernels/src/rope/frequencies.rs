use elinvar_core::{Error, Result};

/// How a model stretches its rotation frequencies to contexts longer than it was first trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Every frequency divided by the factor.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Llama 3: long wavelengths divided by the factor, short ones kept, a ramp between.
    Llama3 {
        /// The divisor.
        factor: f32,
        /// Wavelengths above `original_max_position / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_max_position / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// The context of the first training.
        original_max_position: u32,
    },
    /// YaRN: pairs that turn often within the first context are kept, those that turn rarely are divided by the factor, a ramp between.
    /// Its factor of the attention is not part of the frequencies.
    Yarn {
        /// The divisor.
        factor: f32,
        /// Pairs that turn more often than this within `original_max_position` are kept.
        beta_fast: f32,
        /// Pairs that turn less often than this are divided.
        beta_slow: f32,
        /// The context of the first training.
        original_max_position: u32,
        /// The ramp begins and ends at whole pairs.
        truncate: bool,
    },
}

/// The rotation frequency, in radians for each position, of every pair of a head of which `rotary_dim` elements rotate:
/// `theta^(-2i / rotary_dim)`, scaled.
///
/// The roundings are those of Hugging Face transformers, whose checkpoints were trained with them: the exponent, the power and the
/// reciprocal are each rounded to f32, and so is every step of the scaling.
///
/// # Errors
/// A `rotary_dim` that is odd or zero, a `theta` or a factor that is not positive, Llama 3 factors that do not ascend, YaRN's that do not descend, or YaRN
/// with a `theta` of at most 1.
pub fn frequencies(scaling: &RopeScaling, theta: f64, rotary_dim: usize) -> Result<Vec<f32>> {
    if rotary_dim == 0 || !rotary_dim.is_multiple_of(2) {
        return Err(Error::invalid_argument(format!("rotary dimension {rotary_dim}: a positive even number expected")));
    }
    if !(theta > 0.0 && theta.is_finite()) {
        return Err(Error::invalid_argument(format!("rotary base theta {theta}: a positive number expected")));
    }
    scaling.check(theta)?;
    let power = |i: usize| {
        let exponent = (2 * i) as f32 / rotary_dim as f32;
        theta.powf(exponent.into()) as f32
    };
    Ok((0..rotary_dim / 2).map(|i| scaling.apply(i, power(i), theta, rotary_dim)).collect())
}

impl RopeScaling {
    fn check(&self, theta: f64) -> Result<()> {
        let positive = |name: &str, value: f32| {
            let good = value > 0.0 && value.is_finite();
            if good { Ok(()) } else { Err(Error::invalid_argument(format!("RoPE scaling: {name} is {value}, a positive number expected"))) }
        };
        match *self {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("factor", factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
                positive("factor", factor)?;
                positive("low_freq_factor", low_freq_factor)?;
                positive("original_max_position", original_max_position as f32)?;
                if high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                Err(Error::invalid_argument(format!(
                    "RoPE scaling: high_freq_factor {high_freq_factor} must be greater than low_freq_factor {low_freq_factor}"
                )))
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_max_position, .. } => {
                positive("factor", factor)?;
                positive("beta_slow", beta_slow)?;
                positive("original_max_position", original_max_position as f32)?;
                if theta <= 1.0 {
                    return Err(Error::invalid_argument(format!("RoPE scaling: theta is {theta}, YaRN needs more than 1")));
                }
                if beta_fast > beta_slow && beta_fast.is_finite() {
                    return Ok(());
                }
                Err(Error::invalid_argument(format!("RoPE scaling: beta_fast {beta_fast} must be greater than beta_slow {beta_slow}")))
            }
        }
    }

    /// The frequency of a pair, `1 / power` before it is scaled.
    fn apply(&self, pair: usize, power: f32, theta: f64, rotary_dim: usize) -> f32 {
        let frequency = 1.0 / power;
        match *self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => {
                let context = f64::from(original_max_position);
                let longest = (context / f64::from(low_freq_factor)) as f32;
                let shortest = (context / f64::from(high_freq_factor)) as f32;
                // A number over a tensor is its reciprocal times the number there.
                let wavelength = (1.0 / frequency) * std::f64::consts::TAU as f32;
                if wavelength > longest {
                    return frequency / factor;
                }
                if wavelength < shortest {
                    return frequency;
                }
                let width = (f64::from(high_freq_factor) - f64::from(low_freq_factor)) as f32;
                let smooth = ((1.0 / wavelength) * context as f32 - low_freq_factor) / width;
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_max_position, truncate } => {
                // The pair, as a fraction, that turns this often within the first context.
                let pair_of = |turns: f32| {
                    let wavelength = f64::from(original_max_position) / (f64::from(turns) * std::f64::consts::TAU);
                    rotary_dim as f64 * wavelength.ln() / (2.0 * theta.ln())
                };
                let (low, high) = (pair_of(beta_fast), pair_of(beta_slow));
                let (low, high) = if truncate { (low.floor(), high.ceil()) } else { (low, high) };
                let (low, high) = (low.max(0.0), high.min(rotary_dim as f64 - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                let kept = 1.0 - ((pair as f32 - low as f32) / width as f32).clamp(0.0, 1.0);
                1.0 / (factor * power) * (1.0 - kept) + frequency * kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(scaling: RopeScaling, theta: f64, dim: usize) -> Vec<u32> {
        frequencies(&scaling, theta, dim).unwrap().iter().map(|f| f.to_bits()).collect()
    }

    const LLAMA3: RopeScaling = RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192 };

    /// Computed by transformers 5.23 with torch 2.15.
    #[test]
    fn frequencies_have_the_bits_of_transformers() {
        let none = [
            0x3f80_0000,
            0x3f3f_f911,
            0x3f0f_f59a,
            0x3ed7_e89b,
            0x3ea1_e89b,
            0x3e72_d423,
            0x3e36_1887,
            0x3e08_8d77,
            0x3dcc_cccd,
            0x3d99_940d,
            0x3d66_55c2,
            0x3d2c_ba15,
            0x3d01_86e3,
            0x3cc2_434f,
            0x3c91_ad39,
            0x3c5a_7bf2,
            0x3c23_d70a,
            0x3bf5_b9b0,
            0x3bb8_449c,
            0x3b8a_2e77,
            0x3b4f_3e38,
            0x3b1b_690d,
            0x3ae9_1528,
            0x3aae_c98e,
            0x3a83_126f,
            0x3a44_948c,
            0x3a13_6a16,
            0x39dd_1725,
            0x39a5_cb60,
            0x3978_a815,
            0x393a_7753,
            0x390b_d472,
        ];
        let linear = [
            0x3eaa_aaab,
            0x3e7f_f6c1,
            0x3e3f_f223,
            0x3e0f_f067,
            0x3dd7_e0cf,
            0x3da1_e2c2,
            0x3d72_cb5f,
            0x3d36_11f4,
            0x3d08_8889,
            0x3ccc_c567,
            0x3c99_8e81,
            0x3c66_4d71,
            0x3c2c_b3d9,
            0x3c01_8235,
            0x3bc2_3c4c,
            0x3b91_a7f7,
            0x3b5a_740d,
            0x3b23_d120,
            0x3af5_b0d0,
            0x3ab8_3df4,
            0x3a8a_297b,
            0x3a4f_36bc,
            0x3a1b_6370,
            0x39e9_0cbd,
            0x39ae_c33f,
            0x3983_0db3,
            0x3944_8d73,
            0x3913_64c3,
            0x38dd_0f2b,
            0x38a5_c563,
            0x3878_9f19,
            0x383a_7098,
        ];
        let llama3 = [
            0x3f80_0000,
            0x3f29_e1c6,
            0x3ee1_77bc,
            0x3e95_9ee3,
            0x3e46_93b0,
            0x3e03_c6a0,
            0x3dae_e4ad,
            0x3d68_1e67,
            0x3d1a_08c8,
            0x3ccc_6f49,
            0x3c87_a9c3,
            0x3c34_0d6d,
            0x3bee_f74f,
            0x3b9e_9402,
            0x3b52_7720,
            0x3aa9_279b,
            0x39e1_3620,
            0x38cb_98f7,
            0x37a3_418d,
            0x3758_ac81,
            0x370f_c8f8,
            0x36be_d4f4,
            0x367d_45c3,
            0x3628_126b,
            0x35df_10c4,
            0x3594_06cb,
            0x3544_7610,
            0x3502_5f34,
            0x34ad_07a7,
            0x3465_a54d,
            0x3418_64a7,
            0x33ca_41b0,
        ];
        assert_eq!(bits(RopeScaling::None, 10_000.0, 64), none);
        assert_eq!(bits(RopeScaling::Linear { factor: 3.0 }, 10_000.0, 64), linear);
        assert_eq!(bits(LLAMA3, 500_000.0, 64), llama3);
    }

    #[test]
    fn frequencies_of_yarn_have_the_bits_of_transformers() {
        let yarn = |beta_fast, truncate| RopeScaling::Yarn { factor: 4.0, beta_fast, beta_slow: 1.0, original_max_position: 32768, truncate };
        let kept = [0x3f80_0000, 0x3ed7_e89b, 0x3e36_1887, 0x3d99_940d, 0x3d01_86e3, 0x3c5a_7bf2];
        let divided = [0x383a_7753, 0x379d_43a4, 0x3704_a2b2, 0x365f_ba4f, 0x35bc_b0c1, 0x351f_23e4];
        let truncated = [0x3b9c_a0b8, 0x3ad9_9312, 0x3a10_2de0, 0x3930_df50];
        let exact = [0x3bb8_449c, 0x3b10_9559, 0x3a36_a6c5, 0x394c_cff6];
        assert_eq!(bits(yarn(32.0, true), 1e6, 32), [&kept[..], &truncated, &divided].concat());
        assert_eq!(bits(yarn(16.0, false), 1e6, 32), [&kept[..], &exact, &divided].concat());
    }

    #[test]
    fn nonsense_is_rejected() {
        assert!(frequencies(&RopeScaling::None, 1e4, 7).is_err());
        assert!(frequencies(&RopeScaling::None, -1.0, 8).is_err());
        assert!(frequencies(&RopeScaling::Linear { factor: 0.0 }, 1e4, 8).unwrap_err().to_string().contains("factor"));
        let RopeScaling::Llama3 { factor, low_freq_factor, original_max_position, .. } = LLAMA3 else { return };
        let flat = RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor: low_freq_factor, original_max_position };
        assert!(frequencies(&flat, 1e4, 8).unwrap_err().to_string().contains("high_freq_factor"));
        let yarn = |beta_fast| RopeScaling::Yarn { factor: 4.0, beta_fast, beta_slow: 1.0, original_max_position: 512, truncate: true };
        assert!(frequencies(&yarn(1.0), 1e4, 8).unwrap_err().to_string().contains("beta_fast"));
        assert!(frequencies(&yarn(32.0), 1.0, 8).unwrap_err().to_string().contains("YaRN needs more than 1"));
    }
}
