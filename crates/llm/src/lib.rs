//! Language models (Llama, Mistral, Qwen, Gemma, Phi-3) on any device of Elinvar.
//!
//! A folder as Hugging Face lays it out ([`ModelFiles`]) gives a [`Config`], [`Weights`] and a [`Tokenizer`]. A [`Model`] adopts the weights where
//! they are mapped; a [`Session`] is one text with its KV cache, extended by recorded steps; a [`Generator`] continues prompts, and a [`Chat`] holds a
//! conversation.
//!
//! ```no_run
//! use std::{ops::ControlFlow, sync::Arc};
//!
//! use elinvar::{DType, Executor};
//! use elinvar_llm::{Config, Event, GenerationConfig, GenerationOptions, Generator, Model, ModelFiles, Session, Tokenizer, Weights, end_tokens};
//!
//! let files = ModelFiles::open("models/shakespeare")?;
//! let (config, tokenizer) = (Config::read(&files)?, Tokenizer::open(&files)?);
//! let ends = end_tokens(&config, &GenerationConfig::read(&files)?, &tokenizer);
//! let model = Arc::new(Model::new(&Executor::new_auto()?, config, &Weights::open(&files)?)?);
//! let prompt = tokenizer.encode("ROMEO:")?;
//! let mut generator = Generator::new(Session::new(model, 512, DType::F32)?, tokenizer, ends)?;
//! generator.generate(&prompt, &GenerationOptions::default(), &mut |event| {
//!     if let Event::Text(text) = event {
//!         print!("{text}");
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), elinvar::Error>(())
//! ```

mod adapter;
mod config;
mod convert;
mod encoder;
mod engine;
mod estimate;
mod files;
mod generation;
pub mod gguf;
mod map;
mod model;
mod perplexity;
mod sampling;
mod text;
mod training;
mod weights;
mod whole;

pub use adapter::{Adapter, AdapterConfig, Adapters, Pattern, Targets, fuse};
pub use config::{Activation, Architecture, Config, Divisors, GenerationConfig, Groups, Rope};
pub use convert::{GgufOutput, GroupedOutput, Importance, Target, is_grouped, write_checkpoint};
pub use encoder::{EmbeddingOptions, Embeddings, Encoder, Pooling};
pub use engine::{Constraint, DraftSource, Drafts, Engine, EngineOptions, EngineStatistics, Logprobs, Output, Request, RequestId, TokenMask};
pub use estimate::MemoryEstimate;
pub use files::ModelFiles;
pub use generation::{Chat, Event, Finish, Generated, GenerationOptions, Generator, Listener, Statistics, end_tokens};
pub use model::{CacheType, Checkpointing, Decoding, Logits, Model, Session};
pub use perplexity::Perplexity;
pub use sampling::{Sampler, Sampling};
pub use text::{ChatOptions, ChatTemplate, Message, StopMatcher, Stopped, TextStream, Tokenizer};
pub use training::{
    Batch, DataOptions, Dataset, Decay, Loss, Optimizer, Rewards, Sample, Schedule, Trained, Trainer, TrainerOptions, TrainingEvent, TrainingFolder,
    TrainingMemory, TrainingOptions, evaluate, train,
};
pub use weights::{Weight, WeightType, Weights};
