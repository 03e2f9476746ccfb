//! Straight lines of operations, loads and stores: all of them run on one piece of the strip, then on the next. So the values between them stay
//! in the first cache, and buffers are read and written at the steady pace that the processor's look-ahead knows.

use elinvar_core::DType;

use super::{
    lower::{Apply, Kernel, Step},
    ops,
    slot::{Line, count_up, lines_of},
    strip::{Strip, bytes, bytes_mut, narrow, widen},
};

/// Lanes of a piece.
const PIECE: usize = 1024;
/// No value.
const NONE: usize = usize::MAX;

/// Lanes that an operation takes.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// What an operation before gave.
    Value(usize),
    /// The same number in every lane: its place among those of the line.
    Same(usize),
    /// A buffer that nobody writes.
    View(&'a [u8]),
    /// Elements of memory from this one on.
    Memory(u32, u64),
    /// A register's lanes from before.
    Slot(u32),
}

/// What an operation does.
#[derive(Clone, Copy)]
enum Work {
    Apply {
        kernel: Kernel,
        widen: bool,
        narrow: bool,
    },
    /// Numbers that count up from this one.
    Count(u64),
    /// Elements of memory that the operand names.
    Gather(u32),
}

/// Where its results go.
#[derive(Clone, Copy)]
enum Target {
    Value(usize),
    /// Elements of memory from this one on.
    Memory(u32, u64),
}

struct Operation<'a> {
    work: Work,
    from: [Source<'a>; 3],
    /// The types of the operands and the result.
    dtypes: [DType; 3],
    dtype: DType,
    target: Target,
}

/// A value of the line.
struct Value {
    /// The register that has it when the line ends.
    slot: Option<u32>,
    /// The last operation that takes it.
    last: usize,
    /// The piece of memory it lies in.
    tile: usize,
}

/// A line being made and run. Kept for the next one, for its memory.
pub(super) struct Straight<'a> {
    operations: Vec<Operation<'a>>,
    values: Vec<Value>,
    /// The value that each register has, if it is one of the line.
    current: Vec<usize>,
    /// Numbers that are the same in every lane: size, bits.
    same: Vec<(usize, u64)>,
    /// Memory for pieces, and the free ones among it.
    tiles: Vec<Vec<Line>>,
    free: Vec<usize>,
}

impl Straight<'_> {
    pub(super) fn new(slots: usize) -> Self {
        let (operations, values, same, tiles, free) = Default::default();
        Self { operations, values, current: vec![NONE; slots], same, tiles, free }
    }

    fn tile(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tiles.push(lines_of(8 * PIECE));
            self.tiles.len() - 1
        })
    }
}

impl<'a> Strip<'a> {
    /// Runs the steps from `at` to `until`, or to the first that takes its own way: which that is.
    pub(super) fn straight_line(&mut self, at: usize, until: usize) -> usize {
        let mut next = at;
        while next < until {
            let step = &self.code.steps[next];
            let planned = match step {
                Step::Apply(apply) => self.plan_apply(apply),
                Step::Load { to, memory, index, .. } => self.plan_load(*to, *memory, *index),
                Step::Store { memory, index, value } => self.plan_store(*memory, *index, *value),
                _ => 1,
            };
            if planned == 0 {
                break;
            }
            for &slot in &self.code.dead[next] {
                self.straight_forget(slot);
            }
            next += planned;
        }
        self.run_straight();
        for &slot in self.code.dead[at..next].iter().flatten() {
            self.slots[slot as usize].release(&mut self.tiles);
        }
        next
    }

    /// The register has no value of the line any more.
    fn straight_forget(&mut self, slot: u32) {
        let value = std::mem::replace(&mut self.straight.current[slot as usize], NONE);
        if let Some(value) = self.straight.values.get_mut(value) {
            value.slot = None;
        }
    }

