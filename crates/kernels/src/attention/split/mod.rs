//! Attention of few queries on tensor cores: CUDA kernels for compute capability 8.0 and later, of fast precision.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter, Result};

use super::{
    Inputs, Params, gpu,
    scoring::{MaskView, ScoreParams, View},
    tensor_cores::{SCORING, defines, is_plain},
};
use crate::{
    Argument, Launch, Plan, Precision,
    collective::DeliveryFiles,
    cuda::{CLUSTERS, COPIES, CudaArchitecture, CudaForm, CudaSource, INSTRUCTIONS, LAUNCHES, NUMBERS},
    metal::{self, metal_file, params},
};

/// The files of all of these kernels.
const COMMON: [MetalFile; 8] = [NUMBERS, View::METAL, MaskView::METAL, ScoreParams::METAL, Params::METAL, SplitParams::METAL, SCORING, LAUNCHES];

/// What puts the results of the parts of the keys together: another launch, or their thread blocks themselves, a cluster of four or eight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Together {
    ByLaunch,
    InFour,
    InEight,
}

/// Warps of a thread block, thread blocks of a cluster, and the files of the kernels' text that know them. Twelve warps of 144 registers fit a multiprocessor, with
/// registers left for those of combine.cu. In a cluster of four a warp has one step ([`Split::new`]).
struct Form {
    warps: u64,
    cluster: Option<u64>,
    constants: MetalFile,
    end: MetalFile,
}

macro_rules! form {
    ($warps:literal) => {
        Form {
            warps: $warps,
            cluster: None,
            constants: MetalFile {
                name: "attention/split/warps",
                text: concat!("constexpr int WARPS = ", $warps, ";\nconstexpr bool ONE_STEP = false;\n#define REGISTERS 144\n"),
            },
            end: metal_file!("attention/split/two_pass.cu"),
        }
    };
    ($warps:literal, $cluster:literal) => {
        Form {
            warps: $warps,
            cluster: Some($cluster),
            constants: MetalFile {
                name: concat!("attention/split/cluster", $cluster),
                text: concat!(
                    "constexpr int WARPS = ",
                    $warps,
                    ", PARTS = ",
                    $cluster,
                    ";\nconstexpr bool ONE_STEP = PARTS == 4;\n#define REGISTERS 128\n"
                ),
            },
            end: metal_file!("attention/split/cluster.cu"),
        }
    };
}

impl Together {
    /// Fewer and larger thread blocks leave a cluster less to combine.
    const fn form(self) -> Form {
        match self {
            Self::ByLaunch => form!(6),
            Self::InFour => form!(4, 4),
            Self::InEight => form!(4, 8),
        }
    }

    /// The files of kernels that work on parts of the keys, before those of one.
    pub(super) const fn files<const N: usize>(self, delivery: DeliveryFiles) -> [MetalFile; N] {
        let form = self.form();
        let own = [form.constants, metal_file!("attention/split/step.cu"), metal_file!("attention/split/part.cu"), form.end];
        metal::joined(&[&COMMON, delivery.outbox, &[INSTRUCTIONS, COPIES, CLUSTERS], &own])
    }

    const fn split<const FILES: usize, const N: usize>(self, delivery: DeliveryFiles) -> [MetalFile; N] {
        metal::joined(&[&self.files::<FILES>(delivery), &[AttentionSplitParams::METAL, metal_file!("attention/split/split.cu")]])
    }
}

/// Of each [`Together`], in order, and the same that deliver.
const SPLIT: [[&[MetalFile]; 3]; 2] = [
    [
        &Together::ByLaunch.split::<16, 18>(DeliveryFiles::ALONE),
        &Together::InFour.split::<16, 18>(DeliveryFiles::ALONE),
        &Together::InEight.split::<16, 18>(DeliveryFiles::ALONE),
    ],
    [
        &Together::ByLaunch.split::<18, 20>(DeliveryFiles::DELIVERING),
        &Together::InFour.split::<18, 20>(DeliveryFiles::DELIVERING),
        &Together::InEight.split::<18, 20>(DeliveryFiles::DELIVERING),
    ],
];
const fn combine<const N: usize>(delivery: DeliveryFiles) -> [MetalFile; N] {
    metal::joined(&[&COMMON, delivery.outbox, &[AttentionSplitParams::METAL, metal_file!("attention/split/combine.cu")]])
}
const COMBINE: [&[MetalFile]; 2] = [&combine::<11>(DeliveryFiles::ALONE), &combine::<13>(DeliveryFiles::DELIVERING)];

