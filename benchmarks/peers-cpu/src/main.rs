//! Times Elinvar's CPU operators against `gemm`, `candle` and the machine's ceilings; see the README.

mod ceilings;
mod harness;
mod products;
mod rows;

use std::num::NonZeroUsize;

use elinvar::Executor;

fn main() -> harness::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let rounds = std::env::args().find_map(|a| a.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(15);
    let wanted = |title: &str| words.is_empty() || words.iter().any(|w| title.contains(w.as_str()));
    let threads = rayon::current_num_threads();
    let executor = Executor::new_cpu(NonZeroUsize::new(threads).ok_or("no threads")?)?;
    println!("{}, {threads} threads", products::processor());
    products::matmul(&executor, threads, rounds, wanted)?;
    products::matvec(&executor, rounds, wanted)?;
    rows::rows(&executor, rounds, wanted)
}
