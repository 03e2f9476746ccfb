//! Reads the Metal libraries that Apple's compiler makes (`.metallib`): which functions they hold, what each takes, and each one's LLVM bitcode.
//!
//! ```
//! let message = elinvar_metallib::Library::read("x.metallib", b"no library").unwrap_err().to_string();
//! assert_eq!(message, "x.metallib holds no Metal library: no `MTLB` is in it");
//! ```
//!
//! A file may hold several libraries, as applications and shared libraries do. What is read is not trusted: a file that contradicts itself is an error,
//! and the memory that reading takes is bounded by a fixed multiple of the file.

pub mod air;
mod bitstream;
pub mod clang;
mod container;
mod description;
mod kernels;
mod metadata;

pub use container::{ConstantType, Function, FunctionConstant, FunctionKind, Library, is_compiled};
pub use description::{Access, Argument, ArgumentKind, Description, describe};
pub use kernels::{CompiledLibrary, Kernels, disassembly};
