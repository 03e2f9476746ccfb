//! The gathering of parts across GPUs that reach each other's memory.

use elinvar_core::{DType, Extent, KernelKey, MetalFile, Parameter, Result};

use super::CollectiveParams;
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
    }
}

/// Bytes of the memory in which a rank gets the parts of others: they write it. Zeros at first.
pub const INBOX_BYTES: usize = 4096 + 2 * BLOCKS * 2 * MOST_RANKS * PIECE;

/// The most ranks that exchange parts so.
pub const MOST_RANKS: usize = 8;

const PIECE: usize = 8192;
const BLOCKS: usize = 64;

const INBOX: MetalFile = metal_file!("collective/inbox.cu");
const SOURCE: CudaSource = CudaSource {
    files: &[NUMBERS, GatherParams::METAL, INBOX, metal_file!("collective/all_gather.cu")],
    entry: "all_gather",
    defines: &[],
    architecture: CudaArchitecture::From(70),
    overlaps: false,
    rejection: Some("a rank of the group sent nothing for 10 seconds, so its GPU failed or is held up: start again without it"),
};
const WORDS: CudaSource = CudaSource {
    files: &[NUMBERS, LAUNCHES, GatherParams::METAL, INBOX, metal_file!("collective/all_gather_words.cu")],
    entry: "all_gather_words",
    overlaps: true,
    ..SOURCE
};

impl CollectiveParams {
    /// The launch of a rank that gathers the parts of all. Inputs: its part, then the inboxes of all ranks, its own among them; output: the whole.
    ///
    /// # Errors
    /// More bytes than can be addressed.
    pub fn among_peers(&self, dtype: DType, ranks: usize, rank: usize) -> Result<Launch> {
        /// A word with its number takes eight bytes of a piece.
        const MARKED: usize = PIECE / 2;
        const NAMES: [&str; MOST_RANKS] = ["inbox0", "inbox1", "inbox2", "inbox3", "inbox4", "inbox5", "inbox6", "inbox7"];
        let (bytes, width) = (self.part()?.shape().elements() * dtype.size(), self.width as usize * dtype.size());
        let (source, piece) = if width % 4 == 0 && bytes <= BLOCKS * MARKED { (WORDS, MARKED) } else { (SOURCE, PIECE) };
        let params = GatherParams { bytes: bytes as u64, width: width as u64, rank: rank as u32, ranks: ranks as u32 };
        let inboxes = NAMES.iter().enumerate().map(|(index, name)| {
            let argument = if index < ranks { Argument::Input(1 + index) } else { Argument::Absent };
            (Parameter { optional: true, ..Parameter::update(name, DType::U8) }, argument)
        });
        let (part, whole) = ((Parameter::read("part", DType::U8), Argument::Input(0)), (Parameter::write("whole", DType::U8), Argument::Output(0)));
        let buffers = [part].into_iter().chain(inboxes).chain([whole]);
        let launch = Launch::on_cuda(KernelKey::new(source.entry, &[]), CudaForm::Source(source), &params, buffers);
        Ok(launch.over(Extent::linear(bytes.div_ceil(piece).min(BLOCKS) as u32), Extent::linear(512)))
    }
}
