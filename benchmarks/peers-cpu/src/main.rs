//! Times Elinvar's CPU device against `gemm`, `candle` and the machine's ceilings; see the README.

mod decoding;
mod harness;
mod products;
mod rows;

use harness::{Bench, Options, Result};

fn main() -> Result<()> {
    let bench = Bench::new(Options::read(std::env::args().skip(1))?)?;
    println!("{}, {} threads", bench.executor.properties().name, bench.threads);
    products::matmul(&bench)?;
    products::matvec(&bench)?;
    rows::rows(&bench)?;
    decoding::decoding(&bench)
}
