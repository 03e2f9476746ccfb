//! A group of neighbours whose scale and offset are stored apart from its integers, as MLX has them.

use elinvar_core::{DType, Error, Result};
use half::{bf16, f16};

use super::{
    fit::{line, line_error, line_levels},
    too_great,
};

/// Finds the scale and the offset of a group, numbers that `dtype` (f32, f16 or bf16) holds, and the integer of each value, of up to 8 `bits`, so that
/// `scale · integer + offset` has a small mean square error.
///
/// # Errors
/// Another type or number of bits, a group that is no multiple of 8, room for another number of integers, a value that is not finite, or one that needs a
/// number beyond the type's.
pub fn encode_group(values: &[f32], bits: u32, dtype: DType, integers: &mut [u8]) -> Result<[f32; 2]> {
    let narrow: fn(f32) -> f32 = match dtype {
        DType::F32 => |x| x,
        DType::F16 => |x| f16::from_f32(x).to_f32(),
        DType::BF16 => |x| bf16::from_f32(x).to_f32(),
        DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
            return Err(Error::invalid_argument(format!("scales of {dtype}: f32, f16 or bf16 expected")));
        }
    };
    let count = values.len();
    if !(1..=8).contains(&bits) || !count.is_multiple_of(8) || integers.len() != count {
        let room = integers.len();
        return Err(Error::invalid_argument(format!(
            "{count} values for {room} integers of {bits} bits: a multiple of 8 for as many of 1 to 8 expected"
        )));
    }
    if let Some((at, value)) = values.iter().enumerate().find(|(_, x)| !x.is_finite()) {
        return Err(Error::invalid_data(format!("value {at} is {value}: integers stand for finite numbers only")));
    }
    let (top, weights) = (((1u32 << bits) - 1) as f32, vec![1.0; count]);
    let fitted = line(values, &weights, top, f32::INFINITY);
    let (mut least, mut best) = (f32::INFINITY, [f32::INFINITY; 2]);
    // The nearest scale of the type and its neighbours in bf16, each with the offset that suits it.
    for scale in [1.0, 255.0 / 256.0, 257.0 / 256.0].map(|factor| narrow(factor * fitted[0])) {
        let mut offset = narrow(fitted[1]);
        for _ in 0..3 {
            let [error, above] = line_error(values, &weights, top, [scale, offset]);
            if error < least {
                (least, best) = (error, [scale, offset]);
            }
            offset = narrow(-above / count as f32);
        }
    }
    if !best.iter().all(|number| number.is_finite()) {
        return Err(too_great());
    }
    integers.iter_mut().zip(line_levels(values, top, best)).for_each(|(integer, level)| *integer = level);
    Ok(best)
}
