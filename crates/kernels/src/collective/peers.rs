//! The gathering of parts across GPUs that reach each other's memory.

use elinvar_core::{DType, Error, Extent, KernelKey, MetalFile, Parameter, Result};

use super::{
    CollectiveParams,
    delivery::{OpenParams, ROW_SLOTS, SLOT_ELEMENTS, SLOTS},
    push::{RESULT_BYTES, WHOLES},
};
use crate::{
    Argument, Launch,
    cuda::{CudaArchitecture, CudaForm, CudaSource, LAUNCHES, NUMBERS},
    metal::{metal_file, params},
};

params! {
    struct GatherParams {
        /// Of a rank's part.
        pub bytes: u64,
        /// Bytes of a row of it.
        pub width: u64,
        pub rank: u32,
        pub ranks: u32,
        /// Bytes that are moved at once.
        pub unit: u64,
    }
}

/// Bytes of the memory in which a rank gets flags, words and rows of others: they write it. Zeros at first, then [opened](super::Delivery::opening).
pub const INBOX_BYTES: usize =
    3 * 4096 + MARKING * 2 * MOST_RANKS * 16 * THREADS + 4 * ROW_SLOTS * SLOT_ELEMENTS + 2 * MOST_RANKS * RESULT_BYTES as usize;

/// The most ranks that exchange parts so.
pub const MOST_RANKS: usize = 8;

const THREADS: usize = 512;
const BLOCKS: usize = 128;

/// Blocks that exchange marked words, two for each thread.
const MARKING: usize = 64;
const MARKED: usize = 8 * THREADS;

pub(super) const INBOX: MetalFile = metal_file!("collective/inbox.cu");

/// What is wrong where a rank sends nothing.
pub(super) const SILENT: &str = "a rank of the group sent nothing for 10 seconds, so its GPU failed or is held up: start again without it";

const SOURCE: CudaSource = CudaSource {
    rejection: Some(SILENT),
    ..CudaSource::new(
        &[NUMBERS, SLOTS, GatherParams::METAL, INBOX, metal_file!("collective/all_gather.cu")],
        "all_gather",
        &[],
        CudaArchitecture::From(70),
    )
};
const WORDS: CudaSource = CudaSource {
    files: &[NUMBERS, LAUNCHES, SLOTS, GatherParams::METAL, INBOX, metal_file!("collective/all_gather_words.cu")],
    entry: "all_gather_words",
    overlaps: true,
    ..SOURCE
};

/// What makes an inbox ready: see [`Delivery`](super::Delivery).
pub(super) const OPENING: CudaSource = CudaSource::new(
    &[NUMBERS, SLOTS, INBOX, OpenParams::METAL, metal_file!("collective/open_inbox.cu")],
    "open_inbox",
    &[],
    CudaArchitecture::From(70),
);

pub(super) const INBOXES: [&str; MOST_RANKS] = ["inbox0", "inbox1", "inbox2", "inbox3", "inbox4", "inbox5", "inbox6", "inbox7"];

type Buffer = (Parameter, Argument);

/// Memory of each rank, the operator's inputs from `first` on.
pub(super) fn of_ranks(names: [&'static str; MOST_RANKS], first: usize, ranks: usize) -> impl Iterator<Item = Buffer> {
    names.into_iter().enumerate().map(move |(rank, name)| {
        let argument = if rank < ranks { Argument::Input(first + rank) } else { Argument::Absent };
        (Parameter { optional: true, ..Parameter::update(name, DType::U8) }, argument)
    })
}

impl CollectiveParams {
    /// The launch that gathers the parts of all processes' GPUs, one after the other. Input: the part of this one; output: the whole.
    pub fn among_processes() -> Launch {
        let buffers = [(Parameter::read("part", DType::U8), Argument::Input(0)), (Parameter::write("whole", DType::U8), Argument::Output(0))];
        Launch::on_cuda(KernelKey::new("all_gather_processes", &[]), CudaForm::AllGather, &(), buffers)
    }

    /// The launch of a rank that gathers the parts of all. Inputs: its part, then the inboxes of all ranks, its own among them, and the wholes of all, as it
    /// reaches them; output: its own whole.
    ///
    /// # Errors
    /// More bytes than can be addressed.
    pub fn among_peers(&self, dtype: DType, ranks: usize, rank: usize) -> Result<Launch> {
        let (bytes, width) = (self.part()?.shape().elements() * dtype.size(), self.width as usize * dtype.size());
        let unit = [16, 4, 1].into_iter().find(|unit| width.is_multiple_of(*unit)).unwrap_or(1);
        let params = GatherParams { bytes: bytes as u64, width: width as u64, rank: rank as u32, ranks: ranks as u32, unit: unit as u64 };
        let part = [(Parameter::read("part", DType::U8), Argument::Input(0))];
        let inboxes = of_ranks(INBOXES, 1, ranks);
        let (source, blocks, buffers): (_, _, Vec<Buffer>) = if width % 4 == 0 && bytes <= MARKING * MARKED {
            let whole = (Parameter::write("whole", DType::U8), Argument::Output(0));
            (WORDS, bytes.div_ceil(MARKED), part.into_iter().chain(inboxes).chain([whole]).collect())
        } else {
            if u32::try_from(bytes / unit).is_err() {
                return Err(Error::unsupported(format!("a part of {bytes} bytes in units of {unit}: too many to gather at once")));
            }
            let mut wholes: Vec<_> = of_ranks(WHOLES, 1 + ranks, ranks).collect();
            wholes[rank].1 = Argument::Output(0);
            (SOURCE, bytes.div_ceil(unit * THREADS).min(BLOCKS), part.into_iter().chain(inboxes).chain(wholes).collect())
        };
        let launch = Launch::on_cuda(KernelKey::new(source.entry, &[]), CudaForm::Source(source), &params, buffers);
        Ok(launch.over(Extent::linear(blocks as u32), Extent::linear(THREADS as u32)))
    }
}
