//! Random numbers are packed as the format's layout says, bit by bit, and must decode to what its formula gives.

use elinvar_core::SplitMix64;
use half::{bf16, f16};

use super::Format;

/// Numbers of a block before they are packed.
struct Parts {
    d: f16,
    m: f16,
    /// A scale and a minimum for each group, as stored.
    scales: Vec<(u32, u32)>,
    /// The weights, as stored.
    q: Vec<u32>,
}

/// Bits of the scales, the minima and the numbers, and the weights of a group.
fn widths(format: Format) -> (u32, u32, u32, usize) {
    match format {
        Format::Q4_0 | Format::Q4_1 | Format::Iq4Nl | Format::Mxfp4 | Format::Affine4Bf16 => (0, 0, 4, 32),
        Format::Q5_0 | Format::Q5_1 => (0, 0, 5, 32),
        Format::Q8_0 | Format::Affine8F16 | Format::Affine8Bf16 => (0, 0, 8, 32),
        Format::Q2K => (4, 4, 2, 16),
        Format::Q3K => (6, 0, 3, 16),
        Format::Q4K => (6, 6, 4, 32),
        Format::Q5K => (6, 6, 5, 32),
        Format::Q6K => (8, 0, 6, 16),
        Format::Iq4Xs => (6, 0, 4, 32),
    }
}

fn put(block: &mut [u8], byte: usize, bit: usize, value: u32) {
    block[byte] |= u8::try_from(value << bit).unwrap();
}

/// The `plane` of all numbers: `bits` of them at a time, `run` neighbours in a row of bytes before the next bits of the same bytes.
fn plane(block: &mut [u8], q: &[u32], shift: u32, bits: usize, run: usize) {
    let per_byte = 8 / bits;
    for (i, q) in q.iter().enumerate() {
        let (part, within) = (i / (run * per_byte), i % (run * per_byte));
        put(block, part * run + within % run, within / run * bits, q >> shift & ((1 << bits) - 1));
    }
}

fn pack(format: Format, p: &Parts) -> Vec<u8> {
    let mut block = vec![0; format.bytes()];
    let put_f16 = |block: &mut [u8], at: usize, value: f16| block[at..at + 2].copy_from_slice(&value.to_le_bytes());
    match format {
        Format::Q4_0 | Format::Iq4Nl => {
            put_f16(&mut block, 0, p.d);
            plane(&mut block[2..], &p.q, 0, 4, 16);
        }
        Format::Q4_1 | Format::Affine4Bf16 => {
            put_f16(&mut block, 0, p.d);
            put_f16(&mut block, 2, p.m);
            plane(&mut block[4..], &p.q, 0, 4, 16);
        }
        Format::Q5_0 | Format::Q5_1 => {
            let at = if format == Format::Q5_1 { 4 } else { 2 };
            put_f16(&mut block, 0, p.d);
            if format == Format::Q5_1 {
                put_f16(&mut block, 2, p.m);
            }
            let high = p.q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | q >> 4 << i);
            block[at..at + 4].copy_from_slice(&high.to_le_bytes());
            let low: Vec<_> = p.q.iter().map(|q| q & 15).collect();
            plane(&mut block[at + 4..], &low, 0, 4, 16);
        }
        Format::Q8_0 => {
            put_f16(&mut block, 0, p.d);
            p.q.iter().enumerate().for_each(|(i, &q)| block[2 + i] = q as u8);
        }
        Format::Affine8F16 | Format::Affine8Bf16 => {
            put_f16(&mut block, 0, p.d);
            put_f16(&mut block, 2, p.m);
            p.q.iter().enumerate().for_each(|(i, &q)| block[4 + i] = q as u8);
        }
        Format::Q2K => {
            p.scales.iter().enumerate().for_each(|(i, (s, m))| put(&mut block, i, 0, s | m << 4));
            plane(&mut block[16..80], &p.q, 0, 2, 32);
            put_f16(&mut block, 80, p.d);
            put_f16(&mut block, 82, p.m);
        }
        Format::Q3K => {
            plane(&mut block[..32], &p.q, 2, 1, 32);
            plane(&mut block[32..96], &p.q, 0, 2, 32);
            for (i, (s, _)) in p.scales.iter().enumerate() {
                put(&mut block, 96 + i % 8, i / 8 * 4, s & 15);
                put(&mut block, 104 + i % 4, i / 4 * 2, s >> 4);
            }
            put_f16(&mut block, 108, p.d);
        }
        Format::Q4K | Format::Q5K => {
            put_f16(&mut block, 0, p.d);
            put_f16(&mut block, 2, p.m);
            for (i, &(s, m)) in p.scales.iter().enumerate() {
                if i < 4 {
                    put(&mut block, 4 + i, 0, s);
                    put(&mut block, 8 + i, 0, m);
                } else {
                    put(&mut block, 8 + i, 0, (s & 15) | (m & 15) << 4);
                    put(&mut block, i, 6, s >> 4);
                    put(&mut block, 4 + i, 6, m >> 4);
                }
            }
            let at = if format == Format::Q5K { 48 } else { 16 };
            if format == Format::Q5K {
                plane(&mut block[16..48], &p.q, 4, 1, 32);
            }
            plane(&mut block[at..], &p.q, 0, 4, 32);
        }
        Format::Q6K => {
            plane(&mut block[..128], &p.q, 0, 4, 64);
            plane(&mut block[128..192], &p.q, 4, 2, 32);
            p.scales.iter().enumerate().for_each(|(i, (s, _))| block[192 + i] = *s as u8);
            put_f16(&mut block, 208, p.d);
        }
        Format::Iq4Xs => {
            put_f16(&mut block, 0, p.d);
            let high = p.scales.iter().enumerate().fold(0u32, |bits, (i, (s, _))| bits | s >> 4 << (2 * i));
            block[2..4].copy_from_slice(&(high as u16).to_le_bytes());
            p.scales.iter().enumerate().for_each(|(i, (s, _))| put(&mut block, 4 + i / 2, i % 2 * 4, s & 15));
            p.q.chunks(32).enumerate().for_each(|(i, q)| plane(&mut block[8 + i * 16..], q, 0, 4, 16));
        }
        Format::Mxfp4 => {
            block[0] = p.d.to_bits() as u8;
            plane(&mut block[1..], &p.q, 0, 4, 16);
        }
    }
    block
}

