//! Definitions in f64: every plain operator by what it means, one element at a time.

use elinvar_core::{DType, Error, Layout, Result};

use crate::{
    Definition, Operator, Scalar, Source, TensorInfo,
    attention::{self, gradient::AttentionGradient, oracle::Dims},
    attention_scores::AttentionScores,
    binary::Binary,
    cast::Cast,
    compare::Compare,
    copy::{Concat, Copy, Pad, Trilu},
    cross_entropy::{self, CrossEntropyGradient},
    cumsum::{self, CumSum},
    dequantize::Dequantize,
    elementwise::check::{broadcast, layout, shape, view},
    fill::{Arange, Fill},
    gather::{GatherElements, GatherNd},
    layer_norm::{self, LayerNorm},
    matmul::{self, MatMul},
    norm_gradient::{self, NormGradient},
    quantized::Format,
    quantized_linear::QuantizedLinear,
    reduce::{self, Reduce},
    rms_norm::{self, RmsNorm},
    rope::{self, Rope, RotaryEmbedding},
    scatter::{self, ScatterElements, ScatterNd},
    softmax::{self, Softmax, gradient::SoftmaxGradient},
    swiglu::{self, SwiGlu, gradient::SwiGluGradient},
    ternary::{Fma, Where},
    unary::{Unary, WithScalar},
};

/// Extents and elements, row-major.
struct Array {
    dims: Vec<usize>,
    values: Vec<f64>,
}

/// The outputs of a definition, row-major.
///
/// # Errors
/// A step that has no meaning here.
pub(super) fn evaluate(definition: &Definition, inputs: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    let mut results: Vec<Vec<Vec<f64>>> = Vec::new();
    let seen = |results: &[Vec<Vec<f64>>], operand: &crate::Operand| {
        let whole = match operand.source {
            Source::Input(index) => &inputs[index],
            Source::Step(step, output) => &results[step][output],
        };
        Array { dims: operand.info.shape().to_vec(), values: view(whole, &operand.info.layout) }
    };
    for step in &definition.steps {
        let taken: Vec<_> = step.inputs.iter().map(|operand| operand.as_ref().map(|operand| seen(&results, operand))).collect();
        let infos: Vec<_> =
            step.inputs.iter().map(|operand| operand.map(|operand| TensorInfo::of(operand.info.dtype, *operand.info.shape()))).collect();
        let given: Vec<_> = taken.iter().flatten().collect();
        let outputs: Vec<_> = step.operator.infer(&infos)?.iter().map(|info| info.shape().to_vec()).collect();
        if let Some(attention) = step.operator.downcast_ref::<AttentionGradient>() {
            results.push(attention_gradient(attention, &taken));
            continue;
        }
        if let Some(gradient) = step.operator.downcast_ref::<NormGradient>() {
            let elements = |index: usize| taken[index].as_ref().map_or(&[][..], |input| &*input.values);
            let dims = taken[0].as_ref().map_or(&[][..], |x| &*x.dims);
            results.push(norm_gradient::oracle::gradient(gradient, dims, elements(0), elements(1), elements(2)));
            continue;
        }
        if let Some(&SwiGluGradient { alpha }) = step.operator.downcast_ref() {
            let elements = |index: usize| taken[index].as_ref().map_or(&[][..], |input| &*input.values);
            let n = given[given.len() - 1].dims.last().copied().unwrap_or(1);
            results.push(swiglu::gradient::oracle::gradient(elements(0), elements(1), elements(2), n, alpha.into()));
            continue;
        }
        let found = reference(&*step.operator, &given, &taken, outputs.first().map_or(&[], |dims| dims));
        results.push(vec![found.ok_or_else(|| Error::internal(format!("{} is not evaluated in f64", step.operator.name())))?]);
    }
    Ok(definition.outputs.iter().map(|operand| seen(&results, operand).values).collect())
}

