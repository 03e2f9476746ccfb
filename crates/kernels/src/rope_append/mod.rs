//! Turns new keys by their positions and writes them into a cache, in one launch: [`crate::rope`] and then [`crate::kv_append`], the same bits.
//!
//! `cache[…, h, p_t, :] = rope(rows[…, t, h, :], p_t)` with `p = positions`. Each new row is read once and written once; the turned rows never go to
//! memory by themselves. Order, rounding and error are those of the two operators: a turned element is rounded to the rows' type, then to the
//! cache's.
//!
//! Positions of one sequence must differ from each other. A position outside the cache is an error; on a CPU nothing is written then.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, AttributeInfo, Description, Launch, Operator, Plan, Port, TensorInfo,
    attention::View,
    elementwise::{self, Operand, Space},
    kv_append::{self, KvAppend, Params},
    math,
    metal::{self, metal_file, params},
    required, rope,
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    math::METAL,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    View::METAL,
    Params::METAL,
    TurnedRows::METAL,
    metal_file!("rope_append/rope_append.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "rope_append").with_refusal(kv_append::REFUSAL);

/// Appends turned keys to a cache in place.
///
/// Inputs: `cache`, `rows` and `positions` as for [`KvAppend`], and `frequencies [rotary_dim / 2]` as for [`Rope`](rope::Rope); the elements of a row
/// from `rotary_dim` on are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct RopeAppend {
    /// Pairs are neighbours instead of half of `rotary_dim` apart.
    pub interleaved: bool,
}

params! {
    /// What the kernel gets besides its buffers.
    struct TurnedRows {
        /// Where the rows come from and go to.
        pub append: Params,
        /// Pairs that rotate.
        pub half_dim: u32,
        /// Whether pairs are neighbours.
        pub interleaved: u32,
    }
}

impl RopeAppend {
    fn params(&self, inputs: &[Option<TensorInfo>]) -> Result<TurnedRows> {
        let append = KvAppend.params(inputs)?;
        let frequencies = required(inputs, 3, "frequencies")?;
        let half_dim = match **frequencies.shape() {
            [half] if frequencies.dtype == DType::F32 => rope::check_half(half, append.width as usize)?,
            _ => {
                let found = format!("{} {}", frequencies.dtype, frequencies.shape());
                return Err(Error::invalid_argument(format!("frequencies are {found}: f32 [rotary_dim / 2] expected")));
            }
        };
        Ok(TurnedRows { append, half_dim, interleaved: self.interleaved.into() })
    }
}

impl Operator for RopeAppend {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.params(inputs).map(|_| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let params = self.params(inputs)?;
        let (cache, rows) = (required(inputs, 0, "cache")?.dtype, required(inputs, 1, "rows")?.dtype);
        let frequencies = (Parameter::read("frequencies", DType::F32), Argument::Input(3));
        let buffers = kv_append::buffers(rows, cache).into_iter().chain([frequencies]);
        let launch = Launch::new(KernelKey::new("rope_append", &[rows, cache]), cpu::twin(rows, cache)?, &params, buffers);
        let threads = (params.append.width as u32 - params.half_dim).next_multiple_of(32).min(256);
        Ok(launch.over(params.append.grid(), Extent::linear(threads)).with_metal(METAL).into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "rope_append",
    summary: "turns new keys by their positions and writes them into a cache, in place: rope and kv_append in one",
    inputs: {
        const ALL: [Port; 4] = {
            let [cache, rows, positions] = kv_append::INPUTS;
            [cache, rows, positions, rope::FREQUENCIES]
        };
        &ALL
    },
    outputs: kv_append::OUTPUTS,
    attributes: {
        const ALL: [AttributeInfo; 1] = [rope::INTERLEAVED];
        &ALL
    },
    build: |a| Ok(Box::new(RopeAppend { interleaved: a.flag("interleaved")? })),
}];
