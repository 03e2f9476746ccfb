//! An HTTP server with the interface of OpenAI's, on [`elinvar_llm::Engine`].
//!
//! [`Served`] is a model with its engine on a thread of its own, and [`Models`] are those that requests may name. [`Job`] is a request that has been read; the
//! server and whoever runs requests from a file ([`run`]) compute it alike. [`Server`] listens.

mod answer;
mod api;
mod embedder;
mod grammar;
mod http;
mod metrics;
mod models;
mod sse;
mod tools;
mod worker;

pub use api::{ApiError, Endpoint, Job, Reply, run, run_blocking};
pub use embedder::Embedder;
pub use grammar::{Grammar, GrammarMask, Grammars};
pub use http::{Server, ServerOptions};
pub use models::{Models, Served};