/// The first output of an operator: of the inputs that are there, and of all.
fn reference(operator: &dyn Operator, given: &[&Array], all: &[Option<Array>], dims: &[usize]) -> Option<Vec<f64>> {
    let spread = |index: usize| broadcast(&given[index].values, &given[index].dims, shape(dims));
    let values = |index: usize| given[index].values.clone();
    let optional = |index: usize| all.get(index).and_then(Option::as_ref);
    let elements = |index: usize| optional(index).map_or(&[][..], |input| &input.values);
    macro_rules! of {
        ($($operator:ident($it:pat) => $value:expr;)*) => {
            $(if let Some($it) = operator.downcast_ref::<$operator>() {
                return Some($value);
            })*
        };
    }
    let pairs = |op: &dyn Fn(f64, f64) -> f64| spread(0).into_iter().zip(spread(1)).map(|(a, b)| op(a, b)).collect();
    let triples = |op: &dyn Fn(f64, f64, f64) -> f64| spread(0).into_iter().zip(spread(1)).zip(spread(2)).map(|((a, b), c)| op(a, b, c)).collect();
    of! {
        Unary(Unary { op }) => values(0).into_iter().map(|x| op.reference([x])).collect();
        WithScalar(WithScalar { op, scalar }) => values(0).into_iter().map(|x| op.reference([x, f64::from(*scalar)])).collect();
        Binary(Binary { op }) => pairs(&|a, b| op.reference([a, b]));
        Compare(Compare { op }) => pairs(&|a, b| f64::from(u8::from(op.holds(a, b))));
        Fma(_) => triples(&|a, b, c| a.mul_add(b, c));
        Where(_) => triples(&|condition, a, b| if condition != 0.0 { a } else { b });
        Cast(Cast { to }) => values(0).into_iter().map(|x| if to.is_float() || *to == DType::Bool { x } else { x.trunc() }).collect();
        Copy(_) => values(0);
        Fill(fill) => vec![fill.value.to_f64(); dims.iter().product()];
        Arange(Arange { start, step, .. }) => (0..dims[0]).map(|i| start.to_f64() + i as f64 * step.to_f64()).collect();
        Concat(concat) => joined(given, concat.axis, dims);
        Pad(pad) => padded(given[0], pad, dims);
        Trilu(Trilu { upper, k }) => {
            let [.., rows, columns] = *dims else { return None };
            let kept = |at: usize| {
                let diagonal = (at % columns) as i64 - (at / columns % rows) as i64;
                if *upper { diagonal >= *k } else { diagonal <= *k }
            };
            values(0).into_iter().enumerate().map(|(at, x)| if kept(at) { x } else { 0.0 }).collect()
        };
        CumSum(CumSum { axis, exclusive, reverse }) => along(given[0], *axis, |row| cumsum::oracle::cumsum(row, *exclusive, *reverse));
        Softmax(Softmax { axis, log }) => along(given[0], *axis, |row| softmax::oracle::softmax(row, *log));
        Reduce(reduce) => reduced(given[0], reduce);
        MatMul(product) => multiplied(product, given, dims);
        RmsNorm(RmsNorm { axis, epsilon, .. }) => {
            let length = given[0].dims[axis_of(given[0], *axis)..].iter().product();
            rms_norm::oracle::rms_norm(&given[0].values, elements(1), length, (*epsilon).into())
        };
        LayerNorm(LayerNorm { axis, epsilon, .. }) => {
            let length = given[0].dims[axis_of(given[0], *axis)..].iter().product();
            let [y, ..] = layer_norm::oracle::layer_norm(&given[0].values, elements(1), elements(2), length, (*epsilon).into());
            y
        };
        SwiGlu(SwiGlu { alpha }) => pairs(&|a, b| a / (1.0 + (-f64::from(*alpha) * a).exp()) * b);
        AttentionScores(AttentionScores { scoring, softmax }) => {
            let ([batch, heads, queries, width], [_, kv_heads, keys, _]) = (&*given[0].dims, &*given[1].dims) else { return None };
            let [batch, heads, queries, width, kv_heads, keys] = [batch, heads, queries, width, kv_heads, keys].map(|extent| *extent);
            let d = Dims { batch, heads, kv_heads, queries, keys, width, value_width: 0 };
            let mask = optional(2).map_or(&[][..], |mask| &*mask.dims);
            let rest = [2, 3, 4].map(|index| elements(index).to_vec());
            let scores = attention::oracle::scores(scoring, d, mask, &given[0].values, &given[1].values, &rest);
            if *softmax { attention::oracle::probabilities(&scores, keys) } else { scores }
        };
        Dequantize(Dequantize { format, width, .. }) => decoded(*format, given[0], *width as usize)?;
        QuantizedLinear(QuantizedLinear { format, .. }) => {
            let (x, &[n, _]) = (given[0], &*given[1].dims) else { return None };
            let k = x.dims[x.dims.len() - 1];
            let weight = decoded(*format, given[1], k)?;
            let sums = matmul::oracle::product([x.values.len() / k, n, k], |r, l| x.values[r * k + l], |c, l| weight[c * k + l]);
            sums.iter().enumerate().map(|(at, sum)| sum + elements(4).get(at % n).unwrap_or(&0.0)).collect()
        };
        SoftmaxGradient(SoftmaxGradient { axis, log }) => {
            let pairs = [given[0], given[1]].map(|x| rows_along(x, *axis));
            let rows = pairs[0].iter().zip(&pairs[1]).map(|(y, dy)| softmax::gradient::oracle::gradient(y, dy, *log));
            placed_along(given[0], *axis, rows)
        };
        CrossEntropyGradient(CrossEntropyGradient { ignore_index, .. }) => {
            cross_entropy::oracle::gradient(&given[0].values, &given[1].values, &given[2].values, *ignore_index)
        };
        GatherElements(GatherElements { axis }) => {
            let (x, indices) = (given[0], given[1]);
            places(indices, x, axis_of(x, *axis)).map(|at| x.values[at]).collect()
        };
        ScatterElements(ScatterElements { axis, reduction }) => {
            let mut y = values(0);
            for (at, update) in places(given[1], given[0], axis_of(given[0], *axis)).zip(&given[2].values) {
                y[at] = scatter::oracle::combine(*reduction, y[at], *update);
            }
            y
        };
        GatherNd(GatherNd { batch_dims: 0 }) => slices(given[1], given[0]).into_iter().flat_map(|range| given[0].values[range].to_vec()).collect();
        ScatterNd(ScatterNd { reduction }) => {
            let mut y = values(0);
            let places = slices(given[1], given[0]).into_iter().flatten();
            for (at, update) in places.zip(&given[2].values) {
                y[at] = scatter::oracle::combine(*reduction, y[at], *update);
            }
            y
        };
        Rope(Rope { interleaved }) => {
            let [.., tokens, heads, dim] = *dims else { return None };
            let (positions, frequencies) = (given[1], given[2]);
            rotated(given[0], [dim, *interleaved as usize], |row, pair| {
                let position = positions.values[row / heads % if positions.dims.len() == 1 { tokens } else { positions.values.len() }];
                rope::oracle::angle(position, frequencies.values[pair]).sin_cos()
            }, frequencies.values.len())
        };
        RotaryEmbedding(rotation) => {
            let (batch, tokens, heads) = match *dims { [batch, heads, tokens, _] => (batch, tokens, heads), _ => (dims[0], dims[1], rotation.num_heads) };
            let (dim, half) = (given[0].values.len() / (batch * tokens * heads), given[1].dims[given[1].dims.len() - 1]);
            rotated(given[0], [dim, rotation.interleaved as usize], |row, pair| {
                let token = if dims.len() == 4 { row / (heads * tokens) * tokens + row % tokens } else { row / heads };
                let cached = optional(3).map_or(token, |positions| positions.values[token % positions.values.len()] as usize);
                (given[2].values[cached * half + pair], given[1].values[cached * half + pair])
            }, half)
        };
    }
    None
}

