//! Strict products of 16-bit operands on tensor cores, on devices that have them.

use elinvar_core::DeviceProperties;

use super::{geometry::Factor, launch::Product};
use crate::{
    Argument, Plan,
    dot::{
        self,
        hopper::{Records, Rows},
    },
};

impl Product {
    /// The plan on tensor cores, where the device has one for this product: strict, of 16-bit operands, and one matrix times another.
    pub(super) fn by_records(&self, [a, b, bias, y]: [Argument; 4], device: &DeviceProperties) -> Option<Plan> {
        let Self { geometry, bias: bias_type, output } = self;
        let [batches, m, n] = geometry.extents();
        if !geometry.is_strict() || !dot::applies(geometry.a.dtype, geometry.b.dtype) || batches != 1 {
            return None;
        }
        let rows = |factor: &Factor, count, from| Rows { dtype: factor.dtype, origin: factor.origin, strides: factor.strides, count, from };
        let records = Records {
            sides: [rows(&geometry.a, m, a), rows(&geometry.b, n, b)],
            k: geometry.k,
            alpha: geometry.alpha,
            bias: bias_type.map(|dtype| (dtype, bias)),
            output: (*output, y),
        };
        records.plan(device)
    }
}
