//! Fourier transforms and convolutions.

use elinvar_sim::ConstantValue;

use crate::launch::{Field, Launch, Name};

/// Powers of 3 modulo 17, and their inverses: the permutations of Rader's transform of length 17.
const POWERS: [f64; 16] = [1.0, 3.0, 9.0, 10.0, 13.0, 5.0, 15.0, 11.0, 16.0, 14.0, 8.0, 7.0, 4.0, 12.0, 2.0, 6.0];
const INVERSES: [f64; 16] = [1.0, 6.0, 2.0, 12.0, 4.0, 7.0, 8.0, 14.0, 16.0, 11.0, 15.0, 5.0, 13.0, 10.0, 9.0, 3.0];

/// Two transforms of the kernel's whole memory, in steps of radix 4 and 2; of 68 elements by Rader's algorithm; of 100 by Bluestein's; of 64 × 64 in two steps.
pub(crate) fn fft(kernel: Name<'_>) -> Option<Launch> {
    if kernel.begins("generate_bluestein_twiddles") {
        return Some(Launch::threads([584, 1, 1], [128, 1, 1]).elements(584));
    }
    let memory = kernel.number("mem")?;
    let steps = |launch: Launch, length: u32| {
        let launch = launch.set("radix_4_steps_", ConstantValue::Int((length.ilog2() / 2).into()));
        launch.set("radix_2_steps_", ConstantValue::Int((length.ilog2() % 2).into()))
    };
    let launch = match () {
        () if kernel.begins("rader") => {
            let launch = Launch::threads([2, 1, 17], [1, 1, 17]).number("n", 68).number("rader_n", 17).holds("raders_b_q", 16);
            let launch = launch.list("raders_g_q", &POWERS).list("raders_g_minus_q", &INVERSES).elements(4 * 68);
            let launch = launch.set("rader_m_", ConstantValue::Int(4)).set("rader_4_steps_", ConstantValue::Int(2));
            steps(launch, 4).off(&["is_power_of_2_"])
        }
        () if kernel.begins("four_step") => {
            let together = memory / 64;
            let launch = Launch::threads([64 / together, together, 16], [1, together, 16]).elements(2 * 4096);
            steps(launch.number("n1", 64).number("n2", 64), 64)
        }
        () => {
            let launch = Launch::threads([2, 1, memory / 4], [1, 1, memory / 4]).number("n", memory).number("length", 100);
            steps(launch.elements(4 * memory as usize), memory)
        }
    };
    let launch = launch.number("batch_size", if kernel.begins("four_step") { 64 } else { 2 });
    Some(launch.set("elems_per_thread_", ConstantValue::Int(4)).off(&["inv_", "use_bluestein_twiddle_table_"]))
}

/// A convolution of windows of three along each axis, with a border of one, so that there are as many places in the output as in the input.
struct Convolution<'a> {
    channels: u32,
    outputs: u32,
    space: &'a [u32],
}

impl Convolution<'_> {
    fn places(&self) -> u32 {
        self.space.iter().product()
    }

    fn window(&self) -> u32 {
        3u32.pow(self.space.len() as u32)
    }

    /// Distances along batch, space and channels.
    fn strides(space: &[u32], channels: u32) -> Vec<i64> {
        let mut strides = vec![1, i64::from(channels)];
        strides.extend(space.iter().rev().scan(i64::from(channels), |stride, length| {
            *stride *= i64::from(*length);
            Some(*stride)
        }));
        strides.reverse();
        strides
    }

    /// `MLXConvParams`.
    fn launch(&self, launch: Launch) -> Launch {
        let Self { channels, outputs, space } = *self;
        let windows = vec![3; space.len()];
        let mut fields = [1, channels, outputs].map(|count| Field::Int(count as i32)).to_vec();
        for lengths in [space, &windows, space] {
            fields.extend(lengths.iter().map(|length| Field::Int(*length as i32)));
        }
        // Strides, border and both dilations.
        fields.extend(std::iter::repeat_n(Field::Int(1), 4 * space.len()));
        for strides in [Self::strides(space, channels), Self::strides(&windows, channels), Self::strides(space, outputs)] {
            fields.extend(strides.into_iter().map(Field::Long));
        }
        fields.extend([Field::Int(1), Field::Bool(false)]);
        let launch = launch.structure("params", &fields).holds("A", (self.places() * channels) as usize);
        launch.holds("B", (outputs * self.window() * channels) as usize).holds("C", (self.places() * outputs) as usize)
    }
}

/// The windows of an input, as rows of a matrix.
pub(crate) fn conv(kernel: Name<'_>) -> Option<Launch> {
    if !kernel.begins("naive_unfold") {
        return None;
    }
    let dimensions = kernel.0.rsplit('_').next()?.parse().ok()?;
    let convolution = Convolution { channels: 5, outputs: 4, space: &[4, 3, 6][..dimensions] };
    let (places, window) = (convolution.places(), convolution.window());
    let launch = Launch::threads([5, window, places], [4, 4, 4]).number("row_offset", 0);
    Some(convolution.launch(launch).holds("in", (places * 5) as usize).holds("out", (places * window * 5) as usize))
}

/// Convolutions as products of matrices: a block and a rest of output channels, which are at most 16 or a multiple of it, as MLX asks.
pub(crate) fn steel_conv(kernel: Name<'_>) -> Option<Launch> {
    let number = |part| kernel.number(part);
    let (block, width, step) = (number("bm")?, number("bn")?, number("bk")?);
    let channels = number("channel").unwrap_or(32);
    let space: &[u32] = if kernel.has("conv_3d") { &[4, 4, 5] } else { &[6, 7] };
    let convolution = Convolution { channels, outputs: if width == 8 { 11 } else { width + 16 }, space };
    let (places, window) = (convolution.places(), convolution.window());
    let tiles = [convolution.outputs.div_ceil(width), places.div_ceil(block)];
    let iterations = match channels {
        _ if kernel.has("general") => channels.div_ceil(step),
        1 | 2 => (window * channels).div_ceil(step),
        3 | 4 => (window * 4).div_ceil(step),
        _ => window * channels.div_ceil(step),
    };
    let mut fields = [places, convolution.outputs, window * channels, iterations].map(|size| Field::Int(size as i32)).to_vec();
    // How far the input moves from one place of the window to the next, along each axis from the last on, and from the last place to the next channels.
    let strides = Convolution::strides(space, channels);
    let (mut back, mut jumps) = (0, Vec::new());
    for stride in strides[1..=space.len()].iter().rev() {
        jumps.push(Field::Int((stride - back) as i32));
        back += 2 * stride;
    }
    fields.extend(jumps);
    fields.extend([Field::Int((i64::from(step) - back) as i32), Field::Int(tiles[0] as i32), Field::Int(tiles[1] as i32), Field::Int(0)]);
    let launch = Launch::groups([tiles[0], tiles[1], 1], [32, number("wn")?, number("wm")?]).structure("gemm_params", &fields);
    let launch = launch.structure("jump_params", &[1, 1, 1, 1, 6, 7, 42, 42].map(Field::Int));
    let base = [Field::Int(0), Field::Int(3)];
    Some(convolution.launch(launch.structure("base_h", &base).structure("base_w", &base)))
}