fn formula(format: Format, p: &Parts, i: usize) -> f32 {
    const IQ4: [f32; 16] = [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
    const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let is_bf16 = matches!(format, Format::Affine4Bf16 | Format::Affine8Bf16);
    // The same 16 bits.
    let [d, m] = [p.d, p.m].map(|number| if is_bf16 { bf16::from_bits(number.to_bits()).to_f32() } else { number.to_f32() });
    let q = p.q[i] as f32;
    let (s, min) = p.scales.get(i / widths(format).3).map_or((0.0, 0.0), |&(s, m)| (s as f32, m as f32));
    match format {
        Format::Q4_0 => d * (q - 8.0),
        Format::Q4_1 | Format::Q5_1 | Format::Affine4Bf16 => d * q + m,
        // As `d q + m`, but for what f32 rounds.
        Format::Affine8F16 | Format::Affine8Bf16 => d * (q - 128.0) + d.mul_add(128.0, m),
        Format::Q5_0 => d * (q - 16.0),
        Format::Q8_0 => d * f32::from(p.q[i] as u8 as i8),
        Format::Q2K | Format::Q4K | Format::Q5K => d * s * q - m * min,
        Format::Q3K => d * (s - 32.0) * (q - 4.0),
        Format::Q6K => d * f32::from(s as u8 as i8) * (q - 32.0),
        Format::Iq4Nl => d * IQ4[p.q[i] as usize],
        Format::Iq4Xs => d * (s - 32.0) * IQ4[p.q[i] as usize],
        Format::Mxfp4 => {
            let number = E2M1[p.q[i] as usize % 8] * if p.q[i] > 7 { -1.0 } else { 1.0 };
            // The table has one zero.
            (2f64.powi(i32::from(p.d.to_bits() as u8) - 127) * f64::from(number)) as f32 + 0.0
        }
    }
}

/// Ordinary scales, the smallest subnormal, the largest, zeros of both signs.
const SCALES: [u16; 8] = [0x2c31, 0xb0a7, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x0000, 0x8000];

#[test]
fn blocks_decode_to_their_formula() {
    let mut seed = 0;
    let mut random = |bits: u32| {
        seed += 1;
        (SplitMix64::nth(7, seed) >> 20) as u32 & ((1 << bits) - 1)
    };
    for &format in Format::ALL {
        let (scale_bits, min_bits, bits, group) = widths(format);
        let (mut blocks, mut expected) = (Vec::new(), Vec::new());
        for round in 0..SCALES.len() * 4 {
            let d = if format == Format::Mxfp4 { random(8) as u16 } else { SCALES[round % 8] };
            // As bf16 the largest of them are near the end of f32.
            let small = |bits: u16| if matches!(format, Format::Affine4Bf16 | Format::Affine8Bf16) { bits & 0xf7ff } else { bits };
            let parts = Parts {
                d: f16::from_bits(small(d)),
                m: f16::from_bits(small(SCALES[(round / 3 + 1) % 8])),
                scales: (0..if scale_bits == 0 { 0 } else { format.weights() / group }).map(|_| (random(scale_bits), random(min_bits))).collect(),
                q: (0..format.weights()).map(|_| random(bits)).collect(),
            };
            blocks.extend(pack(format, &parts));
            expected.extend((0..format.weights()).map(|i| formula(format, &parts, i)));
        }
        let mut values = vec![f32::NAN; expected.len()];
        format.decode(&blocks, &mut values).unwrap();
        let differs = values.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "{}: {:?}", format.name(), differs.map(|i| (values[i], expected[i])));
    }
}

#[test]
fn exponents_reach_both_ends() {
    for (exponent, one) in [(0u8, 2f64.powi(-127)), (1, 2f64.powi(-126)), (2, 2f64.powi(-125)), (127, 1.0), (254, 2f64.powi(127))] {
        let mut block = [0x22; 17];
        block[0] = exponent;
        let mut values = [0.0; 32];
        Format::Mxfp4.decode(&block, &mut values).unwrap();
        assert_eq!(values, [one as f32; 32]);
    }
}

#[test]
fn lengths_that_do_not_fit_are_rejected() {
    for &format in Format::ALL {
        let block = vec![0; format.bytes()];
        assert!(format.decode(&block, &mut vec![0.0; format.weights()]).is_ok());
        assert!(format.decode(&[], &mut []).is_ok());
        let message = format.decode(&block[1..], &mut vec![0.0; format.weights()]).unwrap_err().to_string();
        assert!(message.contains(format.name()) && !message.contains('\n'), "{message}");
        assert!(format.decode(&block, &mut vec![0.0; format.weights() - 1]).is_err());
    }
}
