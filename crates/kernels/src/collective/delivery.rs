//! Single rows that launches deliver to the ranks of a group, in place of a launch that gathers them.
//!
//! Each rank has slots for rows in its memory, whose elements are missing at first. The launch that makes its part of a row sends each element, when it has it,
//! to the slot of the row on all ranks, its own among them; the launch that takes the row reads its own slot until no element is missing. Nothing else is exchanged,
//! and no launch stands between the two.
//!
//! The rows of a list take the slots in turn, whole turns in each list. The launch that takes a row makes the slot before missing again, which the launches ahead
//! alone have read. Elements come to that slot again from a rank that has all of the row two after this one, to which this rank gives its part when that launch has
//! ended.

use std::sync::Arc;

use elinvar_core::{Access, Binding, DType, Dispatch, Extent, KernelKey, KernelSource, Metal, MetalFile, MetalForm, NativeForm};

use super::peers::{INBOXES, MOST_RANKS, OPENING, of_ranks};
use crate::{
    Argument, Launch,
    cuda::{CudaForm, CudaSource},
    metal::{metal_file, params},
};

/// Slots of a rank.
pub const ROW_SLOTS: usize = 4;

/// Elements of the longest row that is delivered.
pub const SLOT_ELEMENTS: usize = 32768;

params! {
    /// What a launch delivers, and what is delivered to it.
    pub struct Delivery {
        /// The addresses of the slots of each rank.
        pub slots: [u64; MOST_RANKS],
        /// The address of the number, and one, of a rank of this group that sent nothing for long.
        pub lost: u64,
        /// The slot that it delivers to, if there is one of this number.
        pub to: u32,
        /// The slot that it takes its row from, if there is one of this number.
        pub from: u32,
        /// Elements of the slot before that were delivered.
        pub clear: u32,
        /// Elements that a rank delivers.
        pub width: u32,
        /// Its rank.
        pub rank: u32,
        /// How many ranks there are.
        pub ranks: u32,
    }
}

pub(super) const SLOTS: MetalFile = metal_file!("collective/slots.cu");

/// The files that kernels have for deliveries.
#[derive(Clone, Copy)]
pub(crate) struct DeliveryFiles {
    /// Of those whose result may be delivered, after the types of numbers.
    pub(crate) outbox: &'static [MetalFile],
    /// Of those that may take a row, after the order of rows.
    pub(crate) row: &'static [MetalFile],
}

impl DeliveryFiles {
    /// Where nothing is delivered.
    pub(crate) const ALONE: Self = Self { outbox: &[metal_file!("collective/alone.metal")], row: &[metal_file!("collective/given.metal")] };

    /// Where something is.
    pub(crate) const DELIVERING: Self =
        Self { outbox: &[SLOTS, Delivery::METAL, metal_file!("collective/delivery.cu")], row: &[metal_file!("collective/arriving.cu")] };
}

/// A kernel that delivers its result where another one does not, and may take a row that is delivered.
#[derive(Clone)]
pub struct Delivering {
    /// The kernel.
    pub kernel: Arc<KernelSource>,
    result: usize,
    row: Option<usize>,
}

impl Delivering {
    /// That of a kernel; none where it delivers nothing.
    pub fn of(kernel: &KernelSource) -> Option<Self> {
        let (metal, native): (_, Option<Arc<dyn NativeForm>>) = match (kernel.native(), &kernel.metal) {
            (Some(CudaForm::Source(source)), _) => {
                let native = CudaForm::Source(CudaSource { files: source.delivering?, delivering: None, ..*source });
                (kernel.metal.clone(), Some(Arc::new(native)))
            }
            (None, Some(Metal::Form(form))) => (Some(Metal::Form(MetalForm { files: form.delivering?, delivering: None, ..*form })), None),
            (Some(CudaForm::MatrixProduct | CudaForm::AllGather), _) | (None, Some(Metal::User(_)) | None) => return None,
        };
        let named = |name: &str| kernel.parameters.iter().position(|parameter| parameter.name == name && parameter.dtype == DType::F32);
        let (result, row) = (named("y0").or_else(|| named("y"))?, named("x"));
        let mut parameters = kernel.parameters.clone();
        // A threadgroup puts the row where it would have been gathered.
        if let Some(row) = row {
            parameters[row].access = Access::ReadWrite;
        }
        let key = KernelKey { operator: format!("{}_delivering", kernel.key.operator).into(), ..kernel.key.clone() };
        let params_bytes = kernel.params_bytes + size_of::<Delivery>();
        Some(Self { kernel: Arc::new(KernelSource { key, parameters, params_bytes, metal, native, host: None }), result, row })
    }

    /// Whether a launch of it delivers this, and has no other result.
    pub fn delivers(&self, launch: &Dispatch, part: &Binding) -> bool {
        let written = self.kernel.parameters.iter().zip(&launch.bindings).enumerate();
        let others = written.filter(|(index, (parameter, binding))| *index != self.result && parameter.access == Access::Write && binding.is_some());
        others.count() == 0 && launch.bindings.get(self.result).and_then(Option::as_ref).is_some_and(|result| is_same(result, part))
    }

    /// Whether a launch of it takes this as its row.
    pub fn takes(&self, launch: &Dispatch, whole: &Binding) -> bool {
        self.row.and_then(|row| launch.bindings.get(row)?.as_ref()).is_some_and(|row| is_same(row, whole))
    }
}

fn is_same(one: &Binding, other: &Binding) -> bool {
    one.overlaps(other) && (one.offset(), one.bytes()) == (other.offset(), other.bytes())
}

impl Delivery {
    /// Of a rank, whose inbox begins with the addresses that it and its peers have; nothing is delivered yet.
    pub fn between(addresses: &[u64; MOST_RANKS + 1], ranks: usize, rank: usize) -> Self {
        let [slots @ .., lost] = *addresses;
        Self { slots, lost, to: u32::MAX, from: u32::MAX, clear: 0, width: 0, rank: rank as u32, ranks: ranks as u32 }
    }

    /// Gives it to a launch of a kernel that delivers.
    pub fn give(self, launch: &mut Dispatch) {
        launch.params = [&launch.params[..], bytemuck::bytes_of(&self)].concat().into();
    }

    /// The launch by which a rank opens its inbox: all that it has in slots is missing, and its first bytes are the addresses. Inputs: the inboxes of all ranks, as
    /// it reaches them; output: its own.
    pub fn opening(ranks: usize, rank: usize) -> Launch {
        let mut inboxes: Vec<_> = of_ranks(INBOXES, 0, ranks).collect();
        inboxes[rank].1 = Argument::Output(0);
        let params = OpenParams { rank: rank as u32, ranks: ranks as u32 };
        let launch = Launch::on_cuda(KernelKey::new(OPENING.entry, &[]), CudaForm::Source(OPENING), &params, inboxes);
        launch.over(Extent::linear(64), Extent::linear(512))
    }
}

params! {
    pub(super) struct OpenParams {
        pub rank: u32,
        pub ranks: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::push::RESULT_BYTES, *};

    #[test]
    fn kernels_have_the_same_extents() {
        for (name, value) in
            [("MOST_RANKS", MOST_RANKS), ("ROW_SLOTS", ROW_SLOTS), ("SLOT_ELEMENTS", SLOT_ELEMENTS), ("RESULT_BYTES", RESULT_BYTES as usize)]
        {
            assert!(SLOTS.text.contains(&format!("{name} = {value};")), "{name}");
        }
    }
}
