//! The operators as functions and as methods, on what all of the process share.

use candle_core::{Result, Tensor, shape::Dim};
use elinvar::kernels::attention::Scoring;

use crate::ops::Ops;

macro_rules! fused {
    ($($(#[$meta:meta])* $name:ident $(<$D:ident: $bound:ident>)? ($x:ident $(, $argument:ident: $type:ty)*) => $operator:ident;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Errors
            #[doc = concat!("As [`Ops::", stringify!($operator), "`], on [`Ops::shared`].")]
            pub fn $name $(<$D: $bound>)? ($x: &Tensor $(, $argument: $type)*) -> Result<Tensor> {
                Ops::shared()?.$operator($x $(, $argument)*)
            }
        )*

        /// The fused operators as methods of tensors.
        ///
        /// ```
        /// use candle_core::{D, Device, Tensor};
        /// use elinvar_candle::FusedOps;
        ///
        /// let x = Tensor::new(&[[0f32, 0.0], [1.0, 1.0]], &Device::Cpu)?;
        /// assert_eq!(x.softmax_fused(D::Minus1)?.to_vec2::<f32>()?, [[0.5, 0.5], [0.5, 0.5]]);
        /// # Ok::<(), candle_core::Error>(())
        /// ```
        pub trait FusedOps {
            $(
                $(#[$meta])*
                ///
                /// # Errors
                #[doc = concat!("As [`Ops::", stringify!($operator), "`], on [`Ops::shared`].")]
                fn $name $(<$D: $bound>)? (&self $(, $argument: $type)*) -> Result<Tensor>;
            )*
        }

        impl FusedOps for Tensor {
            $(
                fn $name $(<$D: $bound>)? (&self $(, $argument: $type)*) -> Result<Tensor> {
                    $name(self $(, $argument)*)
                }
            )*
        }
    };
}

fused! {
    /// The softmax along `dim`.
    softmax_fused<D: Dim>(x, dim: D) => softmax;
    /// The logarithm of the softmax along `dim`.
    log_softmax_fused<D: Dim>(x, dim: D) => log_softmax;
    /// RMS normalisation of rows.
    rms_norm_fused(x, weight: &Tensor, eps: f32) => rms_norm;
    /// Layer normalisation of rows.
    layer_norm_fused(x, weight: &Tensor, bias: Option<&Tensor>, eps: f32) => layer_norm;
    /// Rotary position embedding, pairs half a head apart.
    rope_fused(x, cos: &Tensor, sin: &Tensor) => rope;
    /// Rotary position embedding, pairs of neighbours.
    rope_i_fused(x, cos: &Tensor, sin: &Tensor) => rope_i;
    /// `silu(gate) * up`, where the tensor is the gate.
    silu_mul_fused(gate, up: &Tensor) => silu_mul;
    /// Attention of the queries that the tensor holds.
    attention_fused(q, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, scoring: &Scoring) => attention;
    /// A linear layer with a low-rank adapter.
    lora_forward_fused(x, weight: &Tensor, a: &Tensor, b: &Tensor, bias: Option<&Tensor>, scale: f32) => lora_forward;
    /// The mean cross-entropy of logits with classes.
    cross_entropy_fused(logits, targets: &Tensor) => cross_entropy;
}
