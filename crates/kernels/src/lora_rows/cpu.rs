//! The CPU kernel: `x Aᵀ` of neighbouring rows of one adapter together, then columns of y by vectors, in the order of one dot product for each.

use elinvar_core::{Error, HostArguments, Result};

use super::{LAYERS, OF_LAYER, Params, operands::AT};
use crate::{
    matmul::{
        cpu::{
            operand::{Target, Values, ValuesMut},
            plan::Summation,
            product::product,
        },
        matrix,
    },
    parallel::{Shared, for_each},
    simd,
};

/// Columns of a task.
const COLUMNS: usize = 512;
/// Columns whose sums are made together.
const TOGETHER: usize = 16;
/// Slots of a lane, and lanes of a dot product.
const SLOTS: usize = 8;
const LANES: usize = 32;

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    (0..LAYERS).filter(|&layer| params.n[layer] > 0).try_for_each(|layer| run_layer(arguments, &params, layer))
}

fn run_layer(arguments: &mut HostArguments<'_>, params: &Params, layer: usize) -> Result<()> {
    let [m, n, k, r, count] = [params.m, params.n[layer], params.k, params.r[layer], params.count[layer]].map(|extent| extent as usize);
    let at = |first: usize| first + layer * OF_LAYER;
    let (base, x): (&[f32], &[f32]) = (arguments.input(at(AT.base0))?, arguments.input(AT.x)?);
    let (a, b): (&[f32], &[f32]) = (arguments.input(at(AT.a0))?, arguments.input(at(AT.b0))?);
    let (scales, ranks): (&[f32], &[i32]) = (arguments.input(at(AT.scales0))?, arguments.input(at(AT.ranks0))?);
    let adapters: &[i32] = arguments.input(AT.adapters)?;
    let y: &mut [f32] = arguments.output(AT.y0 + layer)?;
    let adapter = |row: usize| {
        let number = usize::try_from(adapters[row]).ok().filter(|&number| number < count)?;
        let rank = (ranks[number].max(0) as usize).min(r);
        (rank > 0).then_some((number, rank))
    };
    let mut projected = vec![0.0; m * r];
    let mut first = 0;
    for rows in adapters[..m].chunk_by(|one, other| one == other).map(<[i32]>::len) {
        if let Some((number, rank)) = adapter(first) {
            let x = matrix(Values::F32(x), first * k, [rows, k], [k as isize, 1])?;
            let a = matrix(Values::F32(a), number * r * k, [rank, k], [k as isize, 1])?;
            let target = Target::new(ValuesMut::F32(&mut projected[first * r..][..rows * r]), [rows, rank], r);
            product(Summation::Strict, x, a, &target.ok_or_else(|| Error::internal("rows of x Aᵀ are too short"))?);
        }
        first += rows;
    }
    let (parts, y) = (n.div_ceil(COLUMNS), Shared::new(y));
    for_each(m * parts, COLUMNS * r.max(1), |index| {
        let (row, start) = (index / parts, index % parts * COLUMNS);
        let width = COLUMNS.min(n - start);
        // SAFETY: these elements belong to this task.
        let y = unsafe { y.part(row * n + start, width) };
        y.copy_from_slice(&base[row * n + start..][..width]);
        if let Some((number, rank)) = adapter(row) {
            add(&projected[row * r..][..rank], &b[number * r * n + start..][..(rank - 1) * n + width], n, scales[number], y);
        }
    });
    Ok(())
}

simd! {
    /// Adds `scale · terms · factors` to y, where row `i` of the factors begins at `i · step`.
    fn add(terms: &[f32], factors: &[f32], step: usize, scale: f32, y: &mut [f32]) {
        for (part, y) in y.chunks_mut(TOGETHER).enumerate() {
            let mut lanes = [[0.0f32; TOGETHER]; LANES];
            for (lane, sum) in lanes.iter_mut().enumerate().take(terms.len().div_ceil(SLOTS)) {
                let mut slots = [[0.0f32; TOGETHER]; SLOTS];
                for k in (lane * SLOTS..terms.len()).step_by(LANES * SLOTS) {
                    for (i, slot) in slots.iter_mut().enumerate().take(terms.len() - k) {
                        let factors = &factors[(k + i) * step + part * TOGETHER..];
                        match factors.first_chunk::<TOGETHER>().filter(|_| y.len() == TOGETHER) {
                            Some(factors) => slot.iter_mut().zip(factors).for_each(|(slot, factor)| *slot = terms[k + i].mul_add(*factor, *slot)),
                            None => slot.iter_mut().zip(factors).for_each(|(slot, factor)| *slot = terms[k + i].mul_add(*factor, *slot)),
                        }
                    }
                }
                for half in [4, 2, 1] {
                    // Neighbours: those of twice the distance come together in the next turn.
                    for i in 0..half {
                        for column in 0..TOGETHER {
                            slots[i][column] = slots[2 * i][column] + slots[2 * i + 1][column];
                        }
                    }
                }
                *sum = slots[0];
            }
            for half in [16, 8, 4, 2, 1] {
                for lane in 0..half {
                    for column in 0..TOGETHER {
                        lanes[lane][column] += lanes[lane + half][column];
                    }
                }
            }
            y.iter_mut().zip(lanes[0]).for_each(|(y, sum)| *y += sum * scale);
        }
    }
}