const ARCHITECTURE: CudaArchitecture = CudaArchitecture::From(80);

params! {
    /// How keys are split.
    pub(crate) struct SplitParams {
        /// Query heads for each key head.
        pub group: u32,
        /// Parts of the keys.
        pub parts: u32,
    }
}

params! {
    /// What the kernels get besides their buffers.
    pub(super) struct AttentionSplitParams {
        /// Attention.
        pub attention: Params,
        /// Its parts.
        pub split: SplitParams,
    }
}

/// Rows of a tile, as in step.cu, and warps of kernels that leave their parts to another launch that a multiprocessor has at once, by their registers.
const ROWS: u64 = 8;
const RESIDENT: u64 = 12;

/// Keys of a step, as in step.cu.
const STEP: u64 = 16;

/// Threads that combine, as in combine.cu.
const COMBINING: u32 = 128;

/// The most elements of a head's keys that the few thread blocks of a cluster take in less time than many and a second launch (measured on an H200: 576 keys
/// of 64 elements faster, of 128 as fast, 1024 of 128 slower).
const CLUSTER_ELEMENTS: u64 = 80 << 10;

/// Attention whose keys are split: into as many parts as the GPU has room for at once, or few of them into those of a cluster.
pub(super) struct Split<'a> {
    params: &'a Params,
    inputs: Inputs,
    defines: &'static [(&'static str, &'static str)],
    tiles: u64,
    together: Together,
    pub(super) block: SplitParams,
}

impl<'a> Split<'a> {
    /// Where the kernels serve.
    pub(super) fn new(params: &'a Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Result<Option<Self>> {
        let s = &params.score;
        let (tiles, heads) = ((s.queries * s.group() as u64).div_ceil(ROWS), s.kv_heads * s.batch);
        // Four blocks take these keys in one step of each warp.
        let is_of_four = s.keys <= 4 * STEP * Together::InFour.form().warps;
        let together = match CudaArchitecture::CLUSTERED.is_of(device) && s.keys * s.width <= CLUSTER_ELEMENTS {
            true if is_of_four => Together::InFour,
            true => Together::InEight,
            false => Together::ByLaunch,
        };
        let Form { warps, cluster, .. } = together.form();
        let is_split = if cluster.is_some() { tiles * heads <= gpu::BUSY } else { gpu::is_split(params, tiles * heads) };
        let serves = precision.is_fast() && ARCHITECTURE.is_of(device) && is_plain(params) && is_split;
        let Some(defines) = defines([inputs.q.dtype, inputs.k.dtype, inputs.q.dtype], s.width).filter(|_| serves && tiles * heads > 0) else {
            return Ok(None);
        };
        gpu::check_extents(params, device)?;
        let room = RESIDENT / warps * device.compute_units as u64 / (tiles * heads);
        let parts = cluster.unwrap_or_else(|| fewest_parts(s.keys, room.max(1), STEP * warps));
        Ok(Some(Self { params, inputs, defines, tiles, together, block: SplitParams { group: s.group() as u32, parts: parts as u32 } }))
    }

