//! Language models of the Llama family on any device of Elinvar.

mod config;
mod files;
mod model;
mod text;
mod weights;

pub use config::{Architecture, Config, GenerationConfig, Rope};
pub use files::ModelFiles;
pub use model::{Logits, Model, Session};
pub use text::{ChatOptions, ChatTemplate, Message, StopMatcher, Stopped, TextStream, Tokenizer};
pub use weights::{Weight, Weights};
