//! The format's definition, and the cases.

use elinvar_core::DType;

use super::Dequantize;
use crate::{
    conformance::case::{Bound, Case, made},
    quantized::Format,
    quantized_linear::oracle::random_rows,
};

fn case(dtype: DType, format: Format, rows: usize, width: usize) -> Case {
    Case::new(Dequantize { format, width: width as u64, dtype }, [Some(random_rows(format, rows, width, 1))], Bound::EXACT, move |i| {
        let packed: Vec<u8> = i[0].iter().map(|byte| *byte as u8).collect();
        let mut values = vec![0.0; rows * width];
        for (row, values) in packed.chunks_exact((packed.len() / rows.max(1)).max(1)).zip(values.chunks_exact_mut(width.max(1))) {
            made(format.decode_packed(row, values));
        }
        vec![values.into_iter().map(f64::from).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let f32 = DType::F32;
    let mut cases: Vec<_> = Format::ALL.iter().map(|&format| case(DType::F32, format, 3, 768)).collect();
    cases.extend([
        case(f32, Format::Q8_0, 5, 96),
        case(DType::BF16, Format::Q4_0, 5, 96),
        case(DType::F16, Format::Q6K, 2, 256),
        case(f32, Format::Q4_0, 0, 32),
        case(f32, Format::Q4_0, 2, 0),
    ]);
    cases
}
