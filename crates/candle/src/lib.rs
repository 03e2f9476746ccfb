//! Elinvar's fused operators for Candle's tensors, with gradients.
//!
//! Functions ([`softmax_fused`] and so on), the same as methods of tensors ([`FusedOps`]), and modules with the names and constructors of `candle_nn`
//! ([`nn`]). Candle's backward pass goes through them: each gradient is the one that Elinvar defines for its operator.
//!
//! ```
//! use candle_core::{D, DType, Device, Var};
//! use elinvar_candle::softmax_fused;
//!
//! let x = Var::ones((2, 3), DType::F32, &Device::Cpu)?;
//! let loss = softmax_fused(&x, D::Minus1)?.sqr()?.sum_all()?;
//! assert!(loss.backward()?.get(&x).is_some());
//! # Ok::<(), candle_core::Error>(())
//! ```

mod apply;
#[cfg_attr(not(all(feature = "cuda", not(target_vendor = "apple"))), path = "no_cuda.rs")]
mod cuda;
mod fallback;
mod fused;
mod lend;
pub mod nn;
mod ops;
mod unfused;

pub use elinvar::{Executor, Precision, kernels::attention::Scoring};
pub use fallback::fallbacks;
pub use fused::{
    FusedOps, attention_fused, cross_entropy_fused, layer_norm_fused, log_softmax_fused, lora_forward_fused, rms_norm_fused, rope_fused,
    rope_i_fused, silu_mul_fused, softmax_fused,
};
pub use ops::Ops;
