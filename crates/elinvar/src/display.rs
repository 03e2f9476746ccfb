//! Values as NumPy prints them.

use std::fmt;

use crate::tensor::Tensor;
use elinvar_core::{DType, Result};

/// Elements up to which all are shown.
const MAX_SHOWN: usize = 1000;

/// Entries shown at each end of an axis where not all are.
const EDGE: usize = 3;

/// The values, nested by axes; of a large tensor those at the edges. It waits for them. In place of what cannot be read stands the error.
///
/// ```
/// let executor = elinvar::Executor::new_auto()?;
/// let x = executor.tensor(&[2, 2], &[1f32, 2.5, -3.0, 4.0])?;
/// assert_eq!(x.to_string(), "[[ 1.0,  2.5],\n [-3.0,  4.0]]");
/// # Ok::<(), elinvar::Error>(())
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match words(self) {
            Ok(words) => {
                let width = words.iter().map(String::len).max().unwrap_or(0);
                let is_whole = self.shape().elements() <= MAX_SHOWN;
                write_axis(f, self.shape(), &mut words.iter(), width, is_whole, 1)
            }
            Err(error) => write!(f, "({self:?}: {error})"),
        }
    }
}

/// The elements that are shown, as text, in order.
fn words(tensor: &Tensor) -> Result<Vec<String>> {
    let mut shown = vec![tensor.clone()];
    if tensor.shape().elements() > MAX_SHOWN {
        for (axis, &extent) in tensor.shape().iter().enumerate().filter(|(_, extent)| **extent > 2 * EDGE) {
            let ends = |part: &Tensor| Ok([part.slice(axis as isize, 0, EDGE, 1)?, part.slice(axis as isize, extent - EDGE, EDGE, 1)?]);
            let parts = shown.iter().map(ends).collect::<Result<Vec<_>>>()?;
            shown = parts.into_iter().map(|[head, tail]| Tensor::concat(&[&head, &tail], axis as isize)).collect::<Result<Vec<_>>>()?;
        }
    }
    let mut all = Vec::new();
    for part in shown {
        all.extend(texts(&part)?);
    }
    Ok(all)
}

fn texts(tensor: &Tensor) -> Result<Vec<String>> {
    macro_rules! texts {
        ($type:ty, $x:ident => $text:expr) => {
            tensor.to_vec::<$type>()?.into_iter().map(|$x| $text).collect()
        };
    }
    Ok(match tensor.dtype() {
        DType::F32 => texts!(f32, x => format!("{x:?}")),
        DType::F16 | DType::BF16 => texts(&tensor.cast(DType::F32)?)?,
        DType::F64 => texts!(f64, x => format!("{x:?}")),
        DType::I8 => texts!(i8, x => x.to_string()),
        DType::I16 => texts!(i16, x => x.to_string()),
        DType::I32 => texts!(i32, x => x.to_string()),
        DType::I64 => texts!(i64, x => x.to_string()),
        DType::U8 => texts!(u8, x => x.to_string()),
        DType::U16 => texts!(u16, x => x.to_string()),
        DType::U32 => texts!(u32, x => x.to_string()),
        DType::U64 => texts!(u64, x => x.to_string()),
        DType::Bool => tensor.to_bytes()?.into_iter().map(|byte| (byte != 0).to_string()).collect(),
    })
}

fn write_axis<'a>(
    f: &mut fmt::Formatter<'_>,
    extents: &[usize],
    words: &mut impl Iterator<Item = &'a String>,
    width: usize,
    is_whole: bool,
    depth: usize,
) -> fmt::Result {
    let [extent, inner @ ..] = extents else {
        return words.next().map_or(Ok(()), |word| write!(f, "{word:>width$}"));
    };
    f.write_str("[")?;
    let is_cut = !is_whole && *extent > 2 * EDGE;
    let count = if is_cut { 2 * EDGE } else { *extent };
    for entry in 0..count {
        if entry > 0 {
            f.write_str(",")?;
            if inner.is_empty() {
                f.write_str(" ")?;
            } else {
                write!(f, "{}{:depth$}", "\n".repeat(inner.len()), "")?;
            }
        }
        if is_cut && entry == EDGE {
            f.write_str(if inner.is_empty() { "..., " } else { "...," })?;
            if !inner.is_empty() {
                write!(f, "{}{:depth$}", "\n".repeat(inner.len()), "")?;
            }
        }
        write_axis(f, inner, words, width, is_whole, depth + 1)?;
    }
    f.write_str("]")
}
