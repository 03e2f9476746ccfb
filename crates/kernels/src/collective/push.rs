//! Launches that push their results to the ranks that gather them.
//!
//! A kernel that can do so has memory of all ranks as its last parameters ([`memory`]), absent where nothing is gathered, and a [`Push`] at the end of its parameter
//! block. Its text is `push.cu`.

use elinvar_core::{Binding, DType, Dispatch, Extent, KernelKey, MetalFile, Parameter};

use super::peers::{AWAIT, INBOX, INBOXES, MOST_RANKS, of_ranks};
use crate::{
    Argument, Launch,
    cuda::CudaForm,
    metal::{metal_file, params},
};

params! {
    /// What a launch pushes.
    pub struct Push {
        /// Elements of a row of its only result; zero if it cannot push that.
        pub width: u64,
        /// Its rank.
        pub rank: u32,
        /// How many ranks gather the result; zero if none does.
        pub ranks: u32,
    }
}

params! {
    struct AwaitParams {
        /// Thread blocks of each peer.
        pub blocks: u32,
        pub rank: u32,
        pub ranks: u32,
    }
}

/// The text of kernels that push, ahead of their parameter blocks.
pub(crate) const PUSHES: [MetalFile; 3] = [Push::METAL, INBOX, metal_file!("collective/push.cu")];
pub(super) const AWAITS: [MetalFile; 2] = [AwaitParams::METAL, metal_file!("collective/await_pushes.cu")];

pub(super) const WHOLES: [&str; MOST_RANKS] = ["whole0", "whole1", "whole2", "whole3", "whole4", "whole5", "whole6", "whole7"];

/// The last parameters of a kernel that pushes.
pub(crate) fn memory() -> impl Iterator<Item = (Parameter, Argument)> {
    of_ranks(INBOXES, 0, 0).chain(of_ranks(WHOLES, 0, 0))
}

impl Push {
    /// What a launch could push: a result, and elements of a row of it.
    pub fn of(launch: &Dispatch) -> Option<(&Binding, u64)> {
        let push: Self = bytemuck::pod_read_unaligned(launch.params.get(launch.params.len().checked_sub(size_of::<Self>())?..)?);
        let parameters = &launch.pipeline.source().parameters;
        let can = parameters.last().is_some_and(|last| last.name == WHOLES[MOST_RANKS - 1]) && push.width > 0;
        let mut results = parameters.iter().zip(&launch.bindings).filter(|(parameter, _)| parameter.name.starts_with('y'));
        let result = results.find_map(|(_, binding)| binding.as_ref());
        result.filter(|_| can).map(|result| (result, push.width))
    }

    /// The same launch, of a rank that pushes to the `wholes` of all ranks, as it reaches them and their `inboxes`.
    pub fn to(self, launch: &mut Dispatch, inboxes: Vec<Binding>, wholes: Vec<Binding>) {
        let first = launch.bindings.len() - 2 * MOST_RANKS;
        for (rank, (inbox, whole)) in inboxes.into_iter().zip(wholes).enumerate() {
            launch.bindings[first + rank] = Some(inbox);
            launch.bindings[first + MOST_RANKS + rank] = Some(whole);
        }
        let mut params = launch.params.to_vec();
        let end = params.len() - size_of::<Self>();
        params[end..].copy_from_slice(bytemuck::bytes_of(&self));
        launch.params = params.into();
    }

    /// The launch after one of `blocks` thread blocks that pushes: it ends when those of all ranks have pushed. Inputs: the inboxes of all ranks; output: the whole of
    /// this one.
    pub fn awaited(self, blocks: u32) -> Launch {
        let params = AwaitParams { blocks, rank: self.rank, ranks: self.ranks };
        let buffers = of_ranks(INBOXES, 0, self.ranks as usize).chain([(Parameter::update("whole", DType::U8), Argument::Output(0))]);
        let launch = Launch::on_cuda(KernelKey::new(AWAIT.entry, &[]), CudaForm::Source(AWAIT), &params, buffers);
        launch.over(Extent::linear(1), Extent::linear(32))
    }
}
