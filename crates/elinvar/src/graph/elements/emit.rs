//! The Atlas program of an expression, specialised for where its operands are contiguous and broadcast.

use std::fmt::Write;

use elinvar_atlas::{Binary, Bounds, Builder, Compare, Constant, Memory, Operand, Position, Program, Ternary};
use elinvar_core::{Access, DType, Error, Result};
use elinvar_kernels::{ElementOp as Op, Scalar};

use super::{
    region::{Expression, From, Step},
    space::{MAX_WORDS, Space, Tiling},
};

/// Parameters of a program.
const MAX_PARAMETERS: usize = 24;
/// Threads of a block on devices that have threads.
const THREADS: usize = 256;
/// Registers of a thread for which a multiprocessor of NVIDIA's holds the most threads.
const REGISTERS: u32 = 32;
/// Lanes of a block on the CPU.
const LANES: usize = 1024;

/// How a graph is launched.
pub(super) struct Plan {
    /// Tells the program from every other one.
    pub(super) key: String,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// The program's scalars and their values.
    scalars: Vec<(String, u32)>,
    buffers: usize,
    leaves: usize,
    tiling: Option<Tiling>,
}

impl Plan {
    /// `None`: it has more parameters than programs may have.
    pub(super) fn new(graph: &Expression, space: &Space, threads: bool) -> Option<Self> {
        let dtypes = || graph.leaves.iter().map(|leaf| leaf.info.dtype).chain(graph.outputs.iter().map(|(step, _)| graph.steps[*step].info.dtype));
        let widest = dtypes().map(|dtype| dtype.size()).max().unwrap_or(4);
        let tiling = threads.then(|| Tiling::new(space, widest));
        let (rank, elements) = (space.rank(), graph.shape.elements().max(1));
        let inner = space.extents[rank - 1].max(1);
        let width = tiling.map_or(1, |tiling| tiling.width);
        let (grid, block) = if let Some(tiling) = tiling {
            ([elements.div_ceil(THREADS * tiling.width * tiling.words), 1, 1], THREADS)
        } else {
            let block = if inner <= LANES { inner } else { (LANES / 4..=LANES).rev().find(|n| inner.is_multiple_of(*n)).unwrap_or(LANES) };
            ([inner.div_ceil(block), elements / inner, 1], block)
        };
        let mut key = format!("{:?} {rank}", tiling.map(|tiling| (tiling.width, tiling.words)));
        let mut scalars = vec![("n".to_owned(), if threads { elements } else { inner } as u32)];
        let first = if threads { 1 } else { 1.min(rank - 1) };
        scalars.extend((first..rank).map(|axis| (format!("e{axis}"), (if axis + 1 == rank { inner / width } else { space.extents[axis] }) as u32)));
        for (leaf, (leaf_operand, place)) in graph.leaves.iter().zip(&space.places).enumerate() {
            let unit = place.unit(width);
            let _ = write!(key, ";{} {unit}", leaf_operand.info.dtype);
            if place.origin != 0 {
                key.push('o');
                scalars.push((format!("o{leaf}"), (place.origin / unit) as u32));
            }
            for (axis, &stride) in place.strides.iter().enumerate() {
                key.push(if stride == 0 {
                    '0'
                } else if stride == 1 {
                    '1'
                } else {
                    's'
                });
                if stride != 0 && stride != 1 {
                    // Modulo 2^32, as programs compute: negative steps come out right.
                    scalars.push((format!("s{leaf}_{axis}"), (stride / unit as isize) as u32));
                }
            }
        }
        for step in &graph.steps {
            let _ = write!(key, ";{:?} {:?} {}", step.op, step.from, step.info.dtype);
        }
        for (step, _) in &graph.outputs {
            let _ = write!(key, ";{step}");
        }
        let buffers = graph.leaves.len() + graph.outputs.len();
        (buffers + scalars.len() <= MAX_PARAMETERS).then_some(Self {
            key,
            grid: grid.map(|n| n as u32),
            block: [block as u32, 1, 1],
            scalars,
            buffers,
            leaves: graph.leaves.len(),
            tiling,
        })
    }

