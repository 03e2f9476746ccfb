//! Embeddings of texts by encoders of BERT's family (MiniLM, E5, BGE).

mod layer;
mod packed;
mod pooling;
#[cfg(test)]
mod tests;
mod vectors;

use std::{borrow::Cow, collections::BTreeSet, ops::ControlFlow};

use elinvar::{DType, Error, Executor, Result, Tensor};

use crate::{
    config::EncoderConfig,
    files::ModelFiles,
    model::{Matrix, Source, Stored},
    text::Tokenizer,
    weights::Weights,
};
use layer::{Layer, Norm, joined};
use packed::{Run, batches, runs};
pub use pooling::Pooling;
pub use vectors::Embeddings;

/// How texts become vectors; [`Encoder::options`] has what the model's files ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// How a text's vector is made of its tokens'.
    pub pooling: Pooling,
    /// Divide each vector by its length.
    pub normalize: bool,
    /// Cut longer texts to this many tokens, those around the text included.
    pub max_tokens: usize,
    /// Put this before each text: E5, for one, was trained with `query: ` and `passage: `.
    pub prefix: String,
}

/// A model that gives vectors for texts: its weights on a device, its tokenizer, and how it pools.
///
/// Texts of a batch lie packed, without padding. In strict precision each has the bits that it has alone, on every device.
///
/// ```no_run
/// use elinvar::Executor;
/// use elinvar_llm::{Encoder, ModelFiles};
///
/// let encoder = Encoder::open(&Executor::new_auto()?, &ModelFiles::open("models/all-MiniLM-L6-v2")?)?;
/// let vectors = encoder.embed(&["a cat", "a kitten"], encoder.options())?;
/// let cosine: f32 = vectors.row(0).iter().zip(vectors.row(1)).map(|(a, b)| a * b).sum();
/// # Ok::<(), elinvar::Error>(())
/// ```
pub struct Encoder {
    executor: Executor,
    config: EncoderConfig,
    tokenizer: Tokenizer,
    options: EmbeddingOptions,
    /// Tokens before and after each text.
    around: [Vec<u32>; 2],
    words: Matrix,
    positions: Matrix,
    /// The vector of the first type of tokens: texts have no second part.
    kind: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
}

/// What checkpoints name the tensors by, where the encoder is a part.
const PREFIX: &str = "bert.";

impl Encoder {
    /// Opens an encoder: `config.json`, `model.safetensors`, `tokenizer.json` and, where they are there, sentence-transformers' `modules.json`,
    /// `1_Pooling/config.json`, `sentence_bert_config.json` and `config_sentence_transformers.json`; or a GGUF file of the architecture `bert`. Without
    /// `modules.json` vectors are means, not normalised; those of a GGUF file are normalised, as llama.cpp has it.
    ///
    /// # Errors
    /// A model that is no encoder of BERT's family, files that are missing or damaged, weights that do not fit the configuration, or out of memory.
    pub fn open(executor: &Executor, files: &ModelFiles) -> Result<Self> {
        let config = EncoderConfig::read(files)?;
        let options = pooling::options(files, config.max_positions)?;
        let (tokenizer, weights) = (Tokenizer::open(files)?, Weights::open(files)?);
        let around = around(&tokenizer).map_err(|e| e.context(files))?;
        let prefix = if weights.names().any(|name| name.starts_with(PREFIX)) { PREFIX } else { "" };
        let mut source = Stored { executor, weights: &weights, prefix, used: BTreeSet::new() };
        let encoder = Self::load(executor, config, tokenizer, options, around, &mut source)?;
        // Heads of other tasks, and positions that are stored though they are 0, 1, 2, …
        let is_redundant = |name: &str| match name.strip_prefix(prefix) {
            Some(name) => name.starts_with("pooler.") || name == "embeddings.position_ids" || prefix.is_empty() && name.starts_with("cls."),
            None => true,
        };
        match weights.names().find(|&name| !source.used.contains(name) && !is_redundant(name)) {
            Some(name) => Err(Error::invalid_data(format!(
                "tensor '{name}' has no place in the configuration: weights and configuration do not belong together"
            ))),
            None => Ok(encoder),
        }
    }

    /// Whether these are the files of an encoder that is supported.
    pub fn is_in(files: &ModelFiles) -> bool {
        EncoderConfig::read(files).is_ok()
    }

    fn load(
        executor: &Executor,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        options: EmbeddingOptions,
        around: [Vec<u32>; 2],
        source: &mut dyn Source,
    ) -> Result<Self> {
        let mut table = |name: &str, rows: usize| source.matrix(&format!("embeddings.{name}_embeddings.weight"), [rows, config.hidden_size]);
        let (words, positions) = (table("word", config.vocab_size)?, table("position", config.max_positions)?);
        let kind = table("token_type", config.types)?.decoded()?.slice(0, 0, 1, 1)?;
        let norm = Norm::load(&config, source, "embeddings.LayerNorm")?;
        let layers = (0..config.layers).map(|index| Layer::load(&config, index, source)).collect::<Result<Vec<_>>>()?;
        Ok(Self { executor: executor.clone(), config, tokenizer, options, around, words, positions, kind, norm, layers })
    }

    /// The executor it lives on.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Elements of a vector.
    pub fn dimensions(&self) -> usize {
        self.config.hidden_size
    }

    /// Tokens of a text at most, those around it included.
    pub fn max_tokens(&self) -> usize {
        self.config.max_positions
    }

