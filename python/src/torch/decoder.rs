//! A language model over the parameters of one of PyTorch's: no weight is copied.

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar::{Executor, HostMemory, Precision, Result, Tensor, Turns};
use elinvar_llm::{Config, Model, Session};
use pyo3::{Bound, Py, PyAny, PyResult, Python, pyclass, pymethods};

use super::{Call, Described, Place, known};
use crate::errors::raise;

/// Generates text with the parameters of a model of PyTorch's.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchDecoder {
    turns: Turns,
    session: Mutex<Session>,
}

/// Memory of a tensor on the CPU, which it holds.
struct Held {
    described: Described,
    _tensor: Py<PyAny>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self.described.address {
            0 => &[],
            // SAFETY: the tensor is held, and so is its memory.
            address => unsafe { slice::from_raw_parts(address as *const u8, self.described.bytes()) },
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
        let described = tensors.iter().map(|(name, tensor)| Ok((name.clone(), call.describe(tensor)?, tensor.clone().unbind())));
        let described = described.collect::<PyResult<Vec<_>>>()?;
        let place = call.place(py)?;
        let make = || -> Result<Self> {
            let precision = if strict { Precision::Strict } else { Precision::Fast };
            let known = known(place)?;
            let turns = &known.turns;
            let turns = turns.with(turns.executor().with_precision(precision));
            let session = turns.take(|executor| {
                let tensors = described.into_iter().map(|(name, described, tensor)| Ok((name, adopt(executor, place, described, tensor)?)));
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

fn adopt(executor: &Executor, place: Place, described: Described, tensor: Py<PyAny>) -> Result<Tensor> {
    match place {
        Place::Cpu => executor.adopt_strided(described.dtype, &described.layout, HostMemory::new(Arc::new(Held { described, _tensor: tensor }))),
        Place::Cuda { .. } => adopt_on_gpu(executor, described, tensor),
    }
}

#[cfg(not(target_vendor = "apple"))]
fn adopt_on_gpu(executor: &Executor, described: Described, tensor: Py<PyAny>) -> Result<Tensor> {
    // SAFETY: the tensor is held, and so is its memory, which PyTorch frees in the order of the stream.
    let memory = unsafe { elinvar_cuda::CudaBackend::lend(described.address as u64, described.bytes(), true, Arc::new(tensor)) };
    executor.adopt_raw(described.dtype, &described.layout, memory)
}

#[cfg(target_vendor = "apple")]
fn adopt_on_gpu(_: &Executor, _: Described, _: Py<PyAny>) -> Result<Tensor> {
    Err(elinvar::Error::internal("a tensor of a device that is not there"))
}
