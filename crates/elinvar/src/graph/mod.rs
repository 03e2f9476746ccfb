//! What was asked for, as data, between the tensors' methods and a command list.
//!
//! A [`Recorder`] writes nodes down. When it ends, passes change the graph: [`matching`] puts fused operators in place of those they stand for, [`elements`]
//! makes one program of operators on elements that follow each other. [`encode`] gives values their memory and makes the commands. What was asked for
//! is done, also where nothing reads the result, unless something that was kept stands in its place ([`unused`]).

mod element;
mod elements;
mod encode;
mod matching;
mod node;
mod parts;
mod record;
mod recorder;
mod recording;
mod rounded;
mod rules;
mod shared;
#[cfg(test)]
mod tests;
mod unused;
mod value;
mod workspace;

pub use recorder::Recorder;
pub use recording::Recording;
pub(crate) use shared::{Shared, TensorMemory, binding};
pub(crate) use value::Action;
pub use workspace::Workspace;