    /// What the model's files ask for.
    pub fn options(&self) -> &EmbeddingOptions {
        &self.options
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// A text without tokens, a limit of tokens that the model does not have, out of memory, or a failed device.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T], options: &EmbeddingOptions) -> Result<Embeddings> {
        self.embed_with(texts, options, &mut |_| ControlFlow::Continue(())).map(|(embeddings, _)| embeddings)
    }

    /// As [`Encoder::embed`], reporting to `progress` how many of the texts have their vectors, after each batch: where that breaks, the others are zeros. Also
    /// whether it went on to the end.
    ///
    /// # Errors
    /// As [`Encoder::embed`].
    pub fn embed_with<T: AsRef<str>>(
        &self,
        texts: &[T],
        options: &EmbeddingOptions,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(Embeddings, ControlFlow<()>)> {
        let mut truncated = vec![false; texts.len()];
        let tokens = texts.iter().zip(&mut truncated).enumerate();
        let tokens = tokens.map(|(index, (text, truncated))| {
            let (tokens, is_cut) = self.tokens(text.as_ref(), options).map_err(|e| e.context(format!("text {index}")))?;
            *truncated = is_cut;
            Ok(tokens)
        });
        let tokens = tokens.collect::<Result<Vec<_>>>()?;
        let lengths: Vec<_> = tokens.iter().map(Vec::len).collect();
        let (order, parts) = batches(&lengths, self.batch_tokens());
        let width = self.dimensions();
        let mut values = vec![0f32; texts.len() * width];
        let mut flow = ControlFlow::Continue(());
        for part in parts {
            let done = part.end;
            let order = &order[part];
            let batch: Vec<_> = order.iter().map(|&text| &tokens[text][..]).collect();
            for (&text, vector) in order.iter().zip(self.vectors(&batch, options)?.chunks_exact(width)) {
                values[text * width..][..width].copy_from_slice(vector);
            }
            flow = progress(done);
            if flow.is_break() {
                break;
            }
        }
        Ok((Embeddings { values, width, tokens: lengths, truncated }, flow))
    }

    /// Tokens that are computed together, at most, unless one text has more.
    fn batch_tokens(&self) -> usize {
        if self.executor.properties().simd_width > 1 { 1 << 14 } else { 1 << 10 }
    }

    /// A text's tokens, and whether it was cut.
    fn tokens(&self, text: &str, options: &EmbeddingOptions) -> Result<(Vec<u32>, bool)> {
        let (most, [before, after]) = (self.max_tokens(), &self.around);
        let least = before.len() + after.len() + 1;
        if !(least..=most).contains(&options.max_tokens) {
            return Err(Error::invalid_argument(format!("a limit of {} tokens: the model takes {least} to {most}", options.max_tokens)));
        }
        let text = if options.prefix.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(format!("{}{text}", options.prefix)) };
        let mut tokens = self.tokenizer.encode(&text)?;
        if tokens.len() < least {
            return Err(Error::invalid_argument("the text is empty: no token is left of it"));
        }
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= self.config.vocab_size) {
            return Err(Error::invalid_data(format!("token id {token} is outside the vocabulary of {} tokens", self.config.vocab_size)));
        }
        let is_cut = tokens.len() > options.max_tokens;
        if is_cut {
            tokens.truncate(options.max_tokens - after.len());
            tokens.extend(after);
        }
        Ok((tokens, is_cut))
    }

    /// The vectors of texts that are computed together, of which those of one length follow each other.
    fn vectors(&self, texts: &[&[u32]], options: &EmbeddingOptions) -> Result<Vec<f32>> {
        let ids: Vec<i32> = texts.iter().flat_map(|text| text.iter().map(|token| token.cast_signed())).collect();
        let places: Vec<i32> = texts.iter().flat_map(|text| (0..).take(text.len())).collect();
        let runs = runs(texts.iter().map(|text| text.len()));
        let vector = |values: &[i32]| self.executor.tensor(&[values.len()], values);
        let (ids, places) = (vector(&ids)?, vector(&places)?);
        let vectors = self.executor.fuse(|recorded| {
            let x = self.forward(&ids.on(recorded)?, &places.on(recorded)?, &runs)?;
            let pooled = joined(runs.iter().map(|run| options.pooling.pool(&x, run)).collect::<Result<_>>()?)?;
            if options.normalize { pooled.div(&pooled.norm(&[-1], true)?.clamp(MIN_LENGTH, f64::INFINITY)?) } else { Ok(pooled) }
        })?;
        vectors.to_vec()
    }

    /// The vectors `[tokens, hidden]` of tokens after the last layer.
    fn forward(&self, ids: &Tensor, places: &Tensor, runs: &[Run]) -> Result<Tensor> {
        let words = self.words.gather(ids)?.add(&self.kind.cast(DType::F32)?)?;
        let x = self.norm.apply(&words.add(&self.positions.gather(places)?)?);
        self.layers.iter().fold(x, |x, layer| layer.forward(&x?, runs))
    }
}

/// What a vector's length counts as at least, as in PyTorch.
const MIN_LENGTH: f64 = 1e-12;

/// What the tokenizer puts before and after a text.
fn around(tokenizer: &Tokenizer) -> Result<[Vec<u32>; 2]> {
    let (nothing, letter) = (tokenizer.encode("")?, tokenizer.encode("a")?);
    let before = nothing.iter().zip(&letter).take_while(|(a, b)| a == b).count();
    let (before, after) = nothing.split_at(before);
    if letter.ends_with(after) && letter.len() > nothing.len() {
        return Ok([before.to_vec(), after.to_vec()]);
    }
    Err(Error::invalid_data("the tokenizer gives no tokens for a text, or other tokens around it than around none"))
}
