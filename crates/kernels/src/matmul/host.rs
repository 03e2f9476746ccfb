use elinvar_core::{DType, Error, HostArguments, MAX_RANK, Result};
use rayon::prelude::*;

use super::{
    cpu::{
        operand::{Matrix, Target, Values, ValuesMut},
        plan::Summation,
        product::product,
    },
    geometry::{Factor, Geometry},
    operands::AT,
};
use crate::metal::params;

params! {
    /// Where an operand's elements lie: see [`Factor`].
    pub(super) struct Operand {
        /// The first element.
        pub origin: u64,
        /// Strides of the batch axes.
        pub batch: [i64; MAX_RANK - 1],
        /// Strides of rows and of k.
        pub strides: [i64; 2],
    }
}

impl Operand {
    fn new(factor: &Factor) -> Self {
        Self { origin: factor.origin as u64, batch: factor.batch.map(|s| s as i64), strides: factor.strides.map(|s| s as i64) }
    }
}

params! {
    /// A product.
    pub(super) struct Params {
        /// Extents of the batch axes.
        pub batch: [u64; MAX_RANK - 1],
        /// Rows of a and y.
        pub m: u64,
        /// Columns of y.
        pub n: u64,
        /// The summed extent.
        pub k: u64,
        /// The left operand.
        pub a: Operand,
        /// The right operand, its columns as rows.
        pub b: Operand,
        /// Scales the product.
        pub alpha: f32,
        /// Whether sums have the canonical order.
        pub strict: u32,
        /// Of `a`, `b`, `bias` ([`ABSENT`] for none) and `y`.
        pub dtypes: [u32; 4],
    }
}

impl Params {
    pub(super) fn new(geometry: Geometry, bias: Option<DType>, output: DType) -> Self {
        let (a, b) = (Operand::new(&geometry.a), Operand::new(&geometry.b));
        Self {
            batch: geometry.batch.map(|extent| extent as u64),
            m: geometry.m as u64,
            n: geometry.n as u64,
            k: geometry.k as u64,
            a,
            b,
            alpha: geometry.alpha,
            strict: geometry.is_strict().into(),
            dtypes: [dtype_code(geometry.a.dtype), dtype_code(geometry.b.dtype), bias.map_or(ABSENT, dtype_code), dtype_code(output)],
        }
    }

    fn summation(&self) -> Summation {
        if self.strict != 0 { Summation::Strict } else { Summation::Fast }
    }

    /// The operands of a product that is no batch.
    pub(super) fn matrices<'a>(&self, [a, b]: [Values<'a>; 2]) -> Result<[Matrix<'a>; 2]> {
        let [m, n, k] = [self.m, self.n, self.k].map(|extent| extent as usize);
        let of = |values, operand: &Operand, dims| matrix(values, operand.origin as usize, dims, operand.strides.map(|s| s as isize));
        Ok([of(a, &self.a, [m, k])?, of(b, &self.b, [n, k])?])
    }

    /// Computes it.
    pub(super) fn multiply(&self, [a, b]: [Matrix<'_>; 2], target: &Target<'_>) {
        product(self.summation(), a, b, target);
    }
}

/// The CPU kernel: batches in parallel, and each product in parallel.
pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let [a, b, bias, _] = params.dtypes;
    let factors = [values(arguments, AT.a, a)?, values(arguments, AT.b, b)?];
    let bias = arguments.is_bound(AT.bias).then(|| values(arguments, AT.bias, bias)).transpose()?;
    match values_mut(arguments, AT.y, params.dtypes[3])? {
        ValuesMut::F32(y) => batches(&params, factors, bias, y, |y| ValuesMut::F32(y)),
        ValuesMut::F16(y) => batches(&params, factors, bias, y, |y| ValuesMut::F16(y)),
        ValuesMut::Bf16(y) => batches(&params, factors, bias, y, |y| ValuesMut::Bf16(y)),
    }
}

fn batches<T: Send>(
    params: &Params,
    [a, b]: [Values<'_>; 2],
    bias: Option<Values<'_>>,
    y: &mut [T],
    wrap: impl Fn(&mut [T]) -> ValuesMut<'_> + Sync,
) -> Result<()> {
    let [m, n, k] = [params.m, params.n, params.k].map(|extent| extent as usize);
    let summation = params.summation();
    let one = |(index, y): (usize, &mut [T])| {
        let a = matrix(a, origin(params, &params.a, index), [m, k], params.a.strides.map(|s| s as isize))?;
        let b = matrix(b, origin(params, &params.b, index), [n, k], params.b.strides.map(|s| s as isize))?;
        let target = Target::new(wrap(y), [m, n], n).and_then(|t| t.scaled(params.alpha).with_bias(bias));
        product(summation, a, b, &target.ok_or_else(|| Error::invalid_launch("the bias or y is too small"))?);
        Ok(())
    };
    if m * n == 0 {
        return Ok(());
    }
    if y.len() == m * n {
        return one((0, y));
    }
    y.par_chunks_exact_mut(m * n).enumerate().try_for_each(one)
}

/// Where a batch's matrix begins.
fn origin(params: &Params, operand: &Operand, mut index: usize) -> usize {
    let mut origin = operand.origin as i64;
    for (&extent, stride) in params.batch.iter().zip(operand.batch).rev() {
        origin += (index % extent as usize) as i64 * stride;
        index /= extent as usize;
    }
    origin as usize
}

/// The code of a type that is not there, or is no floating-point type.
pub(crate) const ABSENT: u32 = u32::MAX;

const F32: u32 = 0;
const F16: u32 = 1;
const BF16: u32 = 2;

/// A floating-point type in a parameter block.
pub(crate) fn dtype_code(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => F32,
        DType::F16 => F16,
        DType::BF16 => BF16,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool | DType::F64 => ABSENT,
    }
}

fn no_float(code: u32) -> Error {
    Error::internal(format!("a product's parameters name a type {code}"))
}

/// A bound buffer of the type that `code` stands for.
pub(crate) fn values<'a>(arguments: &HostArguments<'a>, index: usize, code: u32) -> Result<Values<'a>> {
    Ok(match code {
        F32 => Values::F32(arguments.input(index)?),
        F16 => Values::F16(arguments.input(index)?),
        BF16 => Values::Bf16(arguments.input(index)?),
        code => return Err(no_float(code)),
    })
}

/// The same of an output.
pub(crate) fn values_mut<'a>(arguments: &mut HostArguments<'a>, index: usize, code: u32) -> Result<ValuesMut<'a>> {
    Ok(match code {
        F32 => ValuesMut::F32(arguments.output(index)?),
        F16 => ValuesMut::F16(arguments.output(index)?),
        BF16 => ValuesMut::Bf16(arguments.output(index)?),
        code => return Err(no_float(code)),
    })
}

/// A strided matrix inside bound values.
pub(crate) fn matrix(values: Values<'_>, origin: usize, dims: [usize; 2], strides: [isize; 2]) -> Result<Matrix<'_>> {
    Matrix::new(values, origin, dims, strides).ok_or_else(|| Error::invalid_launch(format!("a {dims:?} operand lies outside its buffer")))
}
