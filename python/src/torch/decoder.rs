//! A language model over the parameters of one of PyTorch's: no weight is copied.

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar::{DType, Executor, HostMemory, Layout, Precision, Result, Tensor, Turns};
use elinvar_llm::{Config, Model, Session};
use pyo3::{Bound, Py, PyAny, PyResult, Python, pyclass, pymethods};

use super::{Call, Known, Place};
use crate::errors::raise;

/// Generates text with the parameters of a model of PyTorch's.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchDecoder {
    turns: Turns,
    session: Mutex<Session>,
}

/// A tensor, which is held, and what is known of it.
struct Held {
    dtype: DType,
    layout: Layout,
    address: usize,
    _tensor: Py<PyAny>,
}

impl Held {
    fn bytes(&self) -> usize {
        self.layout.span().end * self.dtype.size()
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self.address {
            0 => &[],
            // SAFETY: the tensor, which is on the CPU, is held, and so is its memory.
            address => unsafe { slice::from_raw_parts(address as *const u8, self.bytes()) },
        }
    }
}

#[pymethods]
impl TorchDecoder {
    /// Of a configuration, the text of a `config.json`, and contiguous tensors by the names of its checkpoint, all on one device; for texts of at most
    /// `capacity` tokens. The tensors must not change while it lives.
    #[new]
    #[pyo3(signature = (config, tensors, capacity, strict=false))]
    fn new(py: Python<'_>, config: &str, tensors: Vec<(String, Bound<'_, PyAny>)>, capacity: usize, strict: bool) -> PyResult<Self> {
        let mut call = Call::default();
        call.add_all(tensors.iter().map(|(_, tensor)| Some(tensor)))?;
        let described = call.operands().map_err(raise)?.into_iter().flatten().zip(call.addresses());
        let held = |((dtype, layout), address): ((DType, Layout), &usize), tensor: Bound<'_, PyAny>| Held {
            dtype,
            layout,
            address: *address,
            _tensor: tensor.unbind(),
        };
        let tensors: Vec<_> = described.zip(tensors).map(|(described, (name, tensor))| (name, held(described, tensor))).collect();
        let place = call.place(py)?;
        let make = || -> Result<Self> {
            let precision = if strict { Precision::Strict } else { Precision::Fast };
            let known = Known::of(place)?;
            let turns = &known.turns;
            let turns = turns.with(turns.executor().with_precision(precision));
            let session = turns.take(|executor| {
                let tensors = tensors.into_iter().map(|(name, held)| Ok((name, adopt(executor, place, held)?)));
                let tensors = tensors.collect::<Result<HashMap<_, _>>>()?;
                let config = Config::parse(config)?;
                let dtype = tensors.values().next().map_or(elinvar::DType::F32, Tensor::dtype);
                Session::new(Arc::new(Model::with_tensors(executor, config, &tensors)?), capacity, dtype)
            })?;
            Ok(Self { turns, session: Mutex::new(session) })
        };
        py.detach(make).map_err(raise)
    }

    /// Whether a configuration is one that it knows, or else why not, as an exception.
    #[staticmethod]
    fn check(config: &str) -> PyResult<()> {
        Config::parse(config).map(drop).map_err(raise)
    }

    /// The most likely tokens after `prompt`, one after the other: at most `most`, up to the first of `ends`, which is the last of them.
    fn generate(&self, py: Python<'_>, prompt: Vec<u32>, most: usize, ends: Vec<u32>) -> PyResult<Vec<u32>> {
        let work = || -> Result<Vec<u32>> {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            self.turns.take(|_| {
                session.truncate(0);
                let logits = session.feed(&prompt)?;
                let best = |best: (usize, f32), (token, &logit): (usize, &f32)| if logit > best.1 { (token, logit) } else { best };
                let (first, _) = logits.iter().enumerate().fold((0, f32::NEG_INFINITY), best);
                let mut tokens = vec![first as u32];
                if most == 0 || ends.contains(&tokens[0]) {
                    tokens.truncate(most);
                    return Ok(tokens);
                }
                for token in session.greedy(tokens[0], most - 1)? {
                    let token = token?;
                    tokens.push(token);
                    if ends.contains(&token) {
                        break;
                    }
                }
                Ok(tokens)
            })
        };
        py.detach(work).map_err(raise)
    }

    /// The logits after the last token of a prompt.
    fn logits(&self, py: Python<'_>, prompt: Vec<u32>) -> PyResult<Vec<f32>> {
        let work = || {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            self.turns.take(|_| {
                session.truncate(0);
                session.feed(&prompt)
            })
        };
        py.detach(work).map_err(raise)
    }
}

fn adopt(executor: &Executor, place: Place, held: Held) -> Result<Tensor> {
    match place {
        Place::Cpu => {
            let (dtype, layout) = (held.dtype, held.layout);
            executor.adopt_strided(dtype, &layout, HostMemory::new(Arc::new(held)))
        }
        Place::Cuda { .. } => adopt_on_gpu(executor, held),
    }
}

#[cfg(not(target_vendor = "apple"))]
fn adopt_on_gpu(executor: &Executor, held: Held) -> Result<Tensor> {
    let (dtype, layout, address, bytes) = (held.dtype, held.layout, held.address as u64, held.bytes());
    // SAFETY: the tensor is held, and so is its memory, which PyTorch frees in the order of the stream.
    let memory = unsafe { elinvar_cuda::CudaBackend::lend(address, bytes, true, Arc::new(held)) };
    executor.adopt_raw(dtype, &layout, memory)
}

#[cfg(target_vendor = "apple")]
fn adopt_on_gpu(_: &Executor, _: Held) -> Result<Tensor> {
    Err(elinvar::Error::internal("a tensor of a device that is not there"))
}
