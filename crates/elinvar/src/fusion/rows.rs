//! The program of an expression with reductions of rows: a block takes a row, and its threads fold in the canonical order of
//! [`elinvar_kernels::order`], so that the bits are those of the reductions' own kernels. The elements are loaded anew for each reduction.

use std::collections::HashMap;

use elinvar_atlas::{Binary, Compare, Constant, Operand, Position, Program, Scope};
use elinvar_core::DType;
use elinvar_kernels::reduce::Reduction;

use super::{
    emit::Emitter,
    graph::{From, Op},
};

/// Neighbouring elements that a thread takes.
const SLOTS: u32 = 8;

/// What a row is done with where the thread is.
struct Row {
    coordinates: Vec<Operand>,
    /// The row's number, the thread's, and the first element that the thread takes.
    row: Operand,
    thread: Operand,
    first: Operand,
    /// Results of the reductions so far.
    reduced: HashMap<usize, Operand>,
}

/// The operation, and where it starts.
fn fold(reduction: Reduction) -> (Binary, f32) {
    match reduction {
        Reduction::Max => (Binary::Max, f32::NEG_INFINITY),
        Reduction::Min => (Binary::Min, f32::INFINITY),
        _ => (Binary::Add, 0.0),
    }
}

impl Emitter<'_> {
    /// The program over rows.
    pub(super) fn finish_rows(mut self) -> Program {
        let b = &mut self.b;
        let (row, thread) = (b.position(Position::BlockX), b.position(Position::LocalX));
        let first = b.binary(Binary::Mul, thread, Constant::u32(SLOTS).into());
        let mut coordinates = vec![row; self.space.rank()];
        let mut rest = row;
        for axis in (1..self.space.rank() - 1).rev() {
            let extent = self.scalar(&format!("e{axis}"));
            coordinates[axis] = self.b.binary(Binary::Rem, rest, extent);
            rest = self.b.binary(Binary::Div, rest, extent);
        }
        coordinates[0] = rest;
        let mut at = Row { coordinates, row, thread, first, reduced: HashMap::new() };
        for index in 0..self.graph.steps.len() {
            if let Op::Reduce(reduction) = self.graph.steps[index].node.op {
                let total = self.reduce(index, reduction, &at);
                at.reduced.insert(index, total);
            }
        }
        let (rows, elements): (Vec<_>, Vec<_>) = (0..self.outputs.len()).partition(|&output| self.is_row(output));
        if !elements.is_empty() {
            self.store_elements(&elements, &at);
        }
        if !rows.is_empty() {
            let leads = self.b.compare(Compare::Eq, at.thread, Constant::u32(0).into());
            self.b.begin_if(leads);
            self.store_at(&rows, &at, &[Constant::u32(0).into()], &[at.row]);
            self.b.end();
        }
        self.b.finish()
    }

    /// Whether an output has one element for each row.
    fn is_row(&self, output: usize) -> bool {
        *self.graph.steps[self.graph.outputs[output].0].node.info.shape() != self.graph.shape
    }

    /// The total of a row, in every thread.
    fn reduce(&mut self, index: usize, reduction: Reduction, at: &Row) -> Operand {
        let (from, dtype) = (self.graph.steps[index].from[0], self.graph.steps[index].node.info.dtype);
        let (op, identity) = fold(reduction);
        let slots: Vec<_> = (0..SLOTS).map(|slot| self.b.register(&format!("total{index}_{slot}"), DType::F32)).collect();
        slots.iter().for_each(|&slot| self.b.assign(slot, Constant::f32(identity).into()));
        self.visit(&format!("k{index}"), at, |emitter, first, places| {
            let values: Vec<_> = places.iter().map(|&k| emitter.value(from, at, k, &mut HashMap::new())).collect();
            for (&slot, value) in slots[first..].iter().zip(values) {
                let value = if dtype == DType::F32 { value } else { emitter.b.convert(DType::F32, value) };
                let sum = emitter.b.binary(op, slot, value);
                emitter.b.assign(slot, sum);
            }
        });
        let mut left = slots;
        while left.len() > 1 {
            left = left.chunks(2).map(|pair| self.b.binary(op, pair[0], pair[1])).collect();
        }
        let mut total = self.b.reduce(Scope::Group, op, left[0]);
        if reduction == Reduction::Mean {
            let n = self.b.convert(DType::F32, self.scalar("n"));
            total = self.b.binary(Binary::Div, total, n);
        }
        if dtype == DType::F32 { total } else { self.b.convert(dtype, total) }
    }

    fn store_elements(&mut self, outputs: &[usize], at: &Row) {
        let start = self.b.binary(Binary::Mul, at.row, self.scalar("n"));
        self.visit("k", at, |emitter, _, places| {
            let indices: Vec<_> = places.iter().map(|&k| emitter.b.binary(Binary::Add, start, k)).collect();
            emitter.store_at(outputs, at, places, &indices);
        });
    }

    /// Stores of the results of elements at indices, after all of them are calculated.
    fn store_at(&mut self, outputs: &[usize], at: &Row, places: &[Operand], indices: &[Operand]) {
        let mut values = Vec::new();
        for (&k, &index) in places.iter().zip(indices) {
            let mut known = HashMap::new();
            for &output in outputs {
                values.push((output, index, self.value(From::Step(self.graph.outputs[output].0), at, k, &mut known)));
            }
        }
        for (output, index, value) in values {
            self.b.store(self.outputs[output], index, value);
        }
    }

    /// Does something with the elements that the thread takes: all its slots at once, or one, given the first slot and where the elements are.
    fn visit(&mut self, name: &str, at: &Row, mut body: impl FnMut(&mut Self, usize, &[Operand])) {
        let (n, stride) = (self.scalar("n"), self.scalar("stride"));
        let k = self.b.register(name, DType::U32);
        self.b.assign(k, at.first);
        self.b.begin_loop(None);
        let begins = self.b.compare(Compare::Lt, k, n);
        self.b.continue_while(begins);
        let places: Vec<_> = (0..SLOTS).map(|slot| self.b.binary(Binary::Add, k, Constant::u32(slot).into())).collect();
        let whole = self.b.compare(Compare::Lt, places[places.len() - 1], n);
        self.b.begin_if(whole);
        body(self, 0, &places);
        self.b.begin_else();
        for (slot, place) in places.into_iter().enumerate() {
            let inside = self.b.compare(Compare::Lt, place, n);
            self.b.begin_if(inside);
            body(self, slot, &[place]);
            self.b.end();
        }
        self.b.end();
        let next = self.b.binary(Binary::Add, k, stride);
        self.b.assign(k, next);
        self.b.end();
    }

    /// An operand of the element at `k` of the row.
    fn value(&mut self, from: From, at: &Row, k: Operand, known: &mut HashMap<From, Operand>) -> Operand {
        if let Some(&value) = known.get(&from) {
            return value;
        }
        let value = match from {
            From::Leaf(leaf) => {
                let mut coordinates = at.coordinates.clone();
                coordinates.last_mut().into_iter().for_each(|last| *last = k);
                self.load_leaf(leaf, &coordinates)
            }
            From::Step(step) => match at.reduced.get(&step) {
                Some(&total) => total,
                None => {
                    let graph = self.graph;
                    let operands: Vec<_> = graph.steps[step].from.iter().map(|from| self.value(*from, at, k, known)).collect();
                    self.step(&graph.steps[step], &operands)
                }
            },
        };
        known.insert(from, value);
        value
    }
}
