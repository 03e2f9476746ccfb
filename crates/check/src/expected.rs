//! Buffers compared with what they should hold after a run.

use std::fmt;

use elinvar_core::{DType, Error, Result};

use crate::elements::numbers;

/// What a buffer should hold.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The buffer's name.
    pub buffer: &'a str,
    /// The elements' type.
    pub dtype: DType,
    /// Their bytes.
    pub bytes: &'a [u8],
    /// Difference that is accepted from an element, relative to it if it is larger than 1; none: the bits must be the same.
    pub tolerance: Option<f64>,
}

/// Elements of a buffer that are not as expected.
#[derive(Debug)]
pub struct Difference {
    /// The buffer.
    pub buffer: String,
    /// Byte offset of the first such element.
    pub offset: usize,
    /// How many there are.
    pub count: usize,
    found: String,
    expected: String,
}

impl Difference {
    /// The name reports use.
    pub const KIND: &str = "unexpected-output";

    /// What is wrong, in words.
    pub fn message(&self) -> String {
        let Self { buffer, offset, found, expected, .. } = self;
        format!("`{buffer}` holds {found} at offset {offset}, where {expected} is expected")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elements = if self.count == 1 { "element" } else { "elements" };
        write!(f, "{}: {} [{} {elements}]", Self::KIND, self.message(), self.count)
    }
}

/// Rejects what no buffer of these names, types and bytes can hold.
///
/// # Errors
/// A buffer that is not given, or of another type or length.
pub fn check_expected<'a>(expected: &[Expected<'_>], buffers: impl Iterator<Item = (&'a str, DType, usize)> + Clone) -> Result<()> {
    for Expected { buffer, dtype, bytes, .. } in expected {
        let wrong = |what: &str| Error::invalid_argument(format!("expect {buffer}: {what}"));
        let found = buffers.clone().find(|(name, ..)| name == buffer);
        let (_, given, length) = found.ok_or_else(|| wrong("no buffer of that name"))?;
        if (given, length) != (*dtype, bytes.len()) {
            let count = |dtype: DType, bytes: usize| format!("{} elements of {dtype}", bytes / dtype.size());
            return Err(wrong(&format!("the buffer holds {}, expected are {}", count(given, length), count(*dtype, bytes.len()))));
        }
    }
    Ok(())
}

impl Expected<'_> {
    /// How what the buffer holds differs, if it does.
    pub fn compare(&self, found: &[u8]) -> Option<Difference> {
        let size = self.dtype.size();
        let differs = |(found, expected): (&[u8], &[u8])| found != expected && !self.tolerates(found, expected);
        let pairs = || found.chunks_exact(size).zip(self.bytes.chunks_exact(size));
        let first = pairs().position(differs)?;
        let shown = |bytes: &[u8]| numbers(self.dtype, &bytes[first * size..][..size]).first().map_or(String::new(), |number| format!("{number:?}"));
        Some(Difference {
            buffer: self.buffer.to_owned(),
            offset: first * size,
            count: pairs().filter(|pair| differs(*pair)).count(),
            found: shown(found),
            expected: shown(self.bytes),
        })
    }

    fn tolerates(&self, found: &[u8], expected: &[u8]) -> bool {
        let Some(tolerance) = self.tolerance else { return false };
        let pairs = numbers(self.dtype, found).into_iter().zip(numbers(self.dtype, expected));
        pairs.into_iter().all(|(found, expected)| {
            let is_near = expected.is_finite() && (found - expected).abs() <= tolerance * expected.abs().max(1.0);
            found == expected || found.is_nan() && expected.is_nan() || is_near
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(expected: &[f32], found: &[f32], tolerance: Option<f64>) -> Option<(usize, usize)> {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>();
        let expected = Expected { buffer: "x", dtype: DType::F32, bytes: &bytes(expected), tolerance };
        expected.compare(&bytes(found)).map(|difference| (difference.offset, difference.count))
    }

    #[test]
    fn bits_are_compared_unless_a_tolerance_is_given() {
        assert_eq!(compare(&[1.0, 2.0], &[1.0, 2.0], None), None);
        assert_eq!(compare(&[1.0, 0.0, f32::NAN], &[1.0, -0.0, -f32::NAN], None), Some((4, 2)));
        assert_eq!(compare(&[1.0, 0.0, f32::NAN], &[1.0, -0.0, -f32::NAN], Some(0.0)), None);
    }

    #[test]
    fn the_tolerance_is_relative_to_what_is_larger_than_one() {
        assert_eq!(compare(&[1000.0, 0.01], &[1000.9, 0.0109], Some(1e-3)), None);
        assert_eq!(compare(&[1000.0, 0.01], &[1001.1, 0.0111], Some(1e-3)), Some((0, 2)));
        assert_eq!(compare(&[f32::INFINITY, 1.0], &[f32::INFINITY, f32::NAN], Some(1.0)), Some((4, 1)));
        assert_eq!(compare(&[f32::INFINITY], &[1.0], Some(1.0)), Some((0, 1)));
    }
}
