//! Indices of several types.

use elinvar_core::{DType, Element, Error, MetalFile, Result};

use crate::metal::metal_file;

/// The same in Metal, after the frame of elementwise kernels.
pub(crate) const METAL: MetalFile = metal_file!("gather/index.metal");

/// Why a kernel rejects an index.
pub(crate) const OUTSIDE: &str = "an index is outside its axis: negative ones count from its end";

/// The types an index may have.
pub(crate) const TYPES: &[DType] = &[DType::I32, DType::I64, DType::U32];

/// A number that names an entry of an axis.
pub(crate) trait Index: Element {
    fn wide(self) -> i64;

    /// The entry, if the axis has it; negative counts from the end.
    #[inline(always)]
    fn resolve(self, extent: usize) -> Option<usize> {
        let value = self.wide();
        let found = if value < 0 { value.wrapping_add(extent as i64) } else { value } as usize;
        (found < extent).then_some(found)
    }
}

macro_rules! indices {
    ($($type:ty),*) => {
        $(impl Index for $type {
            #[inline(always)]
            fn wide(self) -> i64 {
                i64::from(self)
            }
        })*
    };
}
indices!(i32, i64, u32);

/// Checks every index of one axis, before anything is moved.
///
/// # Errors
/// The first one outside the axis.
pub(crate) fn check_all<I: Index>(indices: &[I], axis: usize, extent: usize) -> Result<()> {
    match indices.iter().position(|i| i.resolve(extent).is_none()) {
        None => Ok(()),
        Some(at) => Err(outside(indices[at], at, axis, extent)),
    }
}

/// The error of an index outside its axis.
#[cold]
pub(crate) fn outside<I: Index>(index: I, at: usize, axis: usize, extent: usize) -> Error {
    Error::invalid_argument(format!(
        "index {} (number {at}) is outside axis {axis} of extent {extent}: negative ones count from its end",
        index.wide()
    ))
}

/// `Some($body)` with `$t` standing for the type of an index.
macro_rules! for_indices {
    ($dtype:expr, $t:ident => $body:expr) => {
        $crate::elementwise::dispatch::select!($dtype, $t => $body; I32 i32, I64 i64, U32 u32)
    };
}
pub(crate) use for_indices;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_indices_count_from_the_end_and_extremes_are_outside() {
        assert_eq!([-3i64, -1, 0, 2].map(|i| i.resolve(3)), [Some(0), Some(2), Some(0), Some(2)]);
        assert_eq!([i64::MIN, -4, 3, i64::MAX].map(|i| i.resolve(3)), [None; 4]);
        assert_eq!((u32::MAX.resolve(3), i32::MIN.resolve(0), 0i32.resolve(0)), (None, None, None));
        let error = check_all(&[0i32, 5, 9], 1, 4).unwrap_err().to_string();
        assert_eq!(error, "index 5 (number 1) is outside axis 1 of extent 4: negative ones count from its end");
    }
}