    /// The value of a parameter that is a scalar.
    pub(super) fn scalar(&self, parameter: usize) -> Constant {
        let value = parameter.checked_sub(self.buffers).and_then(|index| self.scalars.get(index)).map_or(0, |(_, value)| *value);
        Constant::u32(value)
    }

    /// How many registers a thread is to do with: where its words leave room, as few as let all threads run that a multiprocessor of NVIDIA's holds.
    pub(super) fn registers(&self) -> Option<u32> {
        self.tiling.filter(|tiling| tiling.words * self.leaves <= MAX_WORDS).map(|_| REGISTERS)
    }

    /// The program.
    ///
    /// # Errors
    /// A step has other operands than its operator takes: a fault of the library's.
    pub(super) fn program(&self, graph: &Expression, space: &Space) -> Result<Program> {
        let mut b = Builder::new("fused");
        // Every index is computed from extents and strides that were checked.
        b.bounds(Bounds::Unchecked);
        let leaves: Vec<_> = graph.leaves.iter().enumerate().map(|(i, leaf)| b.buffer(&format!("x{i}"), leaf.info.dtype, Access::Read)).collect();
        let dtype = |step: usize| graph.steps[step].info.dtype;
        let outputs: Vec<_> =
            graph.outputs.iter().enumerate().map(|(i, (step, _))| b.buffer(&format!("y{i}"), dtype(*step), Access::Write)).collect();
        let scalars = self.scalars.iter().map(|(name, _)| (name.clone(), b.scalar(name, DType::U32))).collect();
        let width = self.tiling.map_or(1, |tiling| tiling.width);
        Emitter { b, graph, space, leaves, outputs, scalars, width }.finish(self.tiling)
    }
}

struct Emitter<'a> {
    b: Builder,
    graph: &'a Expression,
    space: &'a Space,
    leaves: Vec<Memory>,
    outputs: Vec<Memory>,
    scalars: Vec<(String, Operand)>,
    /// Elements of a thread's words.
    width: usize,
}

