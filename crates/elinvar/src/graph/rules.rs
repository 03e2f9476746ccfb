//! Where fused operators may stand.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties};
use elinvar_kernels::{
    Operator, Precision,
    attention::{
        Attention, Scoring,
        decode::DecodeAttention,
        paged::{PagedAttention, decode::PagedDecodeAttention},
    },
    binary::{Binary, BinaryOp},
    cross_entropy::{CrossEntropy, CrossEntropyGradient, LossReduction},
    kv_append::KvAppend,
    lora_rows::{self, LoraRows},
    matmul::{MatMul, MatMulAdd},
    norm_gradient::NormGradient,
    projection::Projection,
    quantized_linear::QuantizedLinear,
    rms_norm::{AddRmsNorm, RmsNorm},
    rope::Rope,
    rope_append::RopeAppend,
    swiglu::SwiGlu,
};

use super::{
    node::{Graph, Node},
    value::{Operand, Value},
};

/// A fused operator, what it would take, and the values that its outputs would be.
pub(super) struct Proposal {
    pub(super) operator: Arc<dyn Operator>,
    pub(super) inputs: Vec<Option<Operand>>,
    pub(super) outputs: Vec<Value>,
}

/// What may end at a node, the best first.
type Rule = fn(&Graph, usize, &DeviceProperties) -> Vec<Proposal>;

/// In the order in which they look at the whole graph.
pub(super) const RULES: &[Rule] = &[attention, normalised, added, normalised_sum, product_sum, gradient_sum, loss, adapted];

/// Attention of queries that were rotated, over caches to which rotated keys and values were appended.
fn attention(graph: &Graph, index: usize, device: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let node = &graph.nodes[index];
        let (whole, paged) = (node.operator::<Attention>(), node.operator::<PagedAttention>());
        (whole.is_some() || paged.is_some()).then_some(())?;
        let [rotated, keys, values] = [0, 1, 2].map(|input| node.input(input));
        let (rope, [queries, positions, frequencies]) = rotation(graph, rotated?.value)?;
        let appended = |cache: Value| {
            let last = graph.nodes[..index].iter().rev().find(|node| node.changes().any(|value| value == cache))?;
            last.operator::<KvAppend>()?;
            Some([last.input(0)?, last.input(1)?, last.input(2)?])
        };
        let ([cache, keys, slots], [value_cache, values, _]) = (appended(keys?.value)?, appended(values?.value)?);
        let (_, [rows, ..]) = rotation(graph, keys.value)?;
        let interleaved = rope.interleaved;
        let mut inputs: Vec<Option<Operand>> = [cache, rows, positions, frequencies, value_cache, values, queries].map(Some).into();
        let mut proposals = Vec::new();
        let result = vec![node.result()?];
        let infos = |inputs: &[Option<Operand>]| inputs.iter().map(|input| input.map(|input| input.info)).collect::<Vec<_>>();
        if let Some(&Attention { scoring, precision, output, .. }) = whole {
            let is_one_token = queries.info.shape().rank() == 3 && queries.info.shape()[0] == 1;
            let Scoring { scale, softcap, left_window, .. } = scoring;
            let operator = DecodeAttention { scale, softcap, left_window, interleaved, precision, output };
            if is_one_token && device.has_simdgroups() && operator.gains(&infos(&inputs), device) {
                proposals.push(Proposal { operator: Arc::new(operator), inputs: inputs.clone(), outputs: result });
            }
        } else if let Some(&PagedAttention { scale, softcap, left_window, page, precision, output }) = paged {
            inputs.push(Some(slots));
            let operator = PagedDecodeAttention { scale, softcap, left_window, page, interleaved, precision, output };
            let with_table = [&inputs[..], &[node.input(3)]].concat();
            if operator.gains(&infos(&with_table), device) {
                proposals.push(Proposal { operator: Arc::new(operator), inputs: with_table, outputs: result });
            }
        }
        proposals.push(Proposal { operator: Arc::new(RopeAppend { interleaved }), inputs, outputs: Vec::new() });
        Some(proposals)
    };
    propose().unwrap_or_default()
}

/// The rotation whose result this is, and what it takes.
fn rotation(graph: &Graph, value: Value) -> Option<(Rope, [Operand; 3])> {
    let node = &graph.nodes[graph.producer(value)?.0];
    Some((*node.operator::<Rope>()?, [node.input(0)?, node.input(1)?, node.input(2)?]))
}

/// A linear layer that a launch may take together with others and what stands around them.
struct Linear {
    x: Operand,
    weight: Operand,
    bias: Option<Operand>,
    /// The operator of a quantised weight.
    quantized: Option<QuantizedLinear>,
    precision: Precision,
    result: Value,
}

