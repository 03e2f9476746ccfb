//! Runs operations on lanes.

use elinvar_core::DType;

use super::{
    code::{Apply, Rule},
    slot::{Line, largest},
    strip::{Strip, bytes, bytes_mut, narrow, widen},
};

impl Strip<'_> {
    /// Runs an operation: whether its result was stored too.
    pub(super) fn apply(&mut self, apply: &Apply) -> bool {
        if self.active.is_none() {
            return false;
        }
        let from = &apply.from[..apply.count];
        if self.apply_to_known(apply) {
            return false;
        }
        from.iter().for_each(|&slot| self.fill(slot));
        let Self { slots, memory, tiles, active, lanes, .. } = self;
        let lanes = *lanes;
        let mut wide: [Vec<Line>; 3] = Default::default();
        if apply.widen {
            for (&slot, wide) in from.iter().zip(&mut wide) {
                let slot = &slots[slot as usize];
                *wide = tiles.take();
                widen(slot.dtype, slot.bytes(lanes), bytes_mut(wide, 4 * lanes));
            }
        }
        let operand = |index: usize| if apply.widen { bytes(&wide[index], 4 * lanes) } else { slots[apply.from[index] as usize].bytes(lanes) };
        let dtype = slots[apply.to as usize].dtype;
        let target = apply.stored.filter(|_| active.mask().is_none()).and_then(|(memory_index, index)| {
            let first = slots[index as usize].first?;
            memory[memory_index as usize].elements(first, lanes)
        });
        let (stored, mut made) = (target.is_some(), tiles.take());
        let place = target.unwrap_or_else(|| bytes_mut(&mut made, lanes * dtype.size()));
        if apply.narrow {
            let mut rounded = tiles.take();
            apply.kernel.run(operand, bytes_mut(&mut rounded, 4 * lanes));
            narrow(dtype, bytes(&rounded, 4 * lanes), place);
            tiles.give(rounded);
        } else {
            apply.kernel.run(operand, place);
        }
        wide.into_iter().for_each(|lines| tiles.give(lines));
        if stored {
            tiles.give(made);
        } else {
            self.commit(apply.to, apply.blend, made);
        }
        stored
    }

    /// The operation on operands of which enough is known to compute with that instead of their lanes.
    pub(super) fn apply_to_known(&mut self, apply: &Apply) -> bool {
        if apply.from[..apply.count].iter().all(|&slot| self.slots[slot as usize].uniform.is_some()) {
            let bits = self.apply_once(apply);
            self.set_uniform(apply.to, bits, apply.blend);
            return true;
        }
        apply.rule != Rule::None && self.apply_to_count(apply)
    }

    /// The operation on operands that are the same in every lane.
    fn apply_once(&self, apply: &Apply) -> u64 {
        let mut operands = [[0u64; 1]; 3];
        for (operand, &slot) in operands.iter_mut().zip(&apply.from[..apply.count]) {
            let slot = &self.slots[slot as usize];
            let bits = slot.uniform.unwrap_or(0);
            if apply.widen {
                let narrow = [bits];
                widen(slot.dtype, &bytemuck::bytes_of(&narrow)[..2], &mut bytemuck::bytes_of_mut(operand)[..4]);
            } else {
                *operand = [bits];
            }
        }
        let operand = |index: usize| {
            let size = if apply.widen { 4 } else { self.slots[apply.from[index] as usize].dtype.size() };
            &bytemuck::bytes_of(&operands[index])[..size]
        };
        let dtype = self.slots[apply.to as usize].dtype;
        let mut result = [0u64; 1];
        let out = &mut bytemuck::bytes_of_mut(&mut result)[..if apply.narrow { 4 } else { dtype.size() }];
        apply.kernel.run(operand, out);
        if apply.narrow {
            let wide = result;
            result = [0];
            narrow(dtype, &bytemuck::bytes_of(&wide)[..4], &mut bytemuck::bytes_of_mut(&mut result)[..2]);
        }
        result[0]
    }

    /// The operation where an operand's lanes count up, if what is known suffices.
    fn apply_to_count(&mut self, apply: &Apply) -> bool {
        let known = |slot: u32| (self.slots[slot as usize].first, self.slots[slot as usize].uniform);
        let (a, b) = (known(apply.from[0]), known(apply.from[1]));
        let last = self.lanes as u64 - 1;
        let result = self.slots[apply.to as usize].dtype;
        let operand = self.slots[apply.from[0] as usize].dtype;
        let fits = |first: u64, dtype: DType| largest(dtype).is_some_and(|most| first.checked_add(last).is_some_and(|end| end <= most));
        let positive = |uniform: u64| largest(operand).is_some_and(|most| uniform <= most);
        match (apply.rule, a, b) {
            (Rule::Same, (Some(first), _), _) if fits(first, result) => self.set_first(apply.to, first, apply.blend),
            (Rule::Add, (Some(first), _), (_, Some(other))) | (Rule::Add, (_, Some(other)), (Some(first), _)) if positive(other) => {
                match first.checked_add(other).filter(|&sum| fits(sum, result)) {
                    Some(sum) => self.set_first(apply.to, sum, apply.blend),
                    None => return false,
                }
            }
            (Rule::Sub, (Some(first), _), (_, Some(other))) if positive(other) && first >= other => {
                self.set_first(apply.to, first - other, apply.blend)
            }
            (Rule::Lt | Rule::Ge, (Some(first), _), (_, Some(limit))) if positive(limit) && (first + last < limit || first >= limit) => {
                let less = first < limit;
                self.set_uniform(apply.to, u64::from(less == (apply.rule == Rule::Lt)), apply.blend);
            }
            _ => return false,
        }
        true
    }
}
