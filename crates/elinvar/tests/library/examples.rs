//! The examples that show how the library is used.

#[path = "../../examples/atlas_program.rs"]
mod atlas_program;
#[path = "../../examples/fused_chain.rs"]
mod fused_chain;
#[cfg(target_os = "linux")]
#[path = "../../examples/metal_demo.rs"]
mod metal_demo;
#[path = "../../examples/softmax_into.rs"]
mod softmax_into;
#[path = "../../examples/training.rs"]
mod training;

#[test]
fn examples_run() {
    atlas_program::main().unwrap();
    fused_chain::main().unwrap();
    #[cfg(target_os = "linux")]
    metal_demo::main().unwrap();
    softmax_into::main().unwrap();
    training::main().unwrap();
}
