//! Encoders.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use elinvar_llm::{EmbeddingOptions, Encoder, ModelFiles, Weights};
use pyo3::{Bound, PyAny, PyResult, Python, pyclass, pymethods, types::PyByteArray};

use super::{device::Place, tokenizer::NativeTokenizer};
use crate::{errors::raise, fork, work::wait_for};

/// An encoder.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct NativeEncoder {
    encoder: Arc<Encoder>,
    /// The process that its threads belong to.
    generation: u32,
}

/// Ends work when it is dropped, as a signal's exception does.
struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[pymethods]
impl NativeEncoder {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, device: &Bound<'_, PyAny>, precision: Option<&str>, threads: Option<usize>) -> PyResult<Self> {
        let place = Place::read(device, precision, threads)?;
        let (files, bytes) = wait_for(py, move || {
            let files = ModelFiles::open(path)?;
            let bytes = Weights::open(&files)?.bytes();
            Ok((files, bytes))
        })?;
        let executor = place.open(py, bytes)?;
        wait_for(py, move || Encoder::open(&executor, &files)).map(|encoder| Self { encoder: Arc::new(encoder), generation: fork::generation() })
    }

    #[getter]
    fn tokenizer(&self) -> NativeTokenizer {
        NativeTokenizer(self.encoder.tokenizer().clone())
    }

    #[getter]
    fn device(&self) -> String {
        self.encoder.executor().properties().name.clone()
    }

    #[getter]
    fn dimensions(&self) -> usize {
        self.encoder.dimensions()
    }

    #[getter]
    fn max_tokens(&self) -> usize {
        self.encoder.max_tokens()
    }

    /// Pooling, normalisation, limit of tokens and prefix that the model's files ask for.
    #[getter]
    fn options(&self) -> (String, bool, usize, &str) {
        let EmbeddingOptions { pooling, normalize, max_tokens, prefix } = self.encoder.options();
        (pooling.to_string(), *normalize, *max_tokens, prefix)
    }

    /// The vectors of texts, f32 `[texts, dimensions]`, how many tokens each is made of, and which were cut.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        pooling: Option<&str>,
        normalize: Option<bool>,
        max_tokens: Option<usize>,
        prefix: Option<String>,
    ) -> PyResult<(Bound<'py, PyByteArray>, Vec<usize>, Vec<bool>)> {
        fork::check(self.generation)?;
        let defaults = self.encoder.options();
        let options = EmbeddingOptions {
            pooling: pooling.map_or(Ok(defaults.pooling), str::parse).map_err(raise)?,
            normalize: normalize.unwrap_or(defaults.normalize),
            max_tokens: max_tokens.unwrap_or(defaults.max_tokens),
            prefix: prefix.unwrap_or_else(|| defaults.prefix.clone()),
        };
        let (encoder, is_over) = (self.encoder.clone(), OnDrop(Arc::default()));
        let is_cancelled = is_over.0.clone();
        let (vectors, _) = wait_for(py, move || {
            encoder.embed_with(&texts, &options, &mut |_| {
                if is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })?;
        Ok((PyByteArray::new(py, bytemuck::cast_slice(vectors.values())), vectors.tokens().to_vec(), vectors.truncated().to_vec()))
    }
}
