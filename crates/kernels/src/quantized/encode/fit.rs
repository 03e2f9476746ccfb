//! Scales and levels of least error.
//!
//! A value `x` of weight `w` becomes `scale · level`, and in some formats an offset is added; the error is the sum of `w · (x − that)²`.
//! For given levels the best scale is that of least squares, so a search goes over scales that give levels, of which each gives a better scale.

use half::f16;

/// Values of one group are looked at in so many lanes, each with sums of its own.
const LANES: usize = 8;
/// What is smaller than this becomes zero: no format has a scale so small.
const NOTHING: f32 = 1e-12;

/// The levels of a format.
pub(super) trait Levels {
    /// The level of the greatest magnitude, and that of the other end.
    const ENDS: [f32; 2];

    fn nearest(x: f32) -> f32;
}

/// The whole numbers from `LOW` to `HIGH`.
pub(super) struct Whole<const LOW: i32, const HIGH: i32>;

impl<const LOW: i32, const HIGH: i32> Levels for Whole<LOW, HIGH> {
    const ENDS: [f32; 2] = [LOW as f32, HIGH as f32];

    #[inline(always)]
    fn nearest(x: f32) -> f32 {
        rounded(x.clamp(LOW as f32, HIGH as f32))
    }
}

/// To nearest even, below 2^22: where the unit in the last place is one. Vectorises without an instruction for it.
#[inline(always)]
fn rounded(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT) - SHIFT
}

/// The nearest f16; infinity beyond its range.
pub(super) fn narrow(x: f32) -> f32 {
    f16::from_f32(x).to_f32()
}

/// The nearest f16 that is no smaller in magnitude: among the least, the nearest may be far too small, or zero.
fn narrow_up(x: f32) -> f32 {
    let nearest = f16::from_f32(x);
    if nearest.to_f32().abs() < x.abs() { f16::from_bits(nearest.to_bits() + 1).to_f32() } else { nearest.to_f32() }
}

/// `1 / scale`, or zero where there is no scale.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale.abs() < NOTHING { 0.0 } else { 1.0 / scale }
}

/// Sums over all elements of what `each` makes of one.
#[inline(always)]
fn sums<const N: usize>(x: &[f32], w: &[f32], each: impl Fn(f32, f32) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0; LANES]; N];
    for (x, w) in x.as_chunks::<LANES>().0.iter().zip(w.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let terms = each(x[lane], w[lane]);
            for (sums, term) in lanes.iter_mut().zip(terms) {
                sums[lane] += term;
            }
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

/// `Σ w x q` and `Σ w q²` with the levels that a scale gives.
fn products<L: Levels>(x: &[f32], w: &[f32], scale: f32) -> [f32; 2] {
    let inverse = inverse(scale);
    sums(x, w, |x, w| {
        let q = L::nearest(x * inverse);
        [w * x * q, w * q * q]
    })
}

fn error<L: Levels>(x: &[f32], w: &[f32], scale: f32) -> f32 {
    let inverse = inverse(scale);
    let [error] = sums(x, w, |x, w| {
        let off = x - scale * L::nearest(x * inverse);
        [w * off * off]
    });
    error
}

/// The value of the greatest magnitude.
fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most })
}

/// Where searches put the extreme value, as multiples of the level at its end.
const REACHES: [f32; 9] = [0.82, 0.88, 0.93, 0.97, 1.0, 1.04, 1.09, 1.15, 1.22];

/// The scale of least error of a group.
pub(super) fn scale<L: Levels>(x: &[f32], w: &[f32]) -> f32 {
    let extreme = extreme(x);
    let (mut most, mut best) = (0.0, 0.0);
    if extreme.abs() < NOTHING {
        return best;
    }
    for reach in L::ENDS.iter().flat_map(|end| REACHES.map(|reach| reach * end)) {
        let mut scale = extreme / reach;
        // Levels give a better scale, and that better levels.
        for _ in 0..2 {
            let [xq, qq] = products::<L>(x, w, scale);
            if qq <= 0.0 {
                break;
            }
            scale = xq / qq;
            if xq * scale > most {
                (most, best) = (xq * scale, scale);
            }
        }
    }
    best
}