impl Linear {
    fn at(graph: &Graph, index: usize, device: &DeviceProperties) -> Option<Self> {
        let node = &graph.nodes[index];
        let (x, weight) = (node.input(0)?, node.input(1)?);
        // Quantised rows are shared by the layers whatever their number.
        let mut gains = true;
        let (bias, quantized, precision) = if let Some(product) = node.operator::<MatMul>() {
            let is_plain = product.transpose_b && !product.transpose_a && product.alpha == 1.0 && product.output.is_none();
            gains = Projection::gains(product.precision, rows(&x), weight.seen(), device);
            is_plain.then(|| (node.input(2), None, product.precision))?
        } else {
            let quantized: QuantizedLinear = *node.operator()?;
            let is_alone = quantized.epsilon.is_none() && !quantized.gated && quantized.output.is_none();
            let is_plain = is_alone && node.outputs.len() == 1 && node.input(8).is_none();
            is_plain.then(|| (node.input(4), Some(quantized), quantized.precision))?
        };
        let fits = x.info.dtype == DType::F32 && gains && weight.info.shape().rank() == 2;
        fits.then_some(Linear { x, weight, bias, quantized, precision, result: node.result()? })
    }

    fn of(graph: &Graph, value: Value, device: &DeviceProperties) -> Option<Self> {
        Self::at(graph, graph.producer(value)?.0, device)
    }

    /// Whether one launch takes both.
    fn is_like(&self, other: &Linear) -> bool {
        let types = |linear: &Linear| {
            (linear.quantized.map(|of| of.format), linear.precision, linear.weight.info.dtype, linear.bias.map(|bias| bias.info.dtype))
        };
        types(self) == types(other)
    }
}

fn rows(x: &Operand) -> usize {
    x.info.elements() / x.info.shape().last().copied().unwrap_or(1).max(1)
}

/// What stands around linear layers of one input.
#[derive(Default)]
struct Around {
    epsilon: Option<f32>,
    norm: Option<Operand>,
    gated: bool,
    residual: Option<Operand>,
}

fn projection(x: Operand, linears: &[Linear], Around { epsilon, norm, gated, residual }: Around, outputs: Vec<Value>) -> Proposal {
    let weights = [0, 1, 2].map(|index| linears.get(index).map(|linear| linear.weight));
    let biases = [0, 1, 2].map(|index| linears.get(index).and_then(|linear| linear.bias));
    let (first, last) = (vec![Some(x)], vec![residual]);
    match linears.first().and_then(|linear| linear.quantized) {
        None => {
            let inputs = [first, vec![norm], weights.into(), biases.into(), last].concat();
            let precision = linears.first().map_or(Precision::Strict, |linear| linear.precision);
            Proposal { operator: Arc::new(Projection { epsilon, gated, precision, output: None }), inputs, outputs }
        }
        Some(quantized) => {
            let inputs = [first, weights.into(), biases.into(), vec![norm], last].concat();
            Proposal { operator: Arc::new(QuantizedLinear { epsilon, gated, ..quantized }), inputs, outputs }
        }
    }
}

/// Linear layers of normalised rows, gated or not.
fn normalised(graph: &Graph, index: usize, device: &DeviceProperties) -> Vec<Proposal> {
    let node = &graph.nodes[index];
    let (Some(norm), Some(x), Some(y)) = (node.operator::<RmsNorm>(), node.input(0), node.result()) else { return Vec::new() };
    let mut linears: Vec<_> = graph.users(y).filter_map(|user| Linear::at(graph, user, device)).filter(|linear| linear.x.value == y).collect();
    let around = |gated| Around { epsilon: Some(norm.epsilon), norm: node.input(1), gated, residual: None };
    let gate = graph.nodes.iter().find_map(|node| {
        node.operator::<SwiGlu>()?;
        let [gate, up] = [0, 1].map(|input| Linear::of(graph, node.input(input)?.value, device));
        let (gate, up) = (gate?, up?);
        (gate.x.value == y && up.x.value == y && gate.is_like(&up)).then_some((gate, up, node.result()?))
    });
    let mut proposals = Vec::new();
    if let Some((gate, up, result)) = gate {
        linears.retain(|linear| linear.result != gate.result && linear.result != up.result);
        proposals.push(projection(x, &[gate, up], around(true), vec![result]));
    }
    // Between layers that are alike there may be others, such as those of an adapter.
    let mut groups: Vec<Vec<Linear>> = Vec::new();
    for linear in linears {
        match groups.iter_mut().find(|group| group.len() < 3 && group[0].is_like(&linear)) {
            Some(group) => group.push(linear),
            None => groups.push(vec![linear]),
        }
    }
    for group in groups {
        proposals.push(projection(x, &group, around(false), group.iter().map(|linear| linear.result).collect()));
    }
    proposals
}

