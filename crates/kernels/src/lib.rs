//! The operator library: for every operator one folder with its documentation, parameters and launch plan (`mod.rs`), its CPU kernel
//! (`cpu.rs`) and its naive f64 reference (`oracle.rs`).
//!
//! An operator is a value: a struct of its attributes that implements [`Operator`]. From the types of its inputs it infers those of its
//! outputs, and plans its launches as a pure function of shapes, data types and [`DeviceProperties`](elinvar_core::DeviceProperties).
//! [`registry`] names every operator, its inputs and attributes as data.
//!
//! # The canonical order of operations
//!
//! Strict results are the same bits on every device, for any number of threads and any batch, because every operator documents one
//! order of operations and all its forms follow it: see [`order`] for rows and dot products, [`dot`] for products with 16-bit operands, and [`math`] for the functions.

pub mod dot;
pub mod float;
pub mod order;
pub mod parallel;
pub mod registry;
pub mod rows;

pub use elinvar_math::{self as math, functions, simd};

mod attributes;
mod chain;
mod definition;
mod description;
mod elementwise;
mod gradient;
mod launch;
mod metal;
mod operator;
mod signature;

pub mod attention;
pub mod attention_scores;
pub mod binary;
pub mod cast;
pub mod collective;
pub mod compare;
pub mod copy;
pub mod cross_entropy;
pub mod cuda;
pub mod cumsum;
pub mod dequantize;
pub mod fill;
pub mod gather;
pub mod kv_append;
pub mod layer_norm;
pub mod lora;
pub mod lora_rows;
pub mod matmul;
pub mod norm_gradient;
pub mod projection;
pub mod quantized;
pub mod quantized_linear;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod rope_append;
pub mod sample;
pub mod sample_argmax;
pub mod scatter;
pub mod softmax;
pub mod swiglu;
pub mod ternary;
pub mod top_k;
pub mod unary;
pub mod weighted_sum;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

pub use attributes::{AttributeInfo, AttributeKind, Attributes};
pub use elementwise::{ElementOp, scalar::Scalar};
pub use launch::{Argument, Launch, Plan, encode};
pub use operator::{Definition, Operand, Operator, Precision, Rounding, Source, Step, TensorInfo, plan_for};
pub use registry::{Description, Port};
