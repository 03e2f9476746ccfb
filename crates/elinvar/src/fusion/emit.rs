//! The Atlas program of an expression, specialised for where its operands are contiguous and broadcast.

use std::fmt::Write;

use elinvar_atlas::{Binary, Bounds, Builder, Compare, Constant, Memory, Operand, Position, Program, Ternary, Unary};
use elinvar_core::{Access, DType, Layout, Result, Shape};
use elinvar_kernels::{Scalar, TensorInfo, binary::BinaryOp, compare::CompareOp, unary::UnaryOp};

use super::graph::{From, Graph, Op, Step};

/// Parameters of a program.
const MOST_PARAMETERS: usize = 24;
/// Threads of a block on devices that have threads.
const THREADS: usize = 256;
/// Lanes of a block on the CPU.
const LANES: usize = 1024;

/// Where an operand's elements lie: the first, and the steps along the axes of the space.
struct Place {
    origin: usize,
    strides: Vec<isize>,
}

/// What is visited: neighbouring axes that every operand steps through evenly are one.
pub(super) struct Space {
    extents: Vec<usize>,
    places: Vec<Place>,
}

impl Space {
    /// # Errors
    /// An operand that does not broadcast to the shape.
    pub(super) fn new(shape: Shape, operands: &[TensorInfo]) -> Result<Self> {
        let layouts = operands.iter().map(|info| info.layout.broadcast_to(shape)).collect::<Result<Vec<Layout>>>()?;
        let place = |layout: &Layout| Place { origin: layout.offset(), strides: Vec::new() };
        let mut space = Space { extents: Vec::new(), places: layouts.iter().map(place).collect() };
        for (axis, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
            let strides = || layouts.iter().map(|layout| layout.strides()[axis]);
            let mut known = space.places.iter().zip(strides());
            if !space.extents.is_empty() && known.all(|(place, stride)| place.strides.last() == Some(&(stride * extent as isize))) {
                space.extents.last_mut().into_iter().for_each(|last| *last *= extent);
                space.places.iter_mut().zip(strides()).for_each(|(place, stride)| place.strides.last_mut().into_iter().for_each(|s| *s = stride));
            } else {
                space.extents.push(extent);
                space.places.iter_mut().zip(strides()).for_each(|(place, stride)| place.strides.push(stride));
            }
        }
        if space.extents.is_empty() {
            space.extents.push(1);
            space.places.iter_mut().for_each(|place| place.strides.push(1));
        }
        Ok(space)
    }

    fn rank(&self) -> usize {
        self.extents.len()
    }
}

/// How a graph is launched.
pub(super) struct Plan {
    /// Tells the program from every other one.
    pub(super) key: String,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// The program's scalars and their values.
    scalars: Vec<(String, u32)>,
    buffers: usize,
    /// Elements of a thread; zero where a lane has one and rows lie along y.
    unroll: usize,
}

impl Plan {
    /// `None`: it has more parameters than programs may have.
    pub(super) fn new(graph: &Graph, space: &Space, threads: bool) -> Option<Self> {
        let dtypes = || graph.leaves.iter().map(|leaf| leaf.dtype()).chain(graph.outputs.iter().map(|(step, _)| graph.steps[*step].node.info.dtype));
        let widest = dtypes().map(|dtype| dtype.size()).max().unwrap_or(4);
        let unroll = if threads { (32 / widest).clamp(4, 16) } else { 0 };
        let (rank, elements) = (space.rank(), graph.shape.elements().max(1));
        let inner = space.extents[rank - 1].max(1);
        let (grid, block) = if threads {
            ([elements.div_ceil(THREADS * unroll), 1, 1], THREADS)
        } else {
            let block = if inner <= LANES { inner } else { (LANES / 4..=LANES).rev().find(|n| inner.is_multiple_of(*n)).unwrap_or(LANES) };
            ([inner.div_ceil(block), elements / inner, 1], block)
        };
        let mut key = format!("{unroll} {rank}");
        let mut scalars = vec![("n".to_owned(), if threads { elements } else { inner } as u32)];
        let first = if threads { 1 } else { 1.min(rank - 1) };
        scalars.extend((first..rank).map(|axis| (format!("e{axis}"), space.extents[axis] as u32)));
        for (leaf, (tensor, place)) in graph.leaves.iter().zip(&space.places).enumerate() {
            let _ = write!(key, ";{} ", tensor.dtype());
            if place.origin != 0 {
                key.push('o');
                scalars.push((format!("o{leaf}"), place.origin as u32));
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
                    // Modulo 2^32, as programs calculate: negative steps come out right.
                    scalars.push((format!("s{leaf}_{axis}"), stride as u32));
                }
            }
        }
        for step in &graph.steps {
            let _ = write!(key, ";{:?} {:?} {}", step.node.op, step.from, step.node.info.dtype);
        }
        for (step, _) in &graph.outputs {
            let _ = write!(key, ";{step}");
        }
        let buffers = graph.leaves.len() + graph.outputs.len();
        (buffers + scalars.len() <= MOST_PARAMETERS).then_some(Self {
            key,
            grid: grid.map(|n| n as u32),
            block: [block as u32, 1, 1],
            scalars,
            buffers,
            unroll,
        })
    }

    /// The value of a parameter that is a scalar.
    pub(super) fn scalar(&self, parameter: usize) -> Constant {
        let value = parameter.checked_sub(self.buffers).and_then(|index| self.scalars.get(index)).map_or(0, |(_, value)| *value);
        Constant::u32(value)
    }

    /// The program.
    pub(super) fn program(&self, graph: &Graph, space: &Space) -> Program {
        let mut b = Builder::new("fused");
        // Every index is calculated from extents and strides that were checked.
        b.bounds(Bounds::Unchecked);
        let leaves: Vec<_> = graph.leaves.iter().enumerate().map(|(i, leaf)| b.buffer(&format!("x{i}"), leaf.dtype(), Access::Read)).collect();
        let dtype = |step: usize| graph.steps[step].node.info.dtype;
        let outputs: Vec<_> =
            graph.outputs.iter().enumerate().map(|(i, (step, _))| b.buffer(&format!("y{i}"), dtype(*step), Access::Write)).collect();
        let scalars = self.scalars.iter().map(|(name, _)| (name.clone(), b.scalar(name, DType::U32))).collect();
        Emitter { b, graph, space, leaves, outputs, scalars }.finish(self.unroll)
    }
}

