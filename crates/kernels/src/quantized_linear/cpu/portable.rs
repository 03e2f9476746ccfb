//! One chunk after another, for every target: the definition that the other levels are held to.

use super::{
    COLUMNS,
    integers::{Rows, place},
    product::tree,
};
use crate::{
    quantized::{
        CHUNK,
        format::Blocks,
        packed::{PackedRow, Places},
    },
    quantized_linear::SUMS,
};

pub(super) fn multiply<F: Blocks>(x: &Rows, row_bytes: usize, weights: &[u8], products: &mut [[f32; COLUMNS]]) {
    let Some(places) = Places::of::<F>(x.chunks) else { return };
    for (column, bytes) in weights.chunks_exact(row_bytes.max(1)).enumerate() {
        for (row, products) in products.iter_mut().enumerate() {
            products[column] = product::<F>(PackedRow { bytes, places }, x, row);
        }
    }
}

fn product<F: Blocks>(weight: PackedRow<'_>, x: &Rows, row: usize) -> f32 {
    let mut sums = [0.0f32; SUMS];
    for index in 0..x.chunks {
        let (octet, chunk) = (&x.octet(index / SUMS)[row], index % SUMS);
        let q = octet.words();
        let (integers, shared) = (weight.fields::<F>(index).map(|field| F::FIELDS.integer(field)), weight.scales::<F>(index));
        let (sum, scale) = (&mut sums[chunk], octet.scales[chunk]);
        for group in 0..CHUNK / F::GROUP {
            let product: i32 =
                (group * F::GROUP..(group + 1) * F::GROUP).map(|j| i32::from(integers[j]) * i32::from(q[place(j)][chunk][j % 16 / 2])).sum();
            *sum = (shared.scale[group] * scale).mul_add(product as f32, *sum);
            if F::OFFSETS {
                *sum = (shared.offset[group] * scale).mul_add(octet.totals[group][chunk], *sum);
            }
        }
    }
    tree(sums)
}
