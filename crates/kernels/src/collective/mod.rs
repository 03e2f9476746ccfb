//! Collectives: what the ranks of a group of devices exchange. A group alone executes them, as copies or as a kernel of its own.
//!
//! * Nothing is added up across ranks: matrices are split by their rows, so that each element is computed by one rank, in the order that it always has. The
//!   bits do not depend on the number of ranks.
//! * Elements move as bits.

mod delivery;
mod peers;
mod push;

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, Layout, NativeForm, Parameter, Result, Shape};

pub(crate) use delivery::DeliveryFiles;
pub use delivery::{Delivering, Delivery, ROW_SLOTS, SLOT_ELEMENTS};
pub use peers::{INBOX_BYTES, MOST_RANKS};
pub(crate) use push::{EXCHANGE, PEERS};
pub use push::{Push, Pushing};

use crate::{Argument, Launch, Operator, Plan, TensorInfo, copy, elementwise::storage, signature::operands};

/// What a group executes in place of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Each rank gets the parts of all: see [`AllGather`].
    AllGather,
    /// Each rank gets its own part of what all have: see [`OwnPart`].
    OwnPart,
}

impl NativeForm for Collective {
    fn rejected(&self, _flag: u32) -> Option<Error> {
        None
    }
}

/// The parameter block of a [`Collective`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct CollectiveParams {
    /// Rows of what is exchanged.
    pub rows: u64,
    /// Elements of a rank's part of a row.
    pub width: u64,
}

impl CollectiveParams {
    /// The copy of a rank's part, row-major, to its place in the whole.
    ///
    /// # Errors
    /// More elements than can be addressed.
    pub fn into_place(&self, dtype: DType, ranks: usize, rank: usize) -> Result<Launch> {
        Ok(copy::launch_into_part(dtype, &self.part()?, &self.place(ranks, rank)?, Argument::Input(0), Argument::Output(0)))
    }

    /// The copy of a rank's part out of the whole.
    ///
    /// # Errors
    /// More elements than can be addressed.
    pub fn out_of_place(&self, dtype: DType, ranks: usize, rank: usize) -> Result<Launch> {
        Ok(copy::launch(dtype, &self.place(ranks, rank)?, Argument::Input(0), Argument::Output(0)))
    }

    /// Bytes of a rank's part.
    pub fn part_bytes(&self, dtype: DType) -> usize {
        (self.rows * self.width) as usize * dtype.size()
    }

    fn part(&self) -> Result<Layout> {
        Ok(Layout::contiguous(Shape::new(&[self.rows as usize, self.width as usize])?))
    }

    fn place(&self, ranks: usize, rank: usize) -> Result<Layout> {
        let (rows, width) = (self.rows as usize, self.width as usize);
        Layout::strided(Shape::new(&[rows, width])?, &[(width * ranks) as isize, 1], rank * width)
    }
}

/// The parts that the ranks of a group have, side by side along the last axis, on each of them. Input `[…, n]`, output `[…, ranks · n]`.
#[derive(Clone, Copy, Debug)]
pub struct AllGather {
    /// Ranks of the group.
    pub ranks: usize,
}

/// Of what all ranks of a group have each gets its own part of the last axis: the first rank the first. Input `[…, ranks · n]`, output `[…, n]`.
#[derive(Clone, Copy, Debug)]
pub struct OwnPart {
    /// Ranks of the group.
    pub ranks: usize,
}

operands! {
    x: read(DType::ALL) bits, "[…, n]";
    -> y: write(like x) bits, "[…, n] with more or fewer elements along the last axis";
}

/// x with another extent of its last axis.
fn resized(x: &TensorInfo, resize: impl Fn(usize) -> Option<usize>) -> Result<TensorInfo> {
    let mut dims = x.shape().to_vec();
    let last = dims.last_mut().ok_or_else(|| Error::invalid_argument("x has no axis: at least one expected"))?;
    *last =
        resize(*last).ok_or_else(|| Error::invalid_argument(format!("x has shape {}: its last axis cannot be cut into so many parts", x.shape())))?;
    TensorInfo::new(x.dtype, &dims)
}

fn plan(name: &'static str, collective: Collective, x: &TensorInfo, part: &TensorInfo) -> Plan {
    let width = part.shape().last().copied().unwrap_or(1);
    let params = CollectiveParams { rows: (part.elements() / width.max(1)) as u64, width: width as u64 };
    let bits = storage(x.dtype);
    let buffers = [(Parameter::read("x", bits), Argument::Input(0)), (Parameter::write("y", bits), Argument::Output(0))];
    Launch::on_group(KernelKey::new(name, &[bits]), collective, &params, buffers).into()
}

impl Operator for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(vec![resized(&x, |last| last.checked_mul(self.ranks))?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(plan(self.name(), Collective::AllGather, &x, &x))
    }
}

impl Operator for OwnPart {
    fn name(&self) -> &'static str {
        "own_part"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(vec![resized(&x, |last| (self.ranks > 0 && last.is_multiple_of(self.ranks)).then(|| last / self.ranks))?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        let part = outputs.first().ok_or_else(|| Error::internal("own_part has no output"))?;
        Ok(plan(self.name(), Collective::OwnPart, &x, part))
    }
}