struct Emitter<'a> {
    b: Builder,
    graph: &'a Graph,
    space: &'a Space,
    leaves: Vec<Memory>,
    outputs: Vec<Memory>,
    scalars: Vec<(String, Operand)>,
}

impl Emitter<'_> {
    fn scalar(&self, name: &str) -> Operand {
        self.scalars.iter().find(|(known, _)| known == name).map_or(Constant::u32(0).into(), |(_, operand)| *operand)
    }

    fn finish(mut self, unroll: usize) -> Program {
        let n = self.scalar("n");
        if unroll == 0 {
            let x = self.b.position(Position::GlobalX);
            let rows = self.space.rank() > 1;
            let y = rows.then(|| self.b.position(Position::GlobalY));
            let inside = self.b.compare(Compare::Lt, x, n);
            self.b.begin_if(inside);
            self.row_element(x, y);
            self.b.end();
            return self.b.finish();
        }
        let (block, local) = (self.b.position(Position::BlockX), self.b.position(Position::LocalX));
        let start = self.b.binary(Binary::Mul, block, Constant::u32((THREADS * unroll) as u32).into());
        let first = self.b.binary(Binary::Add, start, local);
        // Where indices are not calculated with any more they have 64 bits: each is then a fixed distance from the first.
        let is_plain = self.space.rank() == 1 && self.space.places.iter().all(|p| p.origin == 0 && matches!(p.strides[..], [0 | 1]));
        let (first, n, dtype) =
            if is_plain { (self.b.convert(DType::U64, first), self.b.convert(DType::U64, n), DType::U64) } else { (first, n, DType::U32) };
        let mut indices = vec![first];
        for step in 1..unroll {
            let distance = Constant { dtype, bits: (step * THREADS) as u64 };
            indices.push(self.b.binary(Binary::Add, first, distance.into()));
        }
        // All loads before the first operation, so that they are under way together.
        let whole = self.b.compare(Compare::Lt, indices[unroll - 1], n);
        self.b.begin_if(whole);
        let loaded: Vec<_> = indices.iter().map(|&index| self.load_at(index)).collect();
        let results: Vec<_> = loaded.iter().map(|loaded| self.calculate(loaded)).collect();
        for (&index, results) in indices.iter().zip(results) {
            self.store(index, &results);
        }
        self.b.begin_else();
        // The thread's part of the end: its last element is beyond it.
        let index = self.b.register("index", dtype);
        self.b.assign(index, first);
        self.b.begin_loop(Some(unroll as u32));
        let inside = self.b.compare(Compare::Lt, index, n);
        self.b.continue_while(inside);
        let loaded = self.load_at(index);
        let results = self.calculate(&loaded);
        self.store(index, &results);
        let next = self.b.binary(Binary::Add, index, Constant { dtype, bits: THREADS as u64 }.into());
        self.b.assign(index, next);
        self.b.end();
        self.b.end();
        self.b.finish()
    }

    /// The element at column `x` of row `y`, on the CPU: what depends on the row alone is the same in all lanes.
    fn row_element(&mut self, x: Operand, y: Option<Operand>) {
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
        let loaded = self.load(&coordinates);
        let results = self.calculate(&loaded);
        self.store(index, &results);
    }

    /// The operands at an element's number.
    fn load_at(&mut self, index: Operand) -> Vec<Operand> {
        let rank = self.space.rank();
        let (mut coordinates, mut rest) = (vec![index; rank], index);
        for axis in (1..rank).rev() {
            let extent = self.scalar(&format!("e{axis}"));
            coordinates[axis] = self.b.binary(Binary::Rem, rest, extent);
            rest = self.b.binary(Binary::Div, rest, extent);
        }
        coordinates[0] = rest;
        self.load(&coordinates)
    }

    fn load(&mut self, coordinates: &[Operand]) -> Vec<Operand> {
        (0..self.leaves.len()).map(|leaf| self.load_leaf(leaf, coordinates)).collect()
    }

    fn load_leaf(&mut self, leaf: usize, coordinates: &[Operand]) -> Operand {
        let place = &self.space.places[leaf];
        let mut index = (place.origin != 0).then(|| self.scalar(&format!("o{leaf}")));
        for (axis, (&stride, &coordinate)) in place.strides.iter().zip(coordinates).enumerate() {
            let term = match stride {
                0 => continue,
                1 => coordinate,
                _ => self.b.binary(Binary::Mul, coordinate, self.scalar(&format!("s{leaf}_{axis}"))),
            };
            index = Some(index.map_or(term, |index| self.b.binary(Binary::Add, index, term)));
        }
        self.b.load(self.leaves[leaf], index.unwrap_or(Constant::u32(0).into()))
    }

    /// The results of the steps.
    fn calculate(&mut self, loaded: &[Operand]) -> Vec<Operand> {
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
            results.push(self.step(step, &operands));
        }
        results
    }

    fn store(&mut self, index: Operand, results: &[Operand]) {
        for ((step, _), &output) in self.graph.outputs.iter().zip(&self.outputs) {
            self.b.store(output, index, results[*step]);
        }
    }

    fn step(&mut self, step: &Step, operands: &[Operand]) -> Operand {
        let (dtype, b) = (step.node.info.dtype, &mut self.b);
        let [first, ..] = *operands else { return Constant::bool(false).into() };
        let other = |index: usize| operands.get(index).copied().unwrap_or(first);
        match step.node.op {
            Op::Unary(UnaryOp::Relu) if dtype.is_integer() => b.binary(Binary::Max, first, zero(dtype)),
            Op::Unary(UnaryOp::Relu) => {
                let negative = b.compare(Compare::Lt, first, zero(dtype));
                b.select(negative, zero(dtype), first)
            }
            Op::Unary(op) => b.unary(unary(op), first),
            Op::Binary(op) => b.binary(binary(op), first, other(1)),
            Op::Fma => b.ternary(Ternary::Fma, first, other(1), other(2)),
            Op::Clamp(low, high) => {
                let held = b.binary(Binary::Max, first, bound(low, dtype));
                b.binary(Binary::Min, held, bound(high, dtype))
            }
            Op::Select => b.select(first, other(1), other(2)),
            Op::Compare(op) => b.compare(compare(op), first, other(1)),
            Op::Cast(to) => b.convert(to, first),
        }
    }
}

