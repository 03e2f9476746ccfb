//! The naive reference: one index at a time.

use elinvar_core::{DType, Layout};

use super::{Concat, Copy, Expand, Pad, Reshape, Slice, Split, Transpose, Trilu, view::View};
use crate::{
    Operator,
    conformance::case::{Bound, Case, HostTensor},
    elementwise::check::{Viewed, layout, view},
};

fn counted(dtype: DType, dims: &[usize]) -> HostTensor {
    HostTensor::random(dtype, dims, 0.0, 120.0, dims.len() as u64)
}

fn copied(operator: impl Operator + 'static, x: HostTensor, seen: Layout) -> Case {
    Case::new(operator, [Some(x)], Bound::EXACT, move |inputs| vec![view(&inputs[0], &seen)])
}

fn viewed(dtype: DType, dims: &[usize], operator: impl View + 'static) -> Case {
    let seen = operator.view(&layout(dims)).unwrap_or_else(|e| unreachable!("{e}"));
    copied(operator, counted(dtype, dims), seen)
}

fn permuted(dtype: DType, dims: &[usize], perm: &[isize]) -> Case {
    viewed(dtype, dims, Transpose { perm: Some(perm.to_vec()) })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, &dtype) in DType::ALL.iter().enumerate() {
        cases.push(viewed(dtype, &[100 + i, 70], Transpose { perm: None }));
        cases.push(viewed(dtype, &[5, 9, 4], Slice { starts: vec![-1, 1], ends: vec![-100, 8], axes: Some(vec![0, 1]), steps: Some(vec![-2, 3]) }));
        cases.push(viewed(dtype, &[3, 1, 4], Expand { shape: vec![2, 1, 6, 1] }));
    }
    for perm in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        cases.push(permuted(DType::F32, &[33, 20, 47], &perm));
        cases.push(permuted(DType::I64, &[3, 65, 16], &perm));
    }
    cases.push(permuted(DType::F32, &[3, 2, 4], &[2, 0, 1]));
    cases.push(permuted(DType::U16, &[2, 3, 700, 40], &[0, 3, 1, 2]));
    cases.push(permuted(DType::U8, &[600, 517], &[1, 0]));
    cases.push(permuted(DType::F32, &[0, 4], &[1, 0]));
    cases.push(copied(Copy, counted(DType::F32, &[70_001]), layout(&[70_001])));
    cases.push(copied(Copy, counted(DType::F32, &[41]), layout(&[41])));
    cases.push(copied(Copy, counted(DType::I32, &[]), layout(&[])));
    cases.push(copied(Reshape { shape: vec![0, -1], allow_zero: false }, counted(DType::BF16, &[3, 4, 5]), layout(&[3, 4, 5])));
    let strided = layout(&[200, 90]).permute(&[1, 0]).and_then(|l| l.slice(0, 0, 45, 2)).unwrap_or_else(|e| unreachable!("{e}"));
    cases.push(copied(Viewed(Copy, vec![Some(strided)]), counted(DType::F32, &[200, 90]), strided));
    cases.push(copied(Viewed(Reshape { shape: vec![-1], allow_zero: false }, vec![Some(strided)]), counted(DType::F16, &[200, 90]), strided));
    cases.extend([-1, 1, 0].map(concat));
    cases.extend([(DType::I16, -1), (DType::F32, 0)].map(split));
    cases.extend(
        [(true, 0), (true, -2), (false, 3), (false, -9), (true, i64::MAX), (false, i64::MIN)].map(|(u, k)| trilu(DType::I64, (u, k), [3, 40, 300])),
    );
    cases.extend([[7, 3, 2], [5, 1, 9], [2, 8, 8], [1, 3, 11]].map(|dims| trilu(DType::F32, (false, 0), dims)));
    cases.push(transposed_parts());
    cases.push(pad([2, -1], [0, 3]));
    cases.push(pad([-5, 1], [-4, 1]));
    cases.push(pad([-12, 0], [20, 0]));
    cases
}

/// Three tensors, one of them empty, each value distinct.
fn concat(axis: isize) -> Case {
    let at = axis.rem_euclid(3) as usize;
    let dims = move |extent: usize| {
        let mut dims = [11, 13, 17];
        dims[at] = extent;
        dims
    };
    let extents = [1, 0, 40];
    let inputs = extents.map(|n| Some(counted(DType::F32, &dims(n))));
    Case::new(Concat { axis }, inputs, Bound::EXACT, move |inputs| {
        let [outer, inner] = [dims(0)[..at].iter().product::<usize>(), dims(0)[at + 1..].iter().product()];
        let rows = |o: usize| inputs.iter().zip(extents).flat_map(move |(x, n)| x[o * n * inner..(o + 1) * n * inner].to_vec());
        vec![(0..outer).flat_map(rows).collect()]
    })
}

fn split((dtype, axis): (DType, isize)) -> Case {
    let parts: Vec<Layout> = [(0, 4), (4, 0), (4, 7)]
        .iter()
        .map(|&(start, n)| layout(&[11, 30, 11]).slice(axis.rem_euclid(3) as usize, start, n, 1).unwrap_or_else(|e| unreachable!("{e}")))
        .collect();
    Case::new(Split { axis, sizes: Some(vec![4, 0, 7]), parts: None }, [Some(counted(dtype, &[11, 30, 11]))], Bound::EXACT, move |inputs| {
        parts.iter().map(|part| view(&inputs[0], part)).collect()
    })
}

/// Two transposed tensors side by side.
fn transposed_parts() -> Case {
    let seen = layout(&[40, 20]).permute(&[1, 0]).unwrap_or_else(|e| unreachable!("{e}"));
    let operator = Viewed(Concat { axis: 1 }, vec![Some(seen); 2]);
    let inputs = [1, 2].map(|seed| Some(HostTensor::random(DType::U16, &[40, 20], 0.0, 9999.0, seed)));
    Case::new(operator, inputs, Bound::EXACT, move |inputs| {
        let [a, b] = [view(&inputs[0], &seen), view(&inputs[1], &seen)];
        vec![a.chunks(40).zip(b.chunks(40)).flat_map(|(a, b)| [a, b].concat()).collect()]
    })
}

fn trilu(dtype: DType, (upper, k): (bool, i64), [batch, rows, columns]: [usize; 3]) -> Case {
    Case::new(Trilu { upper, k }, [Some(counted(dtype, &[batch, rows, columns]))], Bound::EXACT, move |inputs| {
        let keep = |at: usize| {
            let (row, column) = ((at / columns % rows) as i128, (at % columns) as i128);
            if upper { column - row >= i128::from(k) } else { column - row <= i128::from(k) }
        };
        vec![inputs[0].iter().enumerate().map(|(at, &x)| if keep(at) { x } else { 0.0 }).collect()]
    })
}

fn pad(before: [isize; 2], after: [isize; 2]) -> Case {
    let (x, [m, n]) = (counted(DType::F16, &[11, 70]), [11, 70]);
    let (rows, columns) = (m + before[0] + after[0], n + before[1] + after[1]);
    let operator = Pad { before: before.to_vec(), after: after.to_vec(), value: (-2.5).into() };
    Case::new(operator, [Some(x)], Bound::EXACT, move |inputs| {
        let at = |row: isize, column: isize| {
            let (row, column) = (row - before[0], column - before[1]);
            if (0..m).contains(&row) && (0..n).contains(&column) { inputs[0][(row * n + column) as usize] } else { -2.5 }
        };
        vec![(0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).map(|(row, column)| at(row, column)).collect()]
    })
}
