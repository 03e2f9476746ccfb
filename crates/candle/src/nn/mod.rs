//! Modules in place of those of `candle_nn`, with the same constructors: they forward through Elinvar's fused operators, and gradients flow through them.
//!
//! In a model that says `use candle_nn::{RmsNorm, rms_norm}`, say `use elinvar_candle::nn::{RmsNorm, rms_norm}`; or wrap modules that are there, which
//! [`From`] does.

mod attention;
mod lora;
mod norm;

pub use attention::{Attention, AttentionConfig, attention};
pub use lora::{LoraLinear, lora_linear};
pub use norm::{LayerNorm, RmsNorm, layer_norm, layer_norm_no_bias, rms_norm};
