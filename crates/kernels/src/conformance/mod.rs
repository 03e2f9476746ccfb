//! The conformance suite: every operator's cases, and what puts a device through them.
//!
//! A case is an operator, its inputs and an f64 oracle. [`run`] binds tensors at aligned or odd offsets of larger buffers, poisons the outputs
//! and surrounds them with red zones; [`Case::check`] compares with the oracle; [`compare`] also with another device, strict operators bit
//! for bit.

pub(crate) mod case;
mod evaluate;
mod fused;
mod gradients;
mod planned;
mod rejected;
mod rows;
mod subnormals;
mod suite;
pub(crate) mod tensor;

use elinvar_core::{Binding, Buffer, DType, Device, Error, ListBuilder, Result};

pub use case::{Bound, Case, KEPT, LENGTHS, for_lengths, for_rows};
pub use fused::check_fused;
pub use gradients::check_gradient;
pub use rejected::rejected;
pub use rows::check_rows;
pub use suite::{Tally, compile, each_kernel_once, run_suite, runs_all, sample, skipped};
pub use tensor::HostTensor;

use crate::{Precision, TensorInfo, encode, plan_for, registry};

/// Where tensors start in their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At a multiple of 256 bytes.
    Aligned,
    /// One element after a multiple of 256 bytes.
    Odd,
}

impl Placement {
    /// Both.
    pub const ALL: &[Placement] = &[Placement::Aligned, Placement::Odd];

    fn offset(self, dtype: DType) -> usize {
        MARGIN + if self == Placement::Odd { dtype.size() } else { 0 }
    }
}

/// Bytes of a red zone.
const MARGIN: usize = 256;

/// Runs a case on a device and on one to compare with: strict results must have the same bits, and both must agree with the oracle.
///
/// # Errors
/// They do not, or what [`run`] reports.
pub fn compare(case: &Case, device: &Device, reference: &Device, placement: Placement) -> Result<()> {
    let found = run(case, device, placement).map_err(|e| e.context(case.name()))?;
    case.check(&found)?;
    if case.operator.precision() != Precision::Strict {
        return Ok(());
    }
    let expected = run(case, reference, placement).map_err(|e| e.context(case.name()))?;
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if let Some(at) = found.first_difference(expected) {
            let (name, one, other) = (case.name(), found.to_f64()[at], expected.to_f64()[at]);
            let devices = (&device.properties().name, &reference.properties().name);
            return Err(Error::invalid_data(format!("{name}: output {index}, element {at} is {one} on {} but {other} on {}", devices.0, devices.1)));
        }
    }
    Ok(())
}

/// Runs a case of [`rejected`] on a device, which must say that an input is wrong.
///
/// # Errors
/// It accepts the inputs, or anything else is wrong.
pub fn reject(case: &Case, device: &Device, placement: Placement) -> Result<()> {
    match run(case, device, placement) {
        Err(error) if error.is_invalid_argument() => Ok(()),
        Err(error) => Err(error.context(case.name())),
        Ok(_) => Err(Error::invalid_data(format!("{}: {} accepts what it must reject", case.name(), device.properties().name))),
    }
}

/// Runs a case on a device and gives its outputs.
///
/// # Errors
/// What the operator or the device rejects; a write outside an output.
pub fn run(case: &Case, device: &Device, placement: Placement) -> Result<Vec<HostTensor>> {
    const POISON: u8 = 0xa5;
    let infos = case.infos()?;
    let types = case.operator.infer(&infos)?;
    let poison = |buffer: &Buffer| device.write(buffer, 0, &vec![POISON; buffer.bytes()]);
    let mut inputs = Vec::new();
    for (index, tensor) in case.inputs.iter().enumerate() {
        inputs.push(match tensor {
            None => None,
            Some(tensor) => {
                let offset = placement.offset(tensor.dtype());
                let end = offset + tensor.bytes().len();
                let buffer = if case.updated.contains(&index) {
                    let buffer = device.allocate(end + MARGIN)?;
                    poison(&buffer)?;
                    buffer
                } else {
                    // Nothing is to be read beyond its end.
                    device.allocate_dedicated(end)?
                };
                device.write(&buffer, offset, tensor.bytes())?;
                Some(buffer.bind(offset, tensor.bytes().len())?)
            }
        });
    }
    let mut outputs = Vec::new();
    for info in &types {
        let bytes = info.bytes();
        let offset = placement.offset(info.dtype);
        let buffer = device.allocate(offset + bytes + MARGIN)?;
        poison(&buffer)?;
        outputs.push(buffer.bind(offset, bytes)?);
    }
    let plan = plan_for(&*case.operator, &infos, &types, device)?;
    let mut list = ListBuilder::new();
    encode(&plan, &inputs, &outputs, device, &mut list, |bytes| device.allocate(bytes))?;
    device.submit(&list.finish())?.wait()?;
    let read = |binding: &Binding, info: &TensorInfo| -> Result<HostTensor> {
        let mut bytes = vec![0; binding.buffer().bytes()];
        device.read(binding.buffer(), 0, &mut bytes)?;
        let (start, end) = (binding.offset(), binding.offset() + binding.bytes());
        if bytes[..start].iter().chain(&bytes[end..]).any(|&b| b != POISON) {
            return Err(Error::invalid_data(format!("{}: wrote outside its output", case.name())));
        }
        HostTensor::from_bytes(info.dtype, info.shape(), &bytes[start..end])
    };
    let updated = |&index: &usize| match (&inputs[index], &infos[index]) {
        (Some(binding), Some(info)) => read(binding, info),
        _ => Err(Error::invalid_argument(format!("{}: an updated input is absent", case.name()))),
    };
    let results = outputs.iter().zip(&types).map(|(binding, info)| read(binding, info));
    results.chain(case.updated.iter().map(updated)).collect()
}

/// Every operator's cases, and the smallest of them again with subnormal numbers.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = registry::CASES.iter().flat_map(|cases| cases()).collect();
    cases.extend(subnormals::cases(&cases));
    cases
}
