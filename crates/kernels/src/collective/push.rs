//! Launches that push their results to the ranks that gather them.
//!
//! A kernel that can do so has [files](CudaSource::pushing) for it, among them [`PEERS`], and a [`Push`] at the end of its parameter block. Its result is the first
//! buffer that it writes. Where it pushes, the inboxes and the wholes of all ranks are its last parameters, and it ends when the results of all ranks are there.
//! Large results go straight to the wholes, and thread blocks count themselves with all ranks when theirs are there. Small ones go to slots ([`EXCHANGE`]), where each
//! thread waits for what it exchanges: nothing is counted, and no fence waits for stores.

use std::sync::Arc;

use elinvar_core::{Binding, DType, Dispatch, KernelSource, MetalFile};

use super::{
    delivery::SLOTS,
    peers::{INBOX, INBOXES, MOST_RANKS, SILENT, of_ranks},
};
use crate::{
    cuda::{CudaForm, CudaSource},
    metal::{metal_file, params},
};

params! {
    /// What a launch pushes.
    pub struct Push {
        /// Elements of a row of its result; zero where none is pushed: where it has several, or one that cannot be exchanged through slots.
        pub width: u64,
        /// Its rank.
        pub rank: u32,
        /// How many ranks gather the result; zero where none does.
        pub ranks: u32,
    }
}

/// Bytes of the largest part of a rank that is [exchanged](EXCHANGE).
pub(super) const RESULT_BYTES: u64 = 1_048_576;

/// What kernels that can push have before their parameter blocks: where they do not, and where they do.
pub(crate) const PEERS: [[MetalFile; 5]; 2] = [
    peers(MetalFile { name: "collective/alone", text: "#define PUSHES 0\n" }),
    peers(MetalFile { name: "collective/pushes", text: "#define PUSHES 1\n" }),
];

const fn peers(pushes: MetalFile) -> [MetalFile; 5] {
    [pushes, Push::METAL, SLOTS, INBOX, metal_file!("collective/push.cu")]
}

/// What those have after [`PEERS`] that push small results: of up to [`RESULT_BYTES`], in rows of a multiple of sixteen bytes.
pub(crate) const EXCHANGE: MetalFile = metal_file!("collective/exchange.cu");

pub(super) const WHOLES: [&str; MOST_RANKS] = ["whole0", "whole1", "whole2", "whole3", "whole4", "whole5", "whole6", "whole7"];

/// A kernel that pushes its results where another one does not.
pub struct Pushing {
    /// The kernel.
    pub kernel: Arc<KernelSource>,
    /// Elements of a row of its result.
    pub width: u64,
    result: usize,
}

impl Pushing {
    /// That of a kernel, for a launch of it with these parameters; none where the launch cannot push.
    pub fn of(kernel: &KernelSource, params: &[u8]) -> Option<Self> {
        let Some(CudaForm::Source(source @ CudaSource { pushing: Some(files), rejection: None, .. })) = kernel.native() else { return None };
        let push: Push = bytemuck::pod_read_unaligned(params.get(params.len().checked_sub(size_of::<Push>())?..)?);
        if push.width == 0 {
            return None;
        }
        let result = kernel.parameters.iter().position(|parameter| parameter.access.writes())?;
        let (inboxes, wholes) = (of_ranks(INBOXES, 0, 0), of_ranks(WHOLES, 0, 0));
        let parameters = kernel.parameters.iter().cloned().chain(inboxes.chain(wholes).map(|(parameter, _)| parameter)).collect();
        let native = CudaForm::Source(CudaSource { files, pushing: None, rejection: Some(SILENT), ..*source });
        let kernel = KernelSource { key: kernel.key.clone().with("pushes", 1u32), parameters, native: Some(Arc::new(native)), ..kernel.clone() };
        Some(Self { kernel: Arc::new(kernel), width: push.width, result })
    }

    /// What a launch of it would push.
    pub fn result<'a>(&self, launch: &'a Dispatch) -> Option<&'a Binding> {
        launch.bindings.get(self.result)?.as_ref()
    }
}

impl Push {
    /// That of rows of so many elements, as plans have it: a group says to whom they go.
    pub(crate) const fn of_rows(width: u64) -> Self {
        Self { width, rank: 0, ranks: 0 }
    }

    /// That of so many rows that are [exchanged](EXCHANGE): of none where they cannot be.
    pub(crate) fn of_few(rows: u64, width: u64, dtype: DType) -> Self {
        let bytes = width * dtype.size() as u64;
        Self::of_rows(if bytes.is_multiple_of(16) && rows * bytes <= RESULT_BYTES { width } else { 0 })
    }

    /// What a launch that pushes is given: with its parameters and its bindings come the inboxes and the wholes of all ranks, as this one reaches them.
    pub fn give(self, launch: &mut Dispatch, inboxes: &[Binding], wholes: &[Binding]) {
        for of_ranks in [inboxes, wholes] {
            launch.bindings.extend((0..MOST_RANKS).map(|rank| of_ranks.get(rank).cloned()));
        }
        let mut params = launch.params.to_vec();
        let start = params.len() - size_of::<Self>();
        params[start..].copy_from_slice(bytemuck::bytes_of(&self));
        launch.params = params.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exchanged_is_small_and_has_rows_of_whole_units() {
        for (rows, width, dtype, pushed) in [
            (32, 2048, DType::F32, 2048),
            (64, 7168, DType::BF16, 7168),
            (64, 7172, DType::BF16, 0),
            (9, 6, DType::F32, 0),
            (128, 2048, DType::F32, 2048),
            (129, 2048, DType::F32, 0),
            (9, 64_128, DType::F32, 0),
        ] {
            assert_eq!(Push::of_few(rows, width, dtype).width, pushed, "{rows} rows of {width} {dtype}");
        }
    }
}
