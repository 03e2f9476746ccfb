//! The naive reference, in f64, over the weights that the format decodes to.

use elinvar_core::DType;
use half::f16;

use super::QuantizedLinear;
use crate::{
    conformance::case::{Bound, Case, HostTensor, made},
    matmul::oracle::product,
    quantized::Format,
};

/// Where a block has its f16 numbers.
const fn numbers(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::Iq4Nl | Format::Iq4Xs => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
        Format::Mxfp4 => &[],
    }
}

/// Random blocks of `n` rows of `k` elements, whose f16 numbers keep decoded elements below one.
pub(crate) fn random_blocks(format: Format, n: usize, k: usize, seed: u64) -> HostTensor {
    let bytes = n * k / format.weights() * format.bytes();
    let mut blocks = HostTensor::random(DType::U8, &[bytes], 0.0, 256.0, seed).bytes().to_vec();
    let (numbers, largest) = (numbers(format), if format.weights() == 256 { 1.0 / 4096.0 } else { 1.0 / 256.0 });
    for (index, block) in blocks.chunks_exact_mut(format.bytes()).enumerate() {
        if format == Format::Mxfp4 {
            block[0] = 110 + block[0] % 14;
        }
        for &at in numbers {
            let sign = if index % 3 == 0 { -1.0 } else { 1.0 };
            let number = f16::from_f32(sign * largest * (f32::from(block[at]) + 1.0) / 256.0);
            block[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
    }
    HostTensor::new(&[n, k / format.weights() * format.bytes()], &blocks)
}

fn case(format: Format, dtype: DType, [m, n, k]: [usize; 3]) -> Case {
    let (x, weight) = (HostTensor::random(dtype, &[m, k], -1.0, 1.0, 1), random_blocks(format, n, k, 2));
    // Decoded elements are at most one: an element of x is 1 / 65534 of the largest off at most, and a sum has its own roundings.
    let bound = Bound::relative(2e-7).with_absolute(k as f64 * (1.0 / 65_534.0 + 2f64.powi(-22)));
    Case::new(QuantizedLinear { format }, [Some(x), Some(weight)], bound, move |i| {
        let blocks: Vec<u8> = i[1].iter().map(|byte| *byte as u8).collect();
        let mut decoded = vec![0.0; n * k];
        made(format.decode(&blocks, &mut decoded));
        vec![product([m, n, k], |row, l| i[0][row * k + l], |column, l| f64::from(decoded[column * k + l]))]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &format in Format::ALL {
        for (dtype, extents) in [
            (DType::F32, [1, 33, 1280]),
            (DType::BF16, [5, 9, 256]),
            (DType::F16, [3, 17, 2304]),
            (DType::F32, [0, 3, 256]),
            (DType::F32, [9, 2, 512]),
        ] {
            cases.push(case(format, dtype, extents));
        }
    }
    cases.push(case(Format::Q8_0, DType::F32, [2, 5, 32]));
    cases.push(case(Format::Q4_0, DType::BF16, [2, 0, 96]));
    cases
}
