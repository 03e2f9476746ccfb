//! Visiting elements in contiguous blocks, in parallel.

use elinvar_core::{Element, MAX_RANK, Result};

use super::{Operand, Space, stream};
use crate::parallel::for_each_part;

/// Elements of a block that is gathered or streamed: a few of them fit L1 together.
const BLOCK: usize = 1024;

/// Elements of a task. A multiple of [`BLOCK`], so that tasks write whole cache lines.
pub(crate) const TASK: usize = 32 * BLOCK;

/// Rows of at least this many elements are visited in place; shorter ones are gathered, many to a block.
const LONG_ROW: usize = 512;

/// Bytes of output from which stores go past the caches.
const STREAM_FROM: usize = 16 << 20;

/// An operand and its elements.
pub(crate) struct Strided<'a, T> {
    space: &'a Space,
    operand: &'a Operand,
    data: &'a [T],
}

impl<'a, T: Element> Strided<'a, T> {
    /// # Errors
    /// The operand reaches outside `data`.
    pub(crate) fn new(space: &'a Space, operand: &'a Operand, data: &'a [T]) -> Result<Self> {
        operand.check(space, data.len())?;
        Ok(Self { space, operand, data })
    }

    fn is_linear(&self) -> bool {
        self.operand.is_linear(self.space)
    }

    fn reader(&self) -> Reader<'a, T> {
        let form = if self.is_linear() {
            Form::Linear
        } else if self.operand.is_constant(self.space) {
            Form::Constant
        } else {
            Form::Strided
        };
        Reader { space: self.space, operand: self.operand, data: self.data, form, buffer: Vec::new() }
    }
}

enum Form {
    Linear,
    Constant,
    Strided,
}

/// Gives an operand's elements block by block, as slices.
struct Reader<'a, T> {
    space: &'a Space,
    operand: &'a Operand,
    data: &'a [T],
    form: Form,
    buffer: Vec<T>,
}

impl<T: Element> Reader<'_, T> {
    fn block(&mut self, start: usize, length: usize) -> &[T] {
        let origin = self.operand.origin as usize;
        match self.form {
            Form::Linear => &self.data[origin + start..][..length],
            Form::Constant => {
                if self.buffer.len() < length {
                    self.buffer.resize(length, self.data[origin]);
                }
                &self.buffer[..length]
            }
            Form::Strided => {
                let inner = self.space.inner();
                let column = start % inner;
                if self.operand.strides[self.space.axes().len() - 1] == 1 && column + length <= inner {
                    let mut first = 0;
                    walk(self.space, [self.operand], start, 1, |[at], _| first = at);
                    return &self.data[first..][..length];
                }
                self.buffer.resize(length.max(self.buffer.len()), T::zeroed());
                gather(self.space, self.operand, self.data, start, &mut self.buffer[..length]);
                &self.buffer[..length]
            }
        }
    }
}

/// Visits elements number `start` to `start + count` in runs along the innermost axis: `visit(first indices, length)`.
#[inline(always)]
pub(crate) fn walk<const N: usize>(space: &Space, operands: [&Operand; N], start: usize, count: usize, mut visit: impl FnMut([usize; N], usize)) {
    let inner = space.axes().len() - 1;
    let (mut position, mut at, mut rest) = ([0usize; MAX_RANK], operands.map(|o| o.origin as isize), start);
    let step = |at: &mut [isize; N], axis: usize, by: isize| {
        for (at, operand) in at.iter_mut().zip(operands) {
            *at += operand.strides[axis] as isize * by;
        }
    };
    for axis in (0..=inner).rev() {
        position[axis] = rest % space.extents[axis] as usize;
        rest /= space.extents[axis] as usize;
        step(&mut at, axis, position[axis] as isize);
    }
    let mut left = count;
    while left > 0 {
        let length = left.min(space.inner() - position[inner]);
        visit(at.map(|at| at as usize), length);
        left -= length;
        step(&mut at, inner, -(position[inner] as isize));
        position[inner] = 0;
        for axis in (0..inner).rev() {
            position[axis] += 1;
            step(&mut at, axis, 1);
            if position[axis] < space.extents[axis] as usize {
                break;
            }
            step(&mut at, axis, -(position[axis] as isize));
            position[axis] = 0;
        }
    }
}

