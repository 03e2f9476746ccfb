//! Visiting elements in contiguous blocks, in parallel.

use std::marker::PhantomData;

use elinvar_core::{Element, MAX_RANK, Result};

use super::{Operand, Space, stream};
use crate::parallel::for_each_part_of;

/// Elements of a block that is gathered or streamed: a few of them fit L1 together.
const BLOCK: usize = 1024;

/// Elements of a task. A multiple of [`BLOCK`], so that tasks write whole cache lines.
pub(crate) const TASK: usize = 32 * BLOCK;

/// Rows of at least this many elements are visited in place; shorter ones are gathered, many to a block.
const LONG_ROW: usize = 512;

/// An operand and its elements.
pub(crate) struct Strided<'a, T> {
    bytes: Bytes<'a>,
    element: PhantomData<T>,
}

impl<'a, T: Element> Strided<'a, T> {
    /// # Errors
    /// The operand reaches outside `data`.
    pub(crate) fn new(space: &'a Space, operand: &'a Operand, data: &'a [T]) -> Result<Self> {
        operand.check(space, data.len())?;
        Ok(Self { bytes: Bytes { space, operand, data: bytemuck::cast_slice(data), size: size_of::<T>() }, element: PhantomData })
    }
}

/// An operand and its elements of any type: what follows is compiled once, not for every combination of types.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    space: &'a Space,
    operand: &'a Operand,
    data: &'a [u8],
    /// Bytes of an element.
    size: usize,
}

impl<'a> Bytes<'a> {
    fn is_linear(&self) -> bool {
        self.operand.is_linear(self.space)
    }

    fn reader(self) -> Reader<'a> {
        let form = if self.is_linear() {
            Form::Linear
        } else if self.operand.is_constant(self.space) {
            Form::Constant
        } else {
            Form::Strided
        };
        Reader { operand: self, form, buffer: Aligned::default() }
    }

    /// `length` elements from number `start` of `data`.
    fn slice(&self, start: usize, length: usize) -> &'a [u8] {
        &self.data[start * self.size..][..length * self.size]
    }

    /// Copies the elements visited from number `start` on.
    fn gather(&self, start: usize, out: &mut [u8]) {
        fn of<T: Element>(from: &Bytes<'_>, start: usize, out: &mut [u8]) {
            gather::<T>(from.space, from.operand, bytemuck::cast_slice(from.data), start, bytemuck::cast_slice_mut(out));
        }
        match self.size {
            1 => of::<u8>(self, start, out),
            2 => of::<u16>(self, start, out),
            4 => of::<u32>(self, start, out),
            _ => of::<u64>(self, start, out),
        }
    }
}

/// Bytes that are aligned for every type of element.
#[derive(Default)]
struct Aligned(Vec<u64>);

impl Aligned {
    /// The first `bytes` of them, of any value.
    fn first(&mut self, bytes: usize) -> &mut [u8] {
        self.0.resize(self.0.len().max(bytes.div_ceil(size_of::<u64>())), 0);
        &mut bytemuck::cast_slice_mut(&mut self.0)[..bytes]
    }
}

enum Form {
    Linear,
    Constant,
    Strided,
}

/// Gives an operand's elements block by block, as slices.
struct Reader<'a> {
    operand: Bytes<'a>,
    form: Form,
    buffer: Aligned,
}

impl Reader<'_> {
    fn block(&mut self, start: usize, length: usize) -> &[u8] {
        let Bytes { space, operand, size, .. } = self.operand;
        let origin = operand.origin as usize;
        match self.form {
            Form::Linear => self.operand.slice(origin + start, length),
            Form::Constant => {
                if self.buffer.0.len() * size_of::<u64>() < length * size {
                    let element = self.operand.slice(origin, 1);
                    self.buffer.first(length * size).chunks_exact_mut(size).for_each(|copy| copy.copy_from_slice(element));
                }
                &self.buffer.first(length * size)[..]
            }
            Form::Strided => {
                let inner = space.inner();
                let column = start % inner;
                if operand.strides[space.axes().len() - 1] == 1 && column + length <= inner {
                    let mut first = 0;
                    walk(space, [operand], start, 1, |[at], _| first = at);
                    return self.operand.slice(first, length);
                }
                let block = self.buffer.first(length * size);
                self.operand.gather(start, block);
                block
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

/// What is done with a block of each operand and one of the output.
type Body<'a, const N: usize> = dyn Fn([&[u8]; N], &mut [u8]) + Sync + 'a;

/// Splits `y`, of elements of `size` bytes, over threads and into blocks and calls `body(blocks of the operands, block of y)` for each.
///
/// `light` work, bound by memory alone, lets large outputs go past the caches; with more work between stores that only costs.
fn drive<const N: usize>(operands: [Bytes<'_>; N], (y, size): (&mut [u8], usize), light: bool, body: &Body<'_, N>) {
    let linear = operands.iter().all(Bytes::is_linear);
    let streams = light && stream::pays(y.len());
    let most = if linear && !streams { TASK } else { BLOCK };
    let row = operands[0].space.inner();
    let cut = !linear && row >= LONG_ROW;
    for_each_part_of(y, TASK, size, &|index, y| {
        let (mut readers, mut staged) = (operands.map(Bytes::reader), Aligned::default());
        let (mut done, count) = (0, y.len() / size);
        while done < count {
            let start = index * TASK + done;
            let limit = if cut { row - start % row } else { most };
            let length = most.min(limit).min(count - done);
            let y = &mut y[done * size..][..length * size];
            let blocks = readers.each_mut().map(|reader| reader.block(start, length));
            if streams {
                let staged = staged.first(y.len());
                body(blocks, staged);
                stream::copy(staged, y);
            } else {
                body(blocks, y);
            }
            done += length;
        }
        if streams {
            stream::finish();
        }
    });
}

/// `body(a, y)` for every block of a row-major output.
pub(crate) fn map1<A: Element, Y: Element>(a: Strided<'_, A>, y: &mut [Y], body: &(dyn Fn(&[A], &mut [Y]) + Sync)) {
    drive([a.bytes], bytes(y), false, &|[a], y| body(bytemuck::cast_slice(a), bytemuck::cast_slice_mut(y)));
}

/// The same of work that memory alone bounds.
pub(crate) fn map1_light<A: Element, Y: Element>(a: Strided<'_, A>, y: &mut [Y], body: &(dyn Fn(&[A], &mut [Y]) + Sync)) {
    drive([a.bytes], bytes(y), true, &|[a], y| body(bytemuck::cast_slice(a), bytemuck::cast_slice_mut(y)));
}

/// `body(a, b, y)` for every block of a row-major output.
pub(crate) fn map2<A: Element, B: Element, Y: Element>(a: Strided<'_, A>, b: Strided<'_, B>, y: &mut [Y], body: fn(&[A], &[B], &mut [Y])) {
    drive([a.bytes, b.bytes], bytes(y), true, &|[a, b], y| body(bytemuck::cast_slice(a), bytemuck::cast_slice(b), bytemuck::cast_slice_mut(y)));
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
    drive([a.bytes, b.bytes, c.bytes], bytes(y), false, &|[a, b, c], y| {
        body(bytemuck::cast_slice(a), bytemuck::cast_slice(b), bytemuck::cast_slice(c), bytemuck::cast_slice_mut(y));
    });
}

/// The bytes of elements, and of each.
fn bytes<T: Element>(elements: &mut [T]) -> (&mut [u8], usize) {
    (bytemuck::cast_slice_mut(elements), size_of::<T>())
}
