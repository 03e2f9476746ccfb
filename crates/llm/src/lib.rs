//! Language models of the Llama family on any device of Elinvar.

mod config;
mod estimate;
mod files;
mod generation;
mod model;
mod sampling;
mod text;
mod weights;

pub use config::{Architecture, Config, GenerationConfig, Rope};
pub use estimate::MemoryEstimate;
pub use files::ModelFiles;
pub use generation::{Chat, Event, Finish, Generated, GenerationOptions, Generator, Listener, Statistics, end_tokens};
pub use model::{Logits, Model, Session};
pub use sampling::{Sampler, Sampling};
pub use text::{ChatOptions, ChatTemplate, Message, StopMatcher, Stopped, TextStream, Tokenizer};
pub use weights::{Weight, Weights};