impl Emitter<'_> {
    fn scalar(&self, name: &str) -> Operand {
        self.scalars.iter().find(|(known, _)| known == name).map_or(Constant::u32(0).into(), |(_, operand)| *operand)
    }

    fn finish(mut self, tiling: Option<Tiling>) -> Result<Program> {
        let n = self.scalar("n");
        let Some(Tiling { width, words }) = tiling else {
            let x = self.b.position(Position::GlobalX);
            let rows = self.space.rank() > 1;
            let y = rows.then(|| self.b.position(Position::GlobalY));
            let inside = self.b.compare(Compare::Lt, x, n);
            self.b.begin_if(inside);
            self.row_element(x, y)?;
            self.b.end();
            return Ok(self.b.finish());
        };
        let (block, local) = (self.b.position(Position::BlockX), self.b.position(Position::LocalX));
        let start = self.b.binary(Binary::Mul, block, Constant::u32((THREADS * words) as u32).into());
        let first = self.b.binary(Binary::Add, start, local);
        let whole = self.b.binary(Binary::Div, n, Constant::u32(width as u32).into());
        let last = self.beyond(first, THREADS * (words - 1));
        let inside = self.b.compare(Compare::Lt, last, whole);
        self.b.begin_if(inside);
        // All loads before the first operation, so that they are under way together.
        let numbers: Vec<_> = (0..words).map(|word| self.beyond(first, THREADS * word)).collect();
        let loaded: Vec<_> = numbers.iter().map(|&number| self.load_word(number, width)).collect();
        for (&number, loaded) in numbers.iter().zip(&loaded) {
            self.finish_word(number, loaded)?;
        }
        self.b.begin_else();
        // The thread's part of the end, where words are missing.
        let number = self.b.register("number", DType::U32);
        self.b.assign(number, first);
        self.b.begin_loop(Some(words as u32));
        let inside = self.b.compare(Compare::Lt, number, whole);
        self.b.begin_if(inside);
        let loaded = self.load_word(number, width);
        self.finish_word(number, &loaded)?;
        if self.space.rank() == 1 {
            self.b.begin_else();
            self.broken_word(number, width, n)?;
        }
        self.b.end();
        let next = self.beyond(number, THREADS);
        self.b.assign(number, next);
        self.b.end();
        self.b.end();
        Ok(self.b.finish())
    }

    /// Those elements of a word that are among the first `n`, one by one.
    fn broken_word(&mut self, number: Operand, width: usize, n: Operand) -> Result<()> {
        let index = self.b.register("index", DType::U32);
        let first = self.times(number, width);
        self.b.assign(index, first);
        self.b.begin_loop(Some(width as u32));
        let inside = self.b.compare(Compare::Lt, index, n);
        self.b.continue_while(inside);
        let loaded = self.load_word(index, 1);
        self.finish_word(index, &loaded)?;
        let next = self.beyond(index, 1);
        self.b.assign(index, next);
        self.b.end();
        Ok(())
    }

    /// The element at column `x` of row `y`, on the CPU: what depends on the row alone is the same in all lanes.
    fn row_element(&mut self, x: Operand, y: Option<Operand>) -> Result<()> {
        let rank = self.space.rank();
        let mut coordinates = vec![x; rank];
        let mut index = x;
        if let Some(y) = y {
            let mut rest = y;
            for axis in (1..rank - 1).rev() {
                let extent = self.scalar(&format!("e{axis}"));
                coordinates[axis] = self.b.binary(Binary::Rem, rest, extent);
                rest = self.b.binary(Binary::Div, rest, extent);
            }
            coordinates[0] = rest;
            let row = self.b.binary(Binary::Mul, y, self.scalar("n"));
            index = self.b.binary(Binary::Add, row, x);
        }
        let loaded = self.load(&coordinates, 1);
        self.finish_word(index, &loaded)
    }

    /// The operands of each element of a word, given its number.
    fn load_word(&mut self, number: Operand, width: usize) -> Vec<Vec<Operand>> {
        let rank = self.space.rank();
        let (mut coordinates, mut rest) = (vec![number; rank], number);
        for axis in (1..rank).rev() {
            let extent = self.scalar(&format!("e{axis}"));
            coordinates[axis] = self.b.binary(Binary::Rem, rest, extent);
            rest = self.b.binary(Binary::Div, rest, extent);
        }
        coordinates[0] = rest;
        self.load(&coordinates, width)
    }

    /// The operands of each of `width` elements; the innermost coordinate counts words.
    fn load(&mut self, coordinates: &[Operand], width: usize) -> Vec<Vec<Operand>> {
        let leaves: Vec<_> = (0..self.leaves.len()).map(|leaf| self.load_leaf(leaf, coordinates, width)).collect();
        (0..width).map(|element| leaves.iter().map(|leaf| leaf[element]).collect()).collect()
    }

    fn load_leaf(&mut self, leaf: usize, coordinates: &[Operand], width: usize) -> Vec<Operand> {
        let place = &self.space.places[leaf];
        let unit = place.unit(self.width);
        let mut row = (place.origin != 0).then(|| self.scalar(&format!("o{leaf}")));
        let inner = place.strides.len() - 1;
        for (axis, (&stride, &coordinate)) in place.strides[..inner].iter().zip(coordinates).enumerate() {
            let term = match stride {
                0 => continue,
                1 => coordinate,
                _ => self.b.binary(Binary::Mul, coordinate, self.scalar(&format!("s{leaf}_{axis}"))),
            };
            row = Some(self.sum(row, term));
        }
        let step = match place.strides[inner] {
            0 => {
                let value = self.b.load(self.leaves[leaf], row.unwrap_or(Constant::u32(0).into()));
                return vec![value; width];
            }
            1 => None,
            _ => Some(self.scalar(&format!("s{leaf}_{inner}"))),
        };
        let column = coordinates[inner];
        let first = if unit == width && step.is_none() {
            let number = self.sum(row, column);
            self.times(number, width)
        } else {
            let (row, column) = (row.map(|row| self.times(row, unit)), self.times(column, width));
            let column = step.map_or(column, |step| self.b.binary(Binary::Mul, column, step));
            self.sum(row, column)
        };
        // All indices before the first load: neighbouring loads of neighbouring elements become one.
        let mut indices = vec![first];
        for element in 1..width {
            let index = match step {
                None => self.beyond(first, element),
                Some(step) => self.b.binary(Binary::Add, indices[element - 1], step),
            };
            indices.push(index);
        }
        indices.into_iter().map(|index| self.b.load(self.leaves[leaf], index)).collect()
    }

    /// The results of the steps for each element of a word, stored.
    fn finish_word(&mut self, number: Operand, loaded: &[Vec<Operand>]) -> Result<()> {
        let results = loaded.iter().map(|loaded| self.compute(loaded)).collect::<Result<Vec<_>>>()?;
        let first = self.times(number, loaded.len());
        let indices: Vec<_> = (0..loaded.len()).map(|element| self.beyond(first, element)).collect();
        for ((step, _), &output) in self.graph.outputs.iter().zip(&self.outputs) {
            for (&index, results) in indices.iter().zip(&results) {
                self.b.store(output, index, results[*step]);
            }
        }
        Ok(())
    }

    fn sum(&mut self, a: Option<Operand>, b: Operand) -> Operand {
        a.map_or(b, |a| self.b.binary(Binary::Add, a, b))
    }

    fn times(&mut self, a: Operand, n: usize) -> Operand {
        if n == 1 { a } else { self.b.binary(Binary::Mul, a, Constant::u32(n as u32).into()) }
    }

    fn beyond(&mut self, a: Operand, n: usize) -> Operand {
        if n == 0 { a } else { self.b.binary(Binary::Add, a, Constant::u32(n as u32).into()) }
    }

    /// The results of the steps.
    fn compute(&mut self, loaded: &[Operand]) -> Result<Vec<Operand>> {
        let graph = self.graph;
        let mut results: Vec<Operand> = Vec::new();
        for step in &graph.steps {
            let operands: Vec<_> = step
                .from
                .iter()
                .map(|from| match *from {
                    From::Leaf(leaf) => loaded[leaf],
                    From::Step(step) => results[step],
                })
                .collect();
            results.push(self.step(step, &operands)?);
        }
        Ok(results)
    }

    fn step(&mut self, step: &Step, operands: &[Operand]) -> Result<Operand> {
        let (dtype, b) = (step.info.dtype, &mut self.b);
        Ok(match (step.op, operands) {
            (Op::Unary(op), &[x]) => b.unary(op, x),
            (Op::Binary(op), &[x, y]) => b.binary(op, x, y),
            (Op::WithScalar(op, scalar), &[x]) => {
                // The scalar is an f32, whatever the operand is.
                let x = if dtype == DType::F32 { x } else { b.convert(DType::F32, x) };
                let value = b.binary(op, x, Constant::f32(scalar).into());
                if dtype == DType::F32 { value } else { b.convert(dtype, value) }
            }
            (Op::Fma, &[x, y, z]) => b.ternary(Ternary::Fma, x, y, z),
            (Op::Clamp(low, high), &[x]) => {
                let held = b.binary(Binary::Max, x, bound(low, dtype)?);
                b.binary(Binary::Min, held, bound(high, dtype)?)
            }
            (Op::Select, &[condition, x, y]) => b.select(condition, x, y),
            (Op::Compare(op), &[x, y]) => b.compare(op, x, y),
            (Op::Cast(to), &[x]) => b.convert(to, x),
            (op, operands) => return Err(Error::internal(format!("fusion of {op:?} with {} operands", operands.len()))),
        })
    }
}

/// A bound, which the operator has checked.
fn bound(value: Scalar, dtype: DType) -> Result<Operand> {
    let bits = value.saturated_bits(dtype)?;
    Ok(Constant { dtype, bits: bits & (u64::MAX >> (64 - 8 * dtype.size())) }.into())
}