    /// A register's lanes as an operand.
    fn source(&mut self, slot: u32) -> Source<'a> {
        let known = &self.slots[slot as usize];
        let (dtype, line) = (known.dtype, &mut self.straight);
        let current = line.current[slot as usize];
        if current != NONE {
            return Source::Value(current);
        }
        if let Some(bits) = known.uniform {
            let same = (dtype.size(), bits);
            let place = line.same.iter().position(|other| *other == same).unwrap_or_else(|| {
                line.same.push(same);
                line.same.len() - 1
            });
            return Source::Same(place);
        }
        match (known.view, known.first) {
            (Some(view), _) => Source::View(view),
            (None, Some(first)) => {
                let value = line.values.len();
                line.values.push(Value { slot: None, last: 0, tile: NONE });
                let (from, target) = ([Source::Same(0); 3], Target::Value(value));
                line.operations.push(Operation { work: Work::Count(first), from, dtypes: [dtype; 3], dtype, target });
                Source::Value(value)
            }
            _ => Source::Slot(slot),
        }
    }

    fn plan(&mut self, work: Work, from: [Source<'a>; 3], dtypes: [DType; 3], to: (u32, Option<(u32, u64)>)) {
        let dtype = self.slots[to.0 as usize].dtype;
        let target = match to.1 {
            Some((memory, first)) => Target::Memory(memory, first),
            None => {
                self.straight_forget(to.0);
                let value = self.straight.values.len();
                self.straight.values.push(Value { slot: Some(to.0), last: 0, tile: NONE });
                self.straight.current[to.0 as usize] = value;
                // What is known of the register is no longer so.
                self.slots[to.0 as usize].clear();
                Target::Value(value)
            }
        };
        self.straight.operations.push(Operation { work, from, dtypes, dtype, target });
    }

    /// Elements of memory, all of which exist, at the lanes of an index.
    fn stretch(&self, memory: u32, index: u32) -> Option<(u32, u64)> {
        let first = self.slots[index as usize].first?;
        self.memory[memory as usize].holds(first, self.lanes).then_some((memory, first))
    }

    /// How many steps are done with it.
    fn plan_apply(&mut self, apply: &Apply) -> usize {
        if self.apply_to_known(apply) {
            self.straight_forget(apply.to);
            return 1;
        }
        let mut from = [Source::Same(0); 3];
        let mut dtypes = [DType::F32; 3];
        for ((source, dtype), &slot) in from.iter_mut().zip(&mut dtypes).zip(&apply.from[..apply.count]) {
            (*source, *dtype) = (self.source(slot), self.slots[slot as usize].dtype);
        }
        let stored = apply.stored.and_then(|(memory, index)| self.stretch(memory, index));
        let work = Work::Apply { kernel: apply.kernel, widen: apply.widen, narrow: apply.narrow };
        self.plan(work, from, dtypes, (apply.to, stored));
        if stored.is_some() { 2 } else { 1 }
    }

    fn plan_load(&mut self, to: u32, memory: u32, index: u32) -> usize {
        let dtype = self.slots[to as usize].dtype;
        let is_truth = dtype == DType::Bool;
        let work = Work::Apply { kernel: if is_truth { ops::truth() } else { ops::same(dtype.size()) }, widen: false, narrow: false };
        match self.stretch(memory, index) {
            Some((_, first)) => match self.memory[memory as usize].constant_elements(first, self.lanes) {
                Some(view) if is_truth => self.plan(work, [Source::View(view); 3], [dtype; 3], (to, None)),
                Some(view) => {
                    self.straight_forget(to);
                    self.slots[to as usize].set_view(view);
                }
                None => self.plan(work, [Source::Memory(memory, first); 3], [dtype; 3], (to, None)),
            },
            None if self.traps || is_truth || self.slots[index as usize].uniform.is_some() => return 0,
            None => {
                let from = self.source(index);
                self.plan(Work::Gather(memory), [from; 3], [self.slots[index as usize].dtype; 3], (to, None));
            }
        }
        1
    }

    fn plan_store(&mut self, memory: u32, index: u32, value: u32) -> usize {
        let Some(stretch) = self.stretch(memory, index) else { return 0 };
        let (from, dtype) = (self.source(value), self.slots[value as usize].dtype);
        let work = Work::Apply { kernel: ops::same(dtype.size()), widen: false, narrow: false };
        self.plan(work, [from; 3], [dtype; 3], (value, Some(stretch)));
        1
    }

    /// Decides where each value lies: those that a register keeps in memory for the whole strip, the others for a piece.
    fn place_values(&mut self) -> Vec<(u32, Vec<Line>)> {
        let line = &mut self.straight;
        for (at, operation) in line.operations.iter().enumerate() {
            for source in operation.from {
                if let Source::Value(value) = source {
                    line.values[value].last = at;
                }
            }
        }
        let mut kept = Vec::new();
        line.free = (line.same.len()..line.tiles.len()).rev().collect();
        for place in 0..line.same.len() {
            if place == line.tiles.len() {
                line.tiles.push(lines_of(8 * PIECE));
            }
            let (size, bits) = line.same[place];
            ops::splat(size, bits, bytes_mut(&mut line.tiles[place], size * PIECE));
        }
        for at in 0..line.operations.len() {
            let target = line.operations[at].target;
            if let Target::Value(value) = target {
                line.values[value].tile = match line.values[value].slot {
                    Some(slot) => {
                        kept.push((slot, self.tiles.take()));
                        kept.len() - 1
                    }
                    None => line.tile(),
                };
            }
            let ends = line.operations[at].from.into_iter().filter_map(|source| if let Source::Value(value) = source { Some(value) } else { None });
            let unused = if let Target::Value(value) = target { Some(value) } else { None };
            for value in ends.chain(unused) {
                let value = &mut line.values[value];
                if value.slot.is_none() && value.last <= at && value.last != NONE {
                    line.free.push(value.tile);
                    // Its place is given back once.
                    value.last = NONE;
                }
            }
        }
        kept
    }

    fn run_straight(&mut self) {
        if !self.straight.operations.is_empty() {
            let mut kept = self.place_values();
            for start in (0..self.lanes).step_by(PIECE) {
                let count = PIECE.min(self.lanes - start);
                for at in 0..self.straight.operations.len() {
                    self.run_piece(at, start, count, &mut kept);
                }
            }
            for (slot, mut data) in kept {
                let slot = &mut self.slots[slot as usize];
                slot.set_data(&mut data, &mut self.tiles);
                self.tiles.give(data);
            }
        }
        for value in self.straight.values.drain(..) {
            if let Some(slot) = value.slot {
                self.straight.current[slot as usize] = NONE;
            }
        }
        self.straight.operations.clear();
        self.straight.same.clear();
    }

    /// Runs an operation on `count` lanes from `start` on.
    fn run_piece(&mut self, at: usize, start: usize, count: usize, kept: &mut [(u32, Vec<Line>)]) {
        let Self { straight, slots, memory, wide: [wide @ .., rounded], lanes, .. } = self;
        let Straight { operations, values, tiles, .. } = straight;
        let operation = &operations[at];
        let size = operation.dtype.size();
        let mut taken = Vec::new();
        let out: &mut [u8] = match operation.target {
            Target::Value(value) => {
                let value = &values[value];
                let all = if value.slot.is_some() { &mut kept[value.tile].1 } else { &mut tiles[value.tile] };
                taken = std::mem::take(all);
                let from = if value.slot.is_some() { start * size } else { 0 };
                &mut bytes_mut(&mut taken, from + count * size)[from..]
            }
            Target::Memory(index, first) => memory[index as usize].elements(first + start as u64, count).unwrap_or(&mut []),
        };
        let operand = |index: usize| {
            let size = operation.dtypes[index].size();
            let part = start * size..(start + count) * size;
            match operation.from[index] {
                Source::Value(value) if values[value].slot.is_some() => &bytes(&kept[values[value].tile].1, part.end)[part.start..],
                Source::Value(value) => bytes(&tiles[values[value].tile], count * size),
                Source::Same(place) => bytes(&tiles[place], count * size),
                Source::View(view) => &view[part],
                Source::Memory(index, first) => memory[index as usize].elements(first + start as u64, count).unwrap_or(&mut []),
                Source::Slot(slot) => &slots[slot as usize].bytes(*lanes)[part],
            }
        };
        match operation.work {
            Work::Count(first) => count_up(operation.dtype, first + start as u64, out),
            Work::Gather(index) => memory[index as usize].gather(operation.dtypes[0], operand(0), out),
            Work::Apply { kernel, widen: widens, narrow: narrows } => {
                if widens {
                    for (index, wide) in wide.iter_mut().enumerate().take(kernel.operands()) {
                        widen(operation.dtypes[index], operand(index), bytes_mut(wide, 4 * count));
                    }
                }
                let operand = |index: usize| if widens { bytes(&wide[index], 4 * count) } else { operand(index) };
                if narrows {
                    let rounded = bytes_mut(rounded, 4 * count);
                    kernel.run(operand, rounded);
                    narrow(operation.dtype, rounded, out);
                } else {
                    kernel.run(operand, out);
                }
            }
        }
        if let Target::Value(value) = operation.target {
            let value = &values[value];
            *(if value.slot.is_some() { &mut kept[value.tile].1 } else { &mut tiles[value.tile] }) = taken;
        }
    }
}
