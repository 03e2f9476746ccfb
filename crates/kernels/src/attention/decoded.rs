//! Fast attention of many queries over packed rows: keys and values are decoded to f16 for the kernels on matrix units, which take floats.

use elinvar_core::{DType, DeviceProperties, Layout, Result, Shape};

use super::{Attention, operands, prefill, tiled};
use crate::{
    Definition, Operand, TensorInfo,
    dequantize::Dequantize,
    quantized::{Format, cached},
};

/// The steps, where such a kernel then serves.
pub(super) fn definition(operator: &Attention, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Definition>> {
    let given = operands::Inputs::new(inputs)?;
    if given.k.dtype != DType::U8 || !operator.precision.is_fast() {
        return Ok(None);
    }
    let mut definition = Definition::new(inputs);
    let mut decoded = |index: usize| -> Result<Option<Operand>> {
        let Some(packed) = definition.input(index) else { return Ok(None) };
        let shape = packed.info.shape();
        let [batch, heads, keys, bytes] = [0, 1, 2, 3].map(|axis| shape[axis]);
        let width = cached::width(operands::ALL[index].name, &packed.info)?;
        let Some(rows) = packed.info.layout.reshape(Shape::new(&[batch * heads * keys, bytes])?)? else { return Ok(None) };
        let decode = Dequantize { format: Format::Q8_0, width: width as u64, dtype: DType::F16 };
        let floats = definition.apply_one(decode, &[Some(packed.view(rows))])?;
        Ok(Some(floats.view(Layout::contiguous(Shape::new(&[batch, heads, keys, width])?))))
    };
    let at = operands::AT;
    let (Some(k), Some(v)) = (decoded(at.k)?, decoded(at.v)?) else { return Ok(None) };
    let floats = operands::Inputs { k: k.info, v: v.info, ..given };
    let (params, y) = operator.params(floats)?;
    let by_tensor_cores = prefill::plan(&params, floats, y.dtype, operator.precision, device);
    if by_tensor_cores.or_else(|| tiled::plan(&params, floats, operator.precision, device)).is_none() {
        return Ok(None);
    }
    let [q, mask, positions, lengths] = [at.q, at.mask, at.positions, at.lengths].map(|index| definition.input(index));
    let y = definition.apply_one(*operator, &[q, Some(k), Some(v), mask, positions, lengths])?;
    definition.outputs.push(y);
    Ok(Some(definition))
}
