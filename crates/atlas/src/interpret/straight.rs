//! Straight lines of operations, loads and stores: all of them run on one piece of the strip, then on the next. So the values between them stay
//! in the first cache, and buffers are read and written at the steady pace that the processor's look-ahead knows.

use bytemuck::cast_slice_mut;
use elinvar_core::DType;

use super::{
    code::{Apply, Kernel, Step},
    line::{NONE, Operation, Same, Source, Straight, Target, Value, Work},
    ops,
    pieces::{Extent, Lanes, NOWHERE, PIECE, TILE},
    slot::{Line, count_up, lines_of},
    strip::{Strip, bytes, bytes_mut, narrow, widen},
};

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
                Step::Position { .. } | Step::Atomic { .. } | Step::Reduce { .. } | Step::Shuffle { .. } | Step::Fence | Step::Barrier => 1,
                Step::If { .. } | Step::Else { .. } | Step::EndIf | Step::Loop { .. } | Step::EndLoop { .. } | Step::While { .. } => 1,
                Step::Break | Step::Continue | Step::Exit | Step::Nothing => 1,
            };
            if planned == 0 {
                break;
            }
            for &slot in self.code.dead[next..next + planned].iter().flatten() {
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
            let size = dtype.size();
            let place = line.same.iter().position(|same| (same.size, same.bits) == (size, bits)).unwrap_or_else(|| {
                line.same.push(Same { size, bits, tile: NONE });
                line.same.len() - 1
            });
            return Source::Same(place);
        }
        match (known.view, known.first) {
            (Some(view), _) => Source::View(view),
            (None, Some(first)) => {
                let value = line.values.len();
                line.values.push(Value { slot: None, last: 0, tile: NONE });
                let (from, target) = ([Source::None; 3], Target::Value(value));
                line.operations.push(Operation { work: Work::Count(first), from, dtypes: [dtype; 3], dtype, target, lanes: [NOWHERE; 4] });
                Source::Value(value)
            }
            (None, None) => Source::Slot(known.bytes(self.lanes).as_ptr()),
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
        self.straight.operations.push(Operation { work, from, dtypes, dtype, target, lanes: [NOWHERE; 4] });
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
        let mut from = [Source::None; 3];
        let mut dtypes = [DType::F32; 3];
        for ((source, dtype), &slot) in from.iter_mut().zip(&mut dtypes).zip(&apply.from[..apply.count]) {
            (*source, *dtype) = (self.source(slot), self.slots[slot as usize].dtype);
        }
        if let Some(rest) = from.get_mut(1..apply.count).filter(|rest| rest.iter().all(|source| matches!(source, Source::Same(_)))) {
            rest.iter_mut().for_each(|source| *source = source.as_one());
        }
        let stored = apply.stored.and_then(|(memory, index)| self.stretch(memory, index));
        let work = Work::Apply { kernel: apply.kernel, widen: apply.widen, narrow: apply.narrow };
        self.plan(work, from, dtypes, (apply.to, stored));
        if stored.is_some() { 2 } else { 1 }
    }

    fn plan_load(&mut self, to: u32, memory: u32, index: u32) -> usize {
        let dtype = self.slots[to as usize].dtype;
        let is_truth = dtype == DType::Bool;
        let kernel = Kernel::One(if is_truth { ops::truth() } else { ops::same(dtype.size()) });
        let work = Work::Apply { kernel, widen: false, narrow: false };
        match self.stretch(memory, index) {
            Some((_, first)) => match self.memory[memory as usize].constant_elements(first, self.lanes) {
                Some(view) if is_truth => self.plan(work, [Source::View(view), Source::None, Source::None], [dtype; 3], (to, None)),
                Some(view) => {
                    self.straight_forget(to);
                    self.slots[to as usize].set_view(view);
                }
                None => self.plan(work, [Source::Memory(memory, first), Source::None, Source::None], [dtype; 3], (to, None)),
            },
            None if self.traps || is_truth || self.slots[index as usize].uniform.is_some() => return 0,
            None => {
                let from = self.source(index);
                self.plan(Work::Gather(memory), [from, Source::None, Source::None], [self.slots[index as usize].dtype; 3], (to, None));
            }
        }
        1
    }

    fn plan_store(&mut self, memory: u32, index: u32, value: u32) -> usize {
        let Some(stretch) = self.stretch(memory, index) else { return 0 };
        let (from, dtype) = (self.source(value), self.slots[value as usize].dtype);
        let work = Work::Apply { kernel: Kernel::One(ops::same(dtype.size())), widen: false, narrow: false };
        self.plan(work, [from, Source::None, Source::None], [dtype; 3], (value, Some(stretch)));
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
        line.free.clear();
        line.free.extend((0..line.made()).rev());
        for source in line.operations.iter().flat_map(|operation| operation.from).collect::<Vec<_>>() {
            if let Source::Same(place) = source
                && line.same[place].tile == NONE
            {
                let tile = line.take_tile();
                line.same[place].tile = tile;
                ops::splat(line.same[place].size, line.same[place].bits, &mut cast_slice_mut(&mut line.tiles)[tile * TILE..][..TILE]);
            }
        }
        for at in 0..line.operations.len() {
            let target = line.operations[at].target;
            if let Target::Value(value) = target {
                line.values[value].tile = match line.values[value].slot {
                    Some(slot) => {
                        kept.push((slot, self.tiles.take()));
                        kept.len() - 1
                    }
                    None => line.take_tile(),
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

    /// Decides where each operation finds its operands and leaves its result.
    fn place_lanes(&mut self, kept: &mut [(u32, Vec<Line>)]) {
        let Self { straight, memory, lanes, .. } = self;
        let Straight { operations, values, same, tiles, .. } = straight;
        let tiles = cast_slice_mut::<Line, u8>(tiles);
        for at in 0..operations.len() {
            let Operation { from, dtypes, dtype, target, .. } = operations[at];
            let mut place = |source: Source<'a>, dtype: DType| {
                let size = dtype.size();
                let (start, extent) = match source {
                    Source::Value(value) if values[value].slot.is_some() => (kept[values[value].tile].1.as_mut_ptr().cast(), Extent::Strip),
                    Source::Value(value) => (tiles[values[value].tile * TILE..].as_mut_ptr(), Extent::Piece),
                    Source::Same(place) => (tiles[same[place].tile * TILE..].as_mut_ptr(), Extent::Piece),
                    Source::One(place) => ((&raw mut same[place].bits).cast(), Extent::One),
                    Source::View(view) => (view.as_ptr().cast_mut(), Extent::Strip),
                    Source::Memory(index, first) => match memory[index as usize].elements(first, *lanes) {
                        Some(elements) => (elements.as_mut_ptr(), Extent::Strip),
                        None => return NOWHERE,
                    },
                    Source::Slot(start) => (start.cast_mut(), Extent::Strip),
                    Source::None => return NOWHERE,
                };
                Lanes { start, size, extent }
            };
            let result = match target {
                Target::Value(value) => Source::Value(value),
                Target::Memory(index, first) => Source::Memory(index, first),
            };
            operations[at].lanes = [place(from[0], dtypes[0]), place(from[1], dtypes[1]), place(from[2], dtypes[2]), place(result, dtype)];
        }
    }

    fn run_straight(&mut self) {
        if !self.straight.operations.is_empty() {
            let mut kept = self.place_values();
            self.place_lanes(&mut kept);
            let piece = if self.straight.is_whole() { self.lanes } else { self.straight.piece };
            for start in (0..self.lanes).step_by(piece) {
                let (count, shift) = (piece.min(self.lanes - start), self.straight.shift(start));
                for at in 0..self.straight.operations.len() {
                    self.run_piece(at, start, count, shift);
                }
            }
            for (slot, data) in kept {
                self.slots[slot as usize].set_data(data, &mut self.tiles);
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
    #[inline(always)]
    fn run_piece(&mut self, at: usize, start: usize, count: usize, shift: usize) {
        let Straight { operations, wide, .. } = &mut self.straight;
        let Operation { work, dtypes, dtype, ref lanes, .. } = operations[at];
        // SAFETY: so many lanes are there, and no operand's are the result's.
        let out = unsafe { &mut *lanes[3].piece(start, count, shift) };
        // SAFETY: as above; nobody writes them meanwhile.
        let operand = |index: usize| unsafe { &*lanes[index].piece(start, count, shift) };
        match work {
            Work::Count(first) => count_up(dtype, first + start as u64, out),
            Work::Gather(index) => self.memory[index as usize].gather(dtypes[0], operand(0), out),
            Work::Apply { kernel, widen: false, narrow: false } => kernel.run(operand, out),
            Work::Apply { kernel, widen: widens, narrow: narrows } => {
                wide.iter_mut().filter(|lines| lines.is_empty()).for_each(|lines| *lines = lines_of(PIECE));
                let [wide @ .., rounded] = wide;
                if widens {
                    for (index, wide) in wide.iter_mut().enumerate().take(kernel.operands()) {
                        let narrow = operand(index);
                        widen(dtypes[index], narrow, bytes_mut(wide, 2 * narrow.len()));
                    }
                }
                let operand = |index: usize| if widens { bytes(&wide[index], 2 * operand(index).len()) } else { operand(index) };
                if narrows {
                    let rounded = bytes_mut(rounded, 4 * count);
                    kernel.run(operand, rounded);
                    narrow(dtype, rounded, out);
                } else {
                    kernel.run(operand, out);
                }
            }
        }
    }
}