/// Copies the elements visited from number `start` on.
pub(crate) fn gather<T: Copy>(space: &Space, operand: &Operand, data: &[T], start: usize, out: &mut [T]) {
    let stride = operand.strides[space.axes().len() - 1] as isize;
    let mut done = 0;
    walk(space, [operand], start, out.len(), |[at], length| {
        run(data, at, stride, &mut out[done..done + length]);
        done += length;
    });
}

/// Copies `out.len()` elements from `at`, `stride` apart.
pub(crate) fn run<T: Copy>(data: &[T], at: usize, stride: isize, out: &mut [T]) {
    match stride {
        1 if out.len() < 16 => out.iter_mut().zip(&data[at..]).for_each(|(y, x)| *y = *x),
        1 => out.copy_from_slice(&data[at..at + out.len()]),
        0 => out.fill(data[at]),
        -1 => out.iter_mut().zip(data[..=at].iter().rev()).for_each(|(y, x)| *y = *x),
        2.. => out.iter_mut().zip(data[at..].iter().step_by(stride as usize)).for_each(|(y, x)| *y = *x),
        _ => out.iter_mut().zip(data[..=at].iter().rev().step_by(stride.unsigned_abs())).for_each(|(y, x)| *y = *x),
    }
}

/// Splits `y` over threads and into blocks and calls `block(state, start, y)` for each.
///
/// `light` work, bound by memory alone, lets large outputs go past the caches; with more work between stores that only costs.
fn drive<Y: Element, S>(
    space: &Space,
    y: &mut [Y],
    (linear, light): (bool, bool),
    state: impl Fn() -> S + Sync,
    block: impl Fn(&mut S, usize, &mut [Y]) + Sync,
) {
    let streams = light && stream::AVAILABLE && size_of_val(y) >= STREAM_FROM;
    let most = if linear && !streams { TASK } else { BLOCK };
    let row = space.inner();
    let cut = !linear && row >= LONG_ROW;
    for_each_part(y, TASK, |index, y| {
        let mut state = state();
        let mut staged = if streams { vec![Y::zeroed(); BLOCK] } else { Vec::new() };
        let mut done = 0;
        while done < y.len() {
            let start = index * TASK + done;
            let limit = if cut { row - start % row } else { most };
            let length = most.min(limit).min(y.len() - done);
            let y = &mut y[done..done + length];
            if streams {
                block(&mut state, start, &mut staged[..length]);
                stream::copy(&staged[..length], y);
            } else {
                block(&mut state, start, y);
            }
            done += length;
        }
    });
}

/// `body(a, y)` for every block of a row-major output.
pub(crate) fn map1<A: Element, Y: Element>(a: Strided<'_, A>, y: &mut [Y], body: &(dyn Fn(&[A], &mut [Y]) + Sync)) {
    drive(a.space, y, (a.is_linear(), false), || a.reader(), |a, start, y| body(a.block(start, y.len()), y));
}

/// `body(a, b, y)` for every block of a row-major output.
pub(crate) fn map2<A: Element, B: Element, Y: Element>(a: Strided<'_, A>, b: Strided<'_, B>, y: &mut [Y], body: fn(&[A], &[B], &mut [Y])) {
    let linear = a.is_linear() && b.is_linear();
    drive(a.space, y, (linear, true), || (a.reader(), b.reader()), |(a, b), at, y| body(a.block(at, y.len()), b.block(at, y.len()), y));
}

/// `body(a, b, c, y)` for every block of a row-major output.
#[allow(clippy::type_complexity, reason = "the body is a plain function of four slices")]
pub(crate) fn map3<A: Element, B: Element, C: Element, Y: Element>(
    a: Strided<'_, A>,
    b: Strided<'_, B>,
    c: Strided<'_, C>,
    y: &mut [Y],
    body: fn(&[A], &[B], &[C], &mut [Y]),
) {
    let linear = a.is_linear() && b.is_linear() && c.is_linear();
    drive(
        a.space,
        y,
        (linear, false),
        || (a.reader(), b.reader(), c.reader()),
        |(a, b, c), at, y| body(a.block(at, y.len()), b.block(at, y.len()), c.block(at, y.len()), y),
    );
}