/// The levels that a scale gives.
pub(super) fn levels<L: Levels>(x: &[f32], scale: f32) -> impl Iterator<Item = i8> {
    let inverse = inverse(scale);
    x.iter().map(move |x| L::nearest(x * inverse) as i8)
}

/// Rounds in which the scales of a block of groups follow from each other.
const ROUNDS: usize = 4;

/// The unit of a block's scales, an f16, and for each of `N` groups a multiple of it from `low` to `high`.
pub(super) fn scales<L: Levels, const N: usize>(x: &[f32], w: &[f32], [low, high]: [f32; 2]) -> (f32, [f32; N]) {
    let group = x.len() / N;
    let groups = || x.chunks_exact(group).zip(w.chunks_exact(group));
    let mut ideal = [0.0; N];
    groups().zip(&mut ideal).for_each(|((x, w), ideal)| *ideal = scale::<L>(x, w));
    let (mut least, mut best) = (f32::INFINITY, (narrow_up(extreme(&ideal) / low), [0.0; N]));
    for end in [low, high] {
        let mut unit = narrow_up(extreme(&ideal) / end);
        for _ in 0..ROUNDS {
            let (mut total, mut multiples, mut sums) = (0.0, [0.0; N], [0.0; 2]);
            for (((x, w), ideal), multiple) in groups().zip(ideal).zip(&mut multiples) {
                let middle = rounded((ideal * inverse(unit)).clamp(low, high));
                let candidates = [middle - 1.0, middle, middle + 1.0].map(|m| m.clamp(low, high));
                let errors = candidates.map(|m| error::<L>(x, w, unit * m));
                let chosen = (0..3).fold(1, |chosen, i| if errors[i] < errors[chosen] { i } else { chosen });
                *multiple = candidates[chosen];
                total += errors[chosen];
                let [xq, qq] = products::<L>(x, w, unit * *multiple);
                sums[0] += *multiple * xq;
                sums[1] += *multiple * *multiple * qq;
            }
            if total >= least {
                break;
            }
            (least, best) = (total, (unit, multiples));
            if sums[1] <= 0.0 {
                break;
            }
            unit = narrow(sums[0] / sums[1]);
        }
    }
    best
}

/// The scale and the offset of least error of a group of levels 0 to `top`; the offset is at most `most`.
pub(super) fn line(x: &[f32], w: &[f32], top: f32, most: f32) -> [f32; 2] {
    let [weight, mean] = sums(x, w, |x, w| [w, w * x]);
    let mean = mean / weight;
    let low = x.iter().copied().fold(most, f32::min);
    let high = x.iter().copied().fold(low, f32::max);
    if high - low < NOTHING {
        return [0.0, low];
    }
    let mut best = [(high - low) / top, low];
    let mut least = line_error(x, w, top, best)[0];
    for reach in REACHES {
        let [mut scale, mut offset] = [(high - low) / (reach * top), low];
        for _ in 0..2 {
            let per = inverse(scale);
            let [q1, q2, xq] = sums(x, w, |x, w| {
                let q = rounded(((x - offset) * per).clamp(0.0, top));
                [w * q, w * q * q, w * (x - mean) * q]
            });
            // Around its mean a line needs no offset.
            let spread = q2 - q1 * q1 / weight;
            if spread <= 0.0 {
                break;
            }
            scale = xq / spread;
            offset = mean - scale * q1 / weight;
            if offset > most {
                scale = (xq + (mean - most) * q1) / q2;
                offset = most;
            }
            let error = line_error(x, w, top, [scale, offset])[0];
            if error < least {
                (least, best) = (error, [scale, offset]);
            }
        }
    }
    best
}

/// The error of a line, and `Σ w (scale · q − x)` with the levels it gives.
pub(super) fn line_error(x: &[f32], w: &[f32], top: f32, [scale, offset]: [f32; 2]) -> [f32; 2] {
    let per = inverse(scale);
    sums(x, w, |x, w| {
        let above = scale * rounded(((x - offset) * per).clamp(0.0, top)) - x;
        [w * (above + offset) * (above + offset), w * above]
    })
}

/// The levels that a line gives.
pub(super) fn line_levels(x: &[f32], top: f32, [scale, offset]: [f32; 2]) -> impl Iterator<Item = u8> {
    let per = inverse(scale);
    x.iter().map(move |x| rounded(((x - offset) * per).clamp(0.0, top)) as u8)
}

