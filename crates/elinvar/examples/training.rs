//! Two layers taught a sum of sines: a step of training recorded once, and replayed: `cargo run -p elinvar --example training`.

use elinvar::{Executor, Result, Tensor};

struct Model {
    layers: [(Tensor, Tensor); 2],
}

impl Model {
    fn new(executor: &Executor) -> Result<Self> {
        let layer = |inputs: usize, outputs: usize, seed: u64| -> Result<(Tensor, Tensor)> {
            let weight = (executor.randn(&[outputs, inputs], seed)? * 0.7)?;
            Ok((weight.requires_grad()?, executor.randn(&[outputs], seed + 1)?.requires_grad()?))
        };
        Ok(Self { layers: [layer(2, 32, 1)?, layer(32, 1, 3)?] })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [(weight, bias), (last, shift)] = &self.layers;
        x.linear(weight, Some(bias))?.tanh()?.linear(last, Some(shift))
    }

    /// A step of gradient descent; gives the loss before it.
    fn step(&self, x: &Tensor, y: &Tensor, rate: f64) -> Result<Tensor> {
        let loss = self.forward(x)?.sub(y)?.square()?.mean(&[], false)?;
        let gradients = loss.backward()?;
        for parameter in self.layers.iter().flat_map(|(weight, bias)| [weight, bias]) {
            parameter.detach().sub_(&(gradients.of(parameter)? * rate)?)?;
        }
        Ok(loss.detach())
    }
}

/// Trains, and compares the loss at the end with that at the start.
///
/// # Errors
/// A device that failed.
pub fn main() -> Result<()> {
    let executor = Executor::new_auto()?;
    let x = executor.randn(&[256, 2], 5)?;
    let y = x.sin()?.sum(&[1], true)?;
    let model = Model::new(&executor)?;
    let (step, loss) = executor.record(|recorded| model.step(&x.on(recorded)?, &y, 0.1))?;
    let mut losses = Vec::new();
    for number in 0..=200 {
        executor.replay(&step)?;
        losses.push(loss.item::<f32>()?);
        if number % 50 == 0 {
            println!("step {number}: loss {:.4}", losses[number]);
        }
    }
    assert!(losses[200] < 0.1 * losses[0], "it learns: {} to {}", losses[0], losses[200]);
    Ok(())
}