fn attention_gradient(operator: &AttentionGradient, inputs: &[Option<Array>]) -> Vec<Vec<f64>> {
    let dims = |index: usize| inputs[index].as_ref().map_or(&[0; 4][..], |input| &*input.dims);
    let elements = |index: usize| inputs[index].as_ref().map_or(&[][..], |input| &*input.values);
    let ([batch, heads, queries, width], [kv_heads, keys], value_width) =
        ([0, 1, 2, 3].map(|axis| dims(0)[axis]), [1, 2].map(|axis| dims(1)[axis]), dims(2)[3]);
    let d = Dims { batch, heads, kv_heads, queries, keys, width, value_width };
    let mask = inputs[3].as_ref().map_or(&[][..], |mask| &*mask.dims);
    let rest = [3, 4, 5].map(|index| elements(index).to_vec());
    attention::gradient::oracle::gradient(operator, d, mask, &[0, 1, 2, 6, 7].map(elements), &rest).into()
}

/// Packed rows as numbers.
fn decoded(format: Format, rows: &Array, width: usize) -> Option<Vec<f64>> {
    let mut values = vec![0f32; rows.dims[0] * width];
    let bytes: Vec<_> = rows.values.iter().map(|byte| *byte as u8).collect();
    for (row, values) in bytes.chunks_exact(rows.dims[1].max(1)).zip(values.chunks_exact_mut(width.max(1))) {
        format.decode_packed(row, values).ok()?;
    }
    Some(values.into_iter().map(f64::from).collect())
}