/// The lines of a block's groups: `units[0] · multiples[g][0]` is the scale of group `g`, `−units[1] · multiples[g][1]` its offset.
pub(super) struct Lines<const N: usize> {
    pub(super) units: [f32; 2],
    pub(super) multiples: [[f32; 2]; N],
}

impl<const N: usize> Lines<N> {
    pub(super) fn line(&self, group: usize) -> [f32; 2] {
        let [scale, offset] = self.multiples[group];
        [self.units[0] * scale, -(self.units[1] * offset)]
    }
}

/// The lines of least error with levels 0 to `top` and multiples 0 to `high`.
pub(super) fn lines<const N: usize>(x: &[f32], w: &[f32], top: f32, high: f32) -> Lines<N> {
    let group = x.len() / N;
    let groups = || x.chunks_exact(group).zip(w.chunks_exact(group));
    let mut ideal = [[0.0; 2]; N];
    groups().zip(&mut ideal).for_each(|((x, w), ideal)| *ideal = line(x, w, top, 0.0));
    let most = |part: fn(&[f32; 2]) -> f32| ideal.iter().map(part).fold(0.0, f32::max);
    let mut units = [most(|line| line[0]), most(|line| -line[1])].map(|most| narrow_up(most / high));
    let (mut least, mut best) = (f32::INFINITY, Lines { units, multiples: [[0.0; 2]; N] });
    for _ in 0..ROUNDS {
        let (mut total, mut multiples, mut sums) = (0.0, [[0.0; 2]; N], [0.0; 5]);
        for (((x, w), [scale, offset]), chosen) in groups().zip(ideal).zip(&mut multiples) {
            let (error, multiple) = group_line(x, w, top, high, units, [scale, offset]);
            *chosen = multiple;
            total += error;
            let terms = line_products(x, w, top, units, multiple);
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        if total >= least {
            break;
        }
        (least, best) = (total, Lines { units, multiples });
        let [aa, ab, bb, xa, xb] = sums.map(f64::from);
        let determinant = aa * bb - ab * ab;
        units = if determinant > 1e-6 * aa * bb {
            [narrow(((xa * bb - xb * ab) / determinant) as f32), narrow(((xa * ab - xb * aa) / determinant) as f32)]
        } else if aa > 0.0 {
            [narrow((xa / aa) as f32), units[1]]
        } else {
            break;
        };
    }
    best
}

/// The best multiples of a group near its own line, with their error.
fn group_line(x: &[f32], w: &[f32], top: f32, high: f32, units: [f32; 2], [scale, offset]: [f32; 2]) -> (f32, [f32; 2]) {
    let weight: f32 = w.iter().sum();
    let multiple = |value: f32, unit: f32| rounded((value * inverse(unit)).clamp(0.0, high));
    let middle = multiple(scale, units[0]);
    let (mut least, mut best) = (f32::INFINITY, [middle, 0.0]);
    for candidate in [middle, middle - 1.0, middle + 1.0] {
        let scale = units[0] * candidate.clamp(0.0, high);
        let mut below = multiple(-offset, units[1]);
        // The levels of an offset give a better one.
        for _ in 0..3 {
            let [error, above] = line_error(x, w, top, [scale, -(units[1] * below)]);
            if error < least {
                (least, best) = (error, [candidate.clamp(0.0, high), below]);
            }
            let better = multiple(above / weight, units[1]);
            if better == below {
                break;
            }
            below = better;
        }
    }
    (least, best)
}

/// The sums from which least squares get both units: of `a = multiple · q` and the offset's multiple `b`, `Σ w a²`, `Σ w a b`, `Σ w b²`, `Σ w x a`,
/// `Σ w x b`.
fn line_products(x: &[f32], w: &[f32], top: f32, units: [f32; 2], [multiple, below]: [f32; 2]) -> [f32; 5] {
    let (per, offset) = (inverse(units[0] * multiple), -(units[1] * below));
    sums(x, w, |x, w| {
        let a = multiple * rounded(((x - offset) * per).clamp(0.0, top));
        [w * a * a, w * a * below, w * below * below, w * x * a, w * x * below]
    })
}