    /// The launch of a kernel, of these files for each [`Together`], and of those that deliver, for each part, with `memory` bytes beside those of part.cu; and, where the parts are no
    /// cluster, the one that combines what it leaves in its last buffer.
    pub(super) fn plan<P: bytemuck::NoUninit>(
        &self,
        [files, delivering]: [[&'static [MetalFile]; 3]; 2],
        source: CudaSource,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
        memory: usize,
    ) -> Plan {
        let s = &self.params.score;
        let (parts, width, rows) = (u64::from(self.block.parts), s.width, self.params.rows());
        let y = (Parameter::write("y", self.inputs.q.dtype), Argument::Output(0));
        let Form { warps, cluster, .. } = self.together.form();
        let left = match cluster {
            Some(_) => y.clone(),
            None => (Parameter::write("found", DType::F32), Argument::Scratch(0)),
        };
        let own = 16 * 32 * (width / 32) + 4 * (warps * ROWS * (2 + width + 4) + ROWS + width);
        let delivering = cluster.map(|_| delivering[self.together as usize]);
        let source = CudaSource { files: files[self.together as usize], delivering, ..source };
        // And what the blocks of a cluster send to each other: of each part bases, sums and its share of the elements; a barrier.
        let received = cluster.map_or(0, |parts| 4 * parts * ROWS * (2 + width / parts) + 16);
        let memory = (own + received) as usize + memory;
        let split = self.launch(source, params, buffers.into_iter().chain([left])).with_threadgroup_memory(memory);
        let split = split.over(Extent([parts as u32, self.tiles as u32, (s.kv_heads * s.batch) as u32]), Extent::linear(32 * warps as u32));
        if cluster.is_some() {
            return split.into();
        }
        let found = (Parameter::read("found", DType::F32), Argument::Scratch(0));
        let block = AttentionSplitParams { attention: *self.params, split: self.block };
        let [files, delivering] = COMBINE;
        let source = CudaSource { files, delivering: Some(delivering), ..self.source("attention_combine_fast") };
        let combine = self.launch(source, &block, [found, y]);
        let combine = combine.over(Extent([(width / 32) as u32, rows as u32, 1]), Extent::linear(COMBINING));
        // Sums, and states of two numbers.
        Plan { launches: vec![split, combine], scratch: vec![(4 * rows * parts * (width + 2)) as usize] }
    }

    /// An instance of a kernel that may begin before the launches ahead have ended, without its files.
    pub(super) fn source(&self, entry: &'static str) -> CudaSource {
        let architecture = if self.together.form().cluster.is_some() { CudaArchitecture::CLUSTERED } else { ARCHITECTURE };
        CudaSource { overlaps: true, ..CudaSource::new(&[], entry, self.defines, architecture) }
    }

    fn launch<P: bytemuck::NoUninit>(&self, source: CudaSource, params: &P, buffers: impl IntoIterator<Item = (Parameter, Argument)>) -> Launch {
        let key = KernelKey::new(source.entry, &[self.inputs.q.dtype, self.inputs.k.dtype]).with("width", self.params.score.width as u32);
        let key = self.together.form().cluster.into_iter().fold(key, |key, cluster| key.with("cluster", cluster as u32));
        Launch::on_cuda(key, CudaForm::Source(source), params, buffers)
    }
}

/// The fewest parts of `keys` whose warps take no more steps than with as many parts as there is `room` for: more would end no sooner, and leave more to combine.
/// A part's warps take a step each of every `turn` keys.
fn fewest_parts(keys: u64, room: u64, turn: u64) -> u64 {
    keys.div_ceil(turn * keys.div_ceil(turn * room))
}

/// The launches, where the kernels serve.
pub(super) fn plan(params: &Params, inputs: Inputs, precision: Precision, device: &DeviceProperties) -> Result<Option<Plan>> {
    let Some(split) = Split::new(params, inputs, precision, device)? else { return Ok(None) };
    let [q, prefetched @ ..] = inputs.buffers();
    let prefetched = prefetched.map(|(parameter, argument)| (parameter.prefetched(), argument));
    let block = AttentionSplitParams { attention: *params, split: split.block };
    Ok(Some(split.plan(SPLIT, split.source("attention_split_fast"), &block, [q].into_iter().chain(prefetched), 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_parts_take_no_more_turns() {
        assert_eq!([1024, 2048, 4096, 8192, 65536].map(|keys| fewest_parts(keys, 33, 96)), [11, 22, 22, 29, 33]);
        for (keys, room) in (1..=5000).step_by(7).flat_map(|keys| [1, 2, 33, 264].map(|room| (keys, room))) {
            let (parts, turns) = (fewest_parts(keys, room, 96), |parts: u64| keys.div_ceil(parts).div_ceil(96));
            assert!(parts <= room && turns(parts) == turns(room), "{keys} keys, room for {room}: {parts}");
            assert!(parts == 1 || turns(parts - 1) > turns(room), "{keys} keys, room for {room}: {parts} are not the fewest");
        }
    }
}
