//! Text: tokens to characters and back, streams of text, stop strings, chat templates.

mod chat;
pub(crate) mod gguf;
mod stop;
mod stream;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use chat::{ChatOptions, ChatTemplate, Message};
pub use stop::{StopMatcher, Stopped};
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
