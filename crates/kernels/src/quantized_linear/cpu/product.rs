//! The choice of a unit, and of the layout of x that belongs to it.

#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{
    COLUMNS, SUMS,
    integers::{Form, Layout, Rows},
    portable,
};
#[cfg(target_arch = "x86_64")]
use crate::simd;
use crate::{
    Precision,
    float::Float,
    quantized::{
        CHUNK, Format,
        format::{Blocks, with_blocks},
    },
};

/// How rows of a weight are multiplied with rows of x.
#[derive(Clone, Copy)]
pub(super) struct Product {
    format: Format,
    /// Of the rows of x.
    layout: Layout,
    #[cfg(target_arch = "x86_64")]
    kernel: Option<x86::Kernel>,
}

impl Product {
    /// With `m` rows of x, at the best level here.
    pub(super) fn new(format: Format, m: usize, precision: Precision) -> Self {
        Self::vectorised(format, m, precision).unwrap_or_else(|| Self::portable(format))
    }

    #[cfg(target_arch = "x86_64")]
    fn vectorised(format: Format, m: usize, precision: Precision) -> Option<Self> {
        (simd::level() >= simd::Level::Avx2).then(|| {
            let (layout, kernel) = x86::kernel(format, m, precision);
            Self { format, layout, kernel: Some(kernel) }
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn vectorised(_: Format, _: usize, _: Precision) -> Option<Self> {
        None
    }

    pub(super) fn portable(format: Format) -> Self {
        Self {
            format,
            layout: Layout::Words,
            #[cfg(target_arch = "x86_64")]
            kernel: None,
        }
    }

    pub(super) fn rows<T: Float>(self, x: &[T], extents: [usize; 2]) -> Rows {
        let form = with_blocks!(self.format, F => Form { layout: self.layout, fields: F::FIELDS, halves: F::GROUP < CHUNK });
        Rows::new(x, extents, form)
    }

    /// The first `count` packed rows of `row_bytes`, up to [`COLUMNS`], with each row of x.
    pub(super) fn multiply(self, x: &Rows, [row_bytes, count]: [usize; 2], weights: &[u8], products: &mut [[f32; COLUMNS]]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = self.kernel {
            return with_blocks!(self.format, F => x86::multiply::<F>(kernel, x, [row_bytes, count], weights, products));
        }
        with_blocks!(self.format, F => portable::multiply::<F>(x, row_bytes, &weights[..row_bytes * count], products));
    }
}

/// The lanes' xor tree, as the first lane has it.
#[inline(always)]
pub(super) fn tree(mut sums: [f32; SUMS]) -> f32 {
    for mask in [4, 2, 1] {
        for lane in 0..mask {
            sums[lane] += sums[lane + mask];
        }
    }
    sums[0]
}