fn zero(dtype: DType) -> Operand {
    Constant { dtype, bits: 0 }.into()
}

/// A bound, which the operator has checked.
fn bound(value: Scalar, dtype: DType) -> Operand {
    let bits = value.saturated_bits(dtype).unwrap_or(0);
    Constant { dtype, bits: bits & (u64::MAX >> (64 - 8 * dtype.size())) }.into()
}

const fn unary(op: UnaryOp) -> Unary {
    match op {
        UnaryOp::Abs => Unary::Abs,
        UnaryOp::Sqrt => Unary::Sqrt,
        UnaryOp::Rsqrt => Unary::Rsqrt,
        UnaryOp::Exp => Unary::Exp,
        UnaryOp::Log => Unary::Log,
        UnaryOp::Sin => Unary::Sin,
        UnaryOp::Cos => Unary::Cos,
        UnaryOp::Sigmoid => Unary::Sigmoid,
        UnaryOp::Tanh => Unary::Tanh,
        UnaryOp::Silu => Unary::Silu,
        _ => Unary::Neg,
    }
}

const fn binary(op: BinaryOp) -> Binary {
    match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => Binary::Div,
        BinaryOp::Min => Binary::Min,
        BinaryOp::Max => Binary::Max,
        BinaryOp::Pow => Binary::Pow,
    }
}

const fn compare(op: CompareOp) -> Compare {
    match op {
        CompareOp::Eq => Compare::Eq,
        CompareOp::Ne => Compare::Ne,
        CompareOp::Lt => Compare::Lt,
        CompareOp::Le => Compare::Le,
        CompareOp::Gt => Compare::Gt,
        CompareOp::Ge => Compare::Ge,
    }
}