fn axis_of(x: &Array, axis: isize) -> usize {
    if axis < 0 { (axis + x.dims.len() as isize) as usize } else { axis as usize }
}

/// Something made of each row along an axis.
fn along(x: &Array, axis: isize, of: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    placed_along(x, axis, rows_along(x, axis).iter().map(|row| of(row)))
}

/// Where each row along an axis starts, how long it is and how far its elements are apart.
fn starts(x: &Array, axis: isize) -> (impl Iterator<Item = usize> + use<>, usize, usize) {
    let axis = axis_of(x, axis);
    let (n, inner) = (x.dims[axis], x.dims[axis + 1..].iter().product::<usize>());
    ((0..x.values.len()).filter(move |at| n > 0 && at / inner % n == 0), n, inner)
}

fn rows_along(x: &Array, axis: isize) -> Vec<Vec<f64>> {
    let (starts, n, inner) = starts(x, axis);
    starts.map(|start| (0..n).map(|k| x.values[start + k * inner]).collect()).collect()
}

fn placed_along(x: &Array, axis: isize, rows: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
    let (starts, _, inner) = starts(x, axis);
    let mut y = vec![0.0; x.values.len()];
    starts.zip(rows).for_each(|(start, row)| row.into_iter().enumerate().for_each(|(k, value)| y[start + k * inner] = value));
    y
}

/// Of each element of a tensor of `from` the place of the same coordinates, changed, in one of `to`.
fn moved<'a>(from: &'a [usize], to: &'a [usize], change: impl Fn(usize, usize) -> isize + 'a) -> impl Iterator<Item = Option<usize>> + 'a {
    (0..from.iter().product()).map(move |at: usize| {
        let (mut rest, mut place, mut step) = (at, 0, 1);
        for axis in (0..from.len()).rev() {
            let coordinate = usize::try_from(change(axis, rest % from[axis])).ok().filter(|&coordinate| coordinate < to[axis])?;
            place += coordinate * step;
            step *= to[axis];
            rest /= from[axis];
        }
        Some(place)
    })
}

fn joined(parts: &[&Array], axis: isize, dims: &[usize]) -> Vec<f64> {
    let mut y = vec![0.0; dims.iter().product()];
    let (axis, mut start) = (axis_of(parts[0], axis), 0);
    for part in parts {
        let places = moved(&part.dims, dims, |at, coordinate| (coordinate + if at == axis { start } else { 0 }) as isize);
        places.zip(&part.values).for_each(|(place, value)| place.into_iter().for_each(|place| y[place] = *value));
        start += part.dims[axis];
    }
    y
}

fn padded(x: &Array, pad: &Pad, dims: &[usize]) -> Vec<f64> {
    let mut y = vec![Scalar::to_f64(pad.value); dims.iter().product()];
    let places = moved(&x.dims, dims, |axis, coordinate| coordinate as isize + pad.before[axis]);
    places.zip(&x.values).for_each(|(place, value)| place.into_iter().for_each(|place| y[place] = *value));
    y
}

fn reduced(x: &Array, reduce: &Reduce) -> Vec<f64> {
    let axes: Vec<_> = reduce.axes.iter().map(|&axis| axis_of(x, axis)).collect();
    let kept: Vec<_> = (0..x.dims.len()).map(|axis| if axes.is_empty() || axes.contains(&axis) { 1 } else { x.dims[axis] }).collect();
    let mut rows = vec![Vec::new(); kept.iter().product()];
    let places = moved(&x.dims, &kept, |axis, coordinate| if kept[axis] == 1 { 0 } else { coordinate as isize });
    places.zip(&x.values).for_each(|(place, value)| place.into_iter().for_each(|place| rows[place].push(*value)));
    rows.iter().map(|row| reduce::oracle::reduce(reduce.reduction, row)).collect()
}

