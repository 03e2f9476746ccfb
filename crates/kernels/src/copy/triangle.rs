//! Triangles of matrices.

use elinvar_core::{DType, DeviceProperties, Element, Error, HostArguments, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    elementwise::{self, Operand, Space, blocks::TASK, dispatch::for_storage, over_elements},
    gradient::Gradient,
    metal::{self, metal_file, params},
    parallel::for_each_part,
    signature::{misshapen, operands},
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, TriluParams::METAL, metal_file!("copy/triangle.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "trilu");

attributes! {
    /// The upper or lower triangle of matrices `[…, m, n]`, zero elsewhere.
    #[derive(Clone, Copy, Debug)]
    pub struct Trilu {
        /// The upper triangle, columns − rows ≥ k; else the lower one, columns − rows ≤ k.
        pub upper: bool = true,
        /// The diagonal that bounds it: above zero to the right of the main one.
        pub k: i64 = 0,
    }
}

params! {
    /// The parameter block.
    pub struct TriluParams {
        /// Elements in all.
        pub count: u64,
        /// Rows of a matrix.
        pub rows: u64,
        /// Columns.
        pub columns: u64,
        /// The diagonal.
        pub k: i64,
        /// 1 for the upper triangle.
        pub upper: u64,
    }
}

operands! {
    pub(super) mod operands {
        x: read(DType::ALL) bits, "[…, m, n]";
        -> y: write(like x) bits, "as x";
    }
}

impl Operator for Trilu {
    fn name(&self) -> &'static str {
        "trilu"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        if x.shape().rank() < 2 {
            return Err(misshapen!(x; "matrices […, m, n]"));
        }
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let [.., rows, columns] = outputs[0].shape()[..] else {
            return Err(Error::internal("trilu is planned for what is no matrix"));
        };
        let buffers = operands::Inputs::new(inputs)?.parameters(outputs)?;
        let bits = buffers[operands::AT.x].0.dtype;
        let count = outputs[0].elements();
        let params = TriluParams { count: count as u64, rows: rows as u64, columns: columns as u64, k: self.k, upper: u64::from(self.upper) };
        let launch = Launch::new(KernelKey::new("trilu", &[bits]), for_storage!(bits, T => run::<T>), &params, buffers);
        Ok(over_elements(launch.with_metal(METAL), count).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let upstream = gradient.upstream(0)?;
            gradient.apply(*self, &[upstream])
        })
    }
}

fn run<T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let TriluParams { rows, columns, k, upper, .. } = arguments.params()?;
    let (x, y) = (arguments.input::<T>(operands::AT.x)?, arguments.output::<T>(operands::AT.y)?);
    if y.is_empty() {
        return Ok(());
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let part_rows = (TASK / columns).max(1);
    for_each_part(y, part_rows * columns, |part, y| {
        for (row, y) in (part * part_rows..).zip(y.chunks_exact_mut(columns)) {
            let diagonal = k.saturating_add((row % rows) as i64).saturating_add(i64::from(upper == 0));
            let (left, right) = y.split_at_mut(diagonal.clamp(0, columns as i64) as usize);
            let x = &x[row * columns..][..columns];
            if upper == 1 {
                left.fill(T::zeroed());
                right.copy_from_slice(&x[left.len()..]);
            } else {
                left.copy_from_slice(&x[..left.len()]);
                right.fill(T::zeroed());
            }
        }
    });
    Ok(())
}