/// A linear layer and the residual it is added to.
fn added(graph: &Graph, index: usize, device: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let node = &graph.nodes[index];
        let (residual, y) = (node.input(0)?, node.input(1)?);
        let is_sum = node.operator::<Binary>()?.op == BinaryOp::Add;
        let linear = Linear::of(graph, y.value, device).filter(|linear| is_sum && graph.is_only_for(linear.result, index))?;
        let (x, result) = (linear.x, node.result()?);
        Some(projection(x, &[linear], Around { residual: Some(residual), ..Around::default() }, vec![result]))
    };
    propose().into_iter().collect()
}

/// A sum and its normalised rows.
fn normalised_sum(graph: &Graph, index: usize, _: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let node = &graph.nodes[index];
        let norm = node.operator::<RmsNorm>()?;
        let sum = &graph.nodes[graph.producer(node.input(0)?.value)?.0];
        (sum.operator::<Binary>()?.op == BinaryOp::Add).then_some(())?;
        let operator = Arc::new(AddRmsNorm { axis: norm.axis, epsilon: norm.epsilon });
        Some(Proposal { operator, inputs: vec![sum.input(0), sum.input(1), node.input(1)], outputs: vec![sum.result()?, node.result()?] })
    };
    propose().into_iter().collect()
}

/// A product and what it is added to, where a launch adds them.
fn product_sum(graph: &Graph, index: usize, device: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let (sum, addend, y) = sum(graph, index)?;
        let product = &graph.nodes[graph.producer(y.value).filter(|_| graph.is_only_for(y.value, index))?.0];
        let &MatMul { transpose_a, transpose_b, alpha, precision, output } = product.operator()?;
        let operator = MatMulAdd { transpose_a, transpose_b, alpha, precision, output };
        let inputs = vec![product.input(0), product.input(1), Some(addend)];
        let infos: Vec<_> = inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
        let fits = product.input(2).is_none() && operator.is_fused(&infos, device).is_ok_and(|is_fused| is_fused);
        fits.then(|| Proposal { operator: Arc::new(operator), inputs, outputs: vec![sum] })
    };
    propose().into_iter().collect()
}

/// The gradient of a norm and what it is added to.
fn gradient_sum(graph: &Graph, index: usize, _: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let (sum, addend, dx) = sum(graph, index)?;
        let norm = &graph.nodes[graph.producer(dx.value).filter(|_| graph.is_only_for(dx.value, index))?.0];
        let inputs = vec![norm.input(0), norm.input(1), norm.input(2), Some(addend)];
        let outputs = std::iter::once(sum).chain(norm.results().skip(1)).collect();
        Some(Proposal { operator: Arc::new(*norm.operator::<NormGradient>()?), inputs, outputs })
    };
    propose().into_iter().collect()
}

/// A cross-entropy and its gradient.
fn loss(graph: &Graph, index: usize, _: &DeviceProperties) -> Vec<Proposal> {
    let propose = || {
        let node = &graph.nodes[index];
        let gradient = *node.operator::<CrossEntropyGradient>().filter(|gradient| !gradient.with_loss && node.input(3).is_none())?;
        let logits = node.input(0)?;
        let is_loss = |user: &usize| graph.nodes[*user].operator::<CrossEntropy>().is_some_and(|loss| loss.reduction == LossReduction::None);
        let loss = graph.users(logits.value).find(is_loss)?;
        let outputs = vec![node.result()?, graph.nodes[loss].result()?];
        Some(Proposal { operator: Arc::new(CrossEntropyGradient { with_loss: true, ..gradient }), inputs: node.inputs.clone(), outputs })
    };
    propose().into_iter().collect()
}

/// Adapters of rows in linear layers of one input.
fn adapted(graph: &Graph, index: usize, _: &DeviceProperties) -> Vec<Proposal> {
    const SHARED: usize = 2;
    let of_one_layer = |index: usize| {
        let node = &graph.nodes[index];
        (node.operator::<LoraRows>().is_some() && node.outputs.len() == 1).then_some(node)
    };
    let Some(node) = of_one_layer(index) else { return Vec::new() };
    let is_like = |other: &&Node| other.inputs[..SHARED] == node.inputs[..SHARED];
    let layers: Vec<_> = (index..graph.nodes.len()).filter_map(of_one_layer).filter(is_like).take(lora_rows::LAYERS).collect();
    let propose = |count: usize| {
        let own = layers[..count].iter().flat_map(|layer| &layer.inputs[SHARED..]);
        let inputs = node.inputs[..SHARED].iter().chain(own).copied().collect();
        let outputs = layers[..count].iter().map(|layer| layer.result()).collect::<Option<_>>()?;
        Some(Proposal { operator: Arc::new(LoraRows), inputs, outputs })
    };
    (2..=layers.len()).rev().filter_map(propose).collect()
}

/// The result of an addition and its two operands.
fn sum(graph: &Graph, index: usize) -> Option<(Value, Operand, Operand)> {
    let node = &graph.nodes[index];
    let is_sum = node.operator::<Binary>()?.op == BinaryOp::Add;
    is_sum.then_some((node.result()?, node.input(0)?, node.input(1)?))
}
