//! A low-rank adapter trained with Candle's optimiser, through Elinvar's operators: `cargo run --release -p elinvar-candle --example adapter`.
//!
//! A frozen layer and its norm classify points by the wrong rule; the adapter alone learns the right one.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use elinvar_candle::{
    FusedOps,
    nn::{RmsNorm, lora_linear},
};

const WIDTH: usize = 64;
const CLASSES: usize = 10;
const POINTS: usize = 512;

fn main() -> Result<()> {
    let device = Device::Cpu;
    let random = |dims: &[usize]| Tensor::randn(0f32, 1.0, dims, &device);

    // What is there already: none of it is a variable.
    let norm = RmsNorm::new(Tensor::ones(WIDTH, DType::F32, &device)?, 1e-5);
    let base = Linear::new((random(&[CLASSES, WIDTH])? * 0.1)?, None);

    // What is trained: the adapter's two matrices.
    let variables = VarMap::new();
    let layer = lora_linear(base, 8, 16.0, VarBuilder::from_varmap(&variables, DType::F32, &device))?;

    let rule = random(&[WIDTH, CLASSES])?;
    let points = random(&[POINTS, WIDTH])?;
    let classes = points.matmul(&rule)?.argmax(D::Minus1)?;

    let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW { lr: 0.01, ..Default::default() })?;
    for step in 0..=200 {
        let logits = layer.forward(&norm.forward(&points)?)?;
        let loss = logits.cross_entropy_fused(&classes)?;
        if step % 50 == 0 {
            let right = logits.argmax(D::Minus1)?.eq(&classes)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
            println!("step {step:3}: loss {:.4}, {:.1} % right", loss.to_scalar::<f32>()?, 100.0 * right);
        }
        optimizer.backward_step(&loss)?;
    }
    Ok(())
}