/// Heads of `dim` elements, each pair rotated by a sine and a cosine.
fn rotated(x: &Array, [dim, interleaved]: [usize; 2], of: impl Fn(usize, usize) -> (f64, f64), half: usize) -> Vec<f64> {
    let mut y = x.values.clone();
    for (row, y) in y.chunks_exact_mut(dim).enumerate() {
        for pair in 0..half {
            let [i, j] = if interleaved == 1 { [2 * pair, 2 * pair + 1] } else { [pair, pair + half] };
            let ((sin, cos), u, v) = (of(row, pair), y[i], y[j]);
            (y[i], y[j]) = (u * cos - v * sin, v * cos + u * sin);
        }
    }
    y
}

/// The product of matrices, their batches broadcast.
fn multiplied(product: &MatMul, given: &[&Array], dims: &[usize]) -> Vec<f64> {
    let matrices = |x: &Array, transposed: bool, is_row: bool| -> (Layout, [usize; 2]) {
        let dims = match *x.dims {
            [n] if is_row => vec![1, n],
            [n] => vec![n, 1],
            _ => x.dims.clone(),
        };
        let mut axes: Vec<_> = (0..dims.len()).collect();
        if transposed && x.dims.len() > 1 {
            axes.swap(dims.len() - 2, dims.len() - 1);
        }
        let view = layout(&dims).permute(&axes).unwrap_or_else(|e| unreachable!("{e}"));
        (view, [view.shape()[dims.len() - 2], view.shape()[dims.len() - 1]])
    };
    let (a, [m, k]) = matrices(given[0], product.transpose_a, true);
    let (b, [_, n]) = matrices(given[1], product.transpose_b, false);
    let vectors = given[..2].iter().filter(|x| x.dims.len() == 1).count();
    let batch = &dims[..dims.len() - (2 - vectors)];
    let whole = |view: &Layout, values: &[f64], rows: usize, columns: usize| {
        let all = view.broadcast_to(shape(&[batch, &[rows, columns]].concat())).unwrap_or_else(|e| unreachable!("{e}"));
        self::view(values, &all)
    };
    let (a, b) = (whole(&a, &given[0].values, m, k), whole(&b, &given[1].values, k, n));
    let one = |i: usize| matmul::oracle::product([m, n, k], |r, l| a[(i * m + r) * k + l], |c, l| b[(i * k + l) * n + c]);
    let sums = (0..batch.iter().product()).flat_map(one);
    sums.enumerate().map(|(at, sum)| f64::from(product.alpha) * sum + given.get(2).map_or(0.0, |bias| bias.values[at % n])).collect()
}

fn wrapped(index: f64, extent: usize) -> usize {
    (index as i64).rem_euclid(extent as i64) as usize
}

/// The elements of `x` that indices along an axis name.
fn places(indices: &Array, x: &Array, axis: usize) -> impl Iterator<Item = usize> {
    let named = indices.values.iter().enumerate().map(|(at, &index)| {
        let (mut rest, mut place, mut step) = (at, 0, 1);
        for other in (0..x.dims.len()).rev() {
            place += step * if other == axis { wrapped(index, x.dims[axis]) } else { rest % indices.dims[other] };
            step *= x.dims[other];
            rest /= indices.dims[other];
        }
        place
    });
    named.collect::<Vec<_>>().into_iter()
}

/// The slices of `x` that tuples name.
fn slices(indices: &Array, x: &Array) -> Vec<std::ops::Range<usize>> {
    let count = indices.dims[indices.dims.len() - 1];
    let inner: usize = x.dims[count..].iter().product();
    let start = |tuple: &[f64]| tuple.iter().zip(&x.dims).fold(0, |at, (&index, &extent)| at * extent + wrapped(index, extent)) * inner;
    indices.values.chunks_exact(count).map(|tuple| start(tuple)..start(tuple) + inner).collect()
}
