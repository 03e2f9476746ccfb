//! Cumulative sums along one axis.
//!
//! * Memory: the input is read once, the output is written once.
//! * Order, for floats, in f32 with one rounding at the end. A row is cut into segments of 32 elements, one for each lane of a simdgroup. A
//!   segment is scanned by doubling distances: for `d` = 1, 2, 4, 8, 16, at once in every lane `l ≥ d`, `t_l = t_(l−d) + t_l`. The totals `t_31` of
//!   a block of 32 segments are scanned the same way, to `u_g`. The sum up to an element is `carry + t_l` in a block's first segment and
//!   `carry + (u_(g−1) + t_l)` in segment `g`, with `carry = +0` for the first block and `carry = carry + u_31` from block to block.
//! * `exclusive` shifts the sums by one element, behind a zero; `reverse` sums from the end: the same order on the reversed row.
//! * Error, before the rounding of the output: `(n / 1024 + 12) · 2^-24 · Σ |x|` over the elements summed.
//! * Integers wrap.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gradient::Gradient,
    metal::{self, metal_file, params},
    order,
    rows::Rows,
    signature::{self, operands},
};

attributes! {
    /// A cumulative sum. Input and output `[…]` of one type, floats or integers.
    #[derive(Clone, Copy, Debug)]
    pub struct CumSum {
        /// The axis; negative counts from the end.
        pub axis: isize = -1,
        /// Leave each element itself out of its sum.
        pub exclusive: bool = false,
        /// Sum from the end.
        pub reverse: bool = false,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        pub exclusive: u32,
        pub reverse: u32,
        /// Simdgroups that share a row.
        pub simdgroups: u32,
        /// Zero.
        pub reserved: u32,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, order::ACCUMULATOR, Rows::METAL, Params::METAL, metal_file!("cumsum/cumsum.metal")];

/// Bytes of threadgroup memory: a total for each of 32 segments, for even and for odd blocks.
fn totals(dtype: DType) -> usize {
    2 * 32 * dtype.size().max(4)
}

operands! {
    x: read(DType::NUMBERS), "[…], any shape with at least one axis";
    -> y: write(like x), "as x";
}

impl Operator for CumSum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        signature::axis("x", &x, self.axis)?;
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let x = inputs.x;
        let rows = Rows::new(x.shape(), self.axis)?;
        // Four segments of 32 elements for each simdgroup.
        let simdgroups = (rows.length as usize).div_ceil(4 * 32).next_power_of_two().min(8);
        let params = Params { rows, exclusive: self.exclusive.into(), reverse: self.reverse.into(), simdgroups: simdgroups as u32, reserved: 0 };
        let launch = Launch::new(KernelKey::new("cumsum", &[x.dtype]), cpu::kernel(x.dtype)?, &params, inputs.parameters(outputs)?);
        let launch = launch.with_metal(MetalForm::new(FILES, "cumsum")).with_threadgroup_memory(totals(x.dtype));
        let count = if rows.length == 0 { 0 } else { rows.count() };
        let most = (device.max_threads_per_threadgroup / 32).min(8);
        let together = (most / simdgroups).clamp(1, count.max(1));
        let groups = count.div_ceil(together).min(u32::MAX as usize) as u32;
        Ok(launch.over(Extent::linear(groups), Extent::linear((32 * simdgroups * together) as u32)).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let upstream = gradient.upstream(0)?;
            gradient.apply(CumSum { reverse: !self.reverse, ..*self }, &[upstream])
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!("cumsum", "cumulative sum along an axis", operands, CumSum)];
