//! Sides of a comparison, timed in turn.

use std::{error::Error, time::Instant};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One way to do the work of a line.
pub struct Side<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Operations or bytes of one run.
    amount: f64,
}

impl<'a> Side<'a> {
    pub fn new(name: impl Into<String>, amount: f64, run: impl FnMut() -> Result<()> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run), amount }
    }
}

/// Times all sides in turn and prints a line for each: median and best rate, and the ratio of the first side's median to this one's.
pub fn compare(title: &str, unit: &str, rounds: usize, mut sides: Vec<Side<'_>>) -> Result<()> {
    let mut rates = vec![Vec::new(); sides.len()];
    for round in 0..=rounds {
        for (side, rates) in sides.iter_mut().zip(&mut rates) {
            let start = Instant::now();
            (side.run)()?;
            let rate = side.amount / start.elapsed().as_secs_f64() / 1e9;
            // The first round warms up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    println!("{title}");
    let mut first = None;
    for (side, rates) in sides.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
        let own = *first.get_or_insert(median);
        println!("  {:<22} {median:8.1} {unit}  best {best:8.1}   elinvar / this {:5.2}", side.name, own / median);
    }
    Ok(())
}

/// Refuses results that differ by more than `tolerance`, relative to the largest.
pub fn verify(what: &str, ours: &[f32], theirs: &[f32], tolerance: f32) -> Result<()> {
    let largest = theirs.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = ours.iter().zip(theirs).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    if ours.len() != theirs.len() || worst.is_nan() || worst > tolerance * largest {
        return Err(format!("{what}: results differ by {worst} of {largest}").into());
    }
    Ok(())
}
