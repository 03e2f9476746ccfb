//! The passes, each on graphs that a recorder wrote down for the null device.

use std::sync::{Arc, Mutex};

use elinvar_core::{Backend, Command, CommandList, DType, Device, DeviceKind, DeviceProperties, NullBackend, RawBuffer, Result, Storage, forward};
use elinvar_group::Group;
use elinvar_kernels::{
    Precision,
    attention::{Attention, Scoring, paged::PagedAttention},
    cuda::CudaFeatures,
    lora_rows::LoraRows,
    quantized::Format,
};

use crate::{backend::BackendType, executor::Executor, graph::Recording, tensor::Tensor};

fn null() -> Executor {
    Executor::new_with_backend(BackendType::Null).unwrap()
}

/// The kernels' operators, in order.
fn kernels(recording: &Recording) -> Vec<String> {
    names(&recording.list)
}

fn names(list: &CommandList) -> Vec<String> {
    let name = |command: &Command| match command {
        Command::Dispatch(dispatch) => dispatch.pipeline.source().key.operator.to_string(),
        Command::Copy { .. } => "copy".to_owned(),
        Command::Fill { .. } => "fill".to_owned(),
    };
    list.commands().iter().map(name).collect()
}

struct Weights {
    executor: Executor,
    norm: Tensor,
    q: Tensor,
    k: Tensor,
}

impl Weights {
    fn new(executor: &Executor) -> Self {
        let zeros = |dtype, dims: &[usize]| executor.zeros(dtype, dims).unwrap();
        let (norm, q, k) = (zeros(DType::F32, &[64]), zeros(DType::BF16, &[64, 64]), zeros(DType::BF16, &[32, 64]));
        Self { executor: executor.clone(), norm, q, k }
    }

    fn x(&self, rows: usize) -> Tensor {
        self.executor.zeros(DType::F32, &[rows, 64]).unwrap()
    }

    fn recorded<T>(&self, rows: usize, body: impl FnOnce(&Tensor) -> Result<T>) -> Vec<String> {
        let x = self.x(rows);
        kernels(&self.executor.record(|recorded| body(&x.on(recorded)?)).unwrap().0)
    }
}

#[test]
fn linear_layers_of_normalised_rows_are_one_launch_for_a_few_rows() {
    let w = Weights::new(&null());
    let body = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        Ok((normalised.linear(&w.q, None)?, normalised.linear(&w.k, None)?))
    };
    assert_eq!(w.recorded(1, body), ["projection"]);
    assert_eq!(w.recorded(9, body), ["rms_norm", "matmul_fixed", "matmul_fixed"]);
    let gated = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        x.add(&normalised.linear(&w.q, None)?.swiglu(&normalised.linear(&w.q, None)?)?.linear(&w.q, None)?)
    };
    assert_eq!(w.recorded(1, gated), ["projection", "projection"]);
}

#[test]
fn quantised_layers_of_normalised_rows_are_one_launch() {
    let executor = null();
    let w = Weights::new(&executor);
    let width = Format::Q4_0.packed_row_bytes(64).unwrap();
    let [q, k] = [64, 32].map(|rows| executor.zeros(DType::U8, &[rows, width]).unwrap());
    let other = executor.zeros(DType::U8, &[64, Format::Q8_0.packed_row_bytes(64).unwrap()]).unwrap();
    let bias = executor.zeros(DType::F32, &[32]).unwrap();
    let body = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        let layers = (normalised.quantized_linear(&q, None, Format::Q4_0)?, normalised.quantized_linear(&q, None, Format::Q4_0)?);
        Ok((layers, normalised.quantized_linear(&other, None, Format::Q8_0)?, normalised.quantized_linear(&k, Some(&bias), Format::Q4_0)?))
    };
    // One for each format and kind of bias; on a device without simdgroups a launch is planned as its parts.
    let launches = w.recorded(1, body);
    assert_eq!(launches.iter().filter(|name| name.starts_with("quantized_linear")).count(), 3, "{launches:?}");
    assert_eq!(launches.iter().filter(|name| *name == "rms_norm").count(), 0, "{launches:?}");
    let gated = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        let layer = || normalised.quantized_linear(&q, None, Format::Q4_0);
        x.add(&layer()?.swiglu(&layer()?)?.quantized_linear(&q, None, Format::Q4_0)?)
    };
    assert_eq!(w.recorded(1, gated), ["quantized_linear_Q4_0"; 2]);
}

#[test]
fn wanted_results_are_not_fused_away() {
    let w = Weights::new(&null());
    // The normalised rows are wanted too: they are computed once more.
    let both = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        Ok((normalised.linear(&w.q, None)?, normalised))
    };
    assert_eq!(w.recorded(1, both), ["rms_norm", "projection"]);
    // So is the product that a residual is added to.
    let product = |x: &Tensor| {
        let y = x.linear(&w.q, None)?;
        Ok((x.add(&y)?, y))
    };
    assert_eq!(w.recorded(1, product), ["matmul", "add"]);
    // A sum that broadcasts is no residual.
    let row = w.x(1);
    assert_eq!(w.recorded(2, |x| row.add(&x.linear(&w.q, None)?)), ["matmul", "add"]);
}

#[test]
fn sums_are_normalised_in_one_launch_with_many_rows() {
    let w = Weights::new(&null());
    let body = |x: &Tensor| {
        let sum = x.add(x)?;
        Ok((sum.rms_norm(Some(&w.norm), 1e-5)?, sum))
    };
    assert_eq!(w.recorded(100, body), ["add_rms_norm"]);
}

#[test]
fn chains_of_the_same_operands_are_programs_of_their_own() {
    let executor = null();
    let [a, b] = [(); 2].map(|()| executor.zeros(DType::F32, &[100]).unwrap());
    let (recording, ()) = executor
        .record(|recorded| {
            let a = a.on(recorded)?;
            (0..3).try_for_each(|_| a.silu()?.mul(&b)?.add(&a).map(drop))
        })
        .unwrap();
    let parameters = |command: &Command| match command {
        Command::Dispatch(dispatch) => dispatch.bindings.len(),
        Command::Copy { .. } | Command::Fill { .. } => 0,
    };
    assert_eq!(recording.list.commands().iter().map(parameters).collect::<Vec<_>>(), [3; 3]);
}

/// Attention over caches, with something done to the keys' cache between.
fn attend(tokens: usize, heads: usize, between: impl Fn(&Tensor) -> Result<()>) -> Vec<String> {
    let executor = null();
    let zeros = |dtype, dims: &[usize]| executor.zeros(dtype, dims).unwrap();
    let rows = |heads: usize| zeros(DType::F32, &[tokens * heads * 32]);
    let (keys, values) = (zeros(DType::F16, &[2, 128, 32]), zeros(DType::F16, &[2, 128, 32]));
    let (positions, frequencies) = (zeros(DType::I32, &[tokens]), zeros(DType::F32, &[16]));
    let (q, k, v) = (rows(heads), rows(2), rows(2));
    let (recording, _) = executor
        .record(|recorded| {
            let made = |x: &Tensor, heads: usize| x.on(recorded)?.neg()?.reshape(&[tokens, heads, 32]);
            let (q, k, v) = (made(&q, heads)?, made(&k, 2)?, made(&v, 2)?);
            keys.kv_append(&k.rope(&positions, &frequencies)?, &positions)?;
            between(&keys.on(recorded)?)?;
            values.kv_append(&v, &positions)?;
            let queries = q.rope(&positions, &frequencies)?.reshape(&[1, tokens, heads, 32])?.transpose(1, 2)?;
            let attention =
                Attention { scoring: Scoring { causal: true, ..Scoring::default() }, tokens_first: true, precision: Precision::Strict, output: None };
            let whole = |cache: &Tensor| cache.reshape(&[1, 2, 128, 32]);
            queries.attention(&attention, &whole(&keys)?, &whole(&values)?, None, Some(&positions))
        })
        .unwrap();
    kernels(&recording).split_off(3)
}

#[test]
fn a_token_s_way_into_the_caches_and_its_attention_are_one_operator() {
    let decode = attend(1, 4, |_| Ok(()));
    assert!(decode[0].starts_with("attention_decode") && decode.len() <= 2, "{decode:?}");
    let several = attend(5, 4, |_| Ok(()));
    assert_eq!(several[0], "rope_append");
    assert!(!several[1..].iter().any(|name| name.starts_with("rope") || name == "kv_append"), "{several:?}");
}

#[test]
fn a_cache_that_something_else_looks_at_or_changes_in_between_keeps_its_order() {
    // A reader of what was appended may as well come after the attention.
    let read = attend(1, 4, |keys| keys.sum(&[], false).map(drop));
    assert!(read[0] == "attention_decode" && read.last().unwrap() == "reduce_sum", "{read:?}");
    let changed = attend(1, 4, |keys| keys.copy_from(&keys.executor().zeros(DType::F16, &[2, 128, 32])?));
    assert_eq!(changed.iter().filter(|name| *name == "kv_append").count(), 2, "{changed:?}");
}

#[test]
fn the_order_of_nodes_that_do_not_depend_on_each_other_may_change_and_of_others_not() {
    use super::{
        node::{Graph, Node},
        value::{Action, Operand, Output},
    };
    use elinvar_kernels::{TensorInfo, copy::Copy};
    let operand = |value| Some(Operand { value, info: TensorInfo::new(DType::F32, &[4]).unwrap() });
    let node = |from: usize, to: usize| Node::new(Action::Operator(Arc::new(Copy)), vec![operand(from)], vec![Output::Value(to)]);
    // 0 → 1 → 2, 0 → 3, 2 → 4.
    let graph = Graph::new(vec![node(0, 1), node(0, 3), node(1, 2), node(2, 4)], vec![true; 5]);
    let order = |graph: &Graph| graph.nodes.iter().map(|node| node.result().unwrap()).collect::<Vec<_>>();
    let mut joined = graph.clone();
    assert_eq!(joined.replace(&[0, 2].into(), node(0, 2)), Some(0..2));
    assert_eq!(order(&joined), [3, 2, 4]);
    assert_eq!((joined.producer(4), joined.producer(1), joined.users(2).collect::<Vec<_>>()), (Some((2, 0)), None, vec![2]));
    joined.rename(0, 1);
    assert_eq!((joined.users(0).count(), joined.users(1).collect::<Vec<_>>()), (0, vec![0, 1]));
    // What lies between needs the first and is needed by the last.
    assert_eq!(graph.clone().replace(&[0, 3].into(), node(0, 4)), None);
}

/// All chains share one tensor. Without a limit on how far apart outputs of one program may be, this did not end within a minute.
#[test]
fn a_tensor_that_all_chains_take_leaves_each_a_program() {
    const CHAINS: usize = 150;
    let executor = null();
    let (x, factor) = (executor.zeros(DType::F32, &[1, 64]).unwrap(), executor.zeros(DType::F32, &[1, 64]).unwrap());
    let (recording, _) = executor
        .record(|recorded| {
            let factor = factor.on(recorded)?;
            (0..CHAINS).try_fold(x.on(recorded)?, |x, _| x.mul(&factor)?.abs()?.max(&[-1], true)?.add(&factor))
        })
        .unwrap();
    // Each chain ends in a maximum, whose sum begins the next.
    let kernels = kernels(&recording);
    assert_eq!(kernels.len(), 2 * CHAINS + 1, "{:?}", &kernels[..5]);
}

/// A device with cuBLASLt, or without.
fn cuda(library: bool) -> Executor {
    let properties = DeviceProperties { features: CudaFeatures::of(90, library), ..null().properties().clone() };
    Executor::from_device(Device::new(NullBackend::with_properties(properties))).with_precision(Precision::Fast)
}

/// Attention over pages of texts of these numbers of tokens, one group of texts after the other.
fn attend_pages(executor: &Executor, groups: &[[usize; 2]]) -> Vec<String> {
    let zeros = |dtype, dims: &[usize]| executor.zeros(dtype, dims).unwrap();
    let tokens = groups.iter().map(|[texts, tokens]| texts * tokens).sum();
    let (keys, values) = (zeros(DType::F16, &[2, 128, 64]), zeros(DType::F16, &[2, 128, 64]));
    let (positions, slots, frequencies) = (zeros(DType::I32, &[tokens]), zeros(DType::I32, &[tokens]), zeros(DType::F32, &[32]));
    let table = zeros(DType::I32, &[groups.iter().map(|[texts, _]| texts).sum(), 4]);
    let [q, k, v] = [4, 2, 2].map(|heads| zeros(DType::F32, &[tokens * heads * 64]));
    let (recording, _) = executor
        .record(|recorded| {
            let made = |x: &Tensor, heads: usize| x.on(recorded)?.neg()?.reshape(&[tokens, heads, 64]);
            let (q, k, v) = (made(&q, 4)?, made(&k, 2)?, made(&v, 2)?);
            keys.kv_append(&k.rope(&positions, &frequencies)?, &slots)?;
            values.kv_append(&v, &slots)?;
            let (q, mut row, mut text) = (q.rope(&positions, &frequencies)?, 0, 0);
            let attend = |&[texts, tokens]: &[usize; 2]| {
                let (first, of_text) = (row, text);
                (row, text) = (row + texts * tokens, text + texts);
                let own = q.slice(0, first, texts * tokens, 1)?.reshape(&[texts, tokens, 4, 64])?.transpose(1, 2)?;
                let positions = positions.slice(0, first, texts * tokens, 1)?.reshape(&[texts, tokens])?;
                let attention = PagedAttention { precision: executor.precision(), ..PagedAttention::default() };
                own.paged_attention(&attention, &keys, &values, &table.slice(0, of_text, texts, 1)?, &positions)
            };
            groups.iter().map(attend).collect::<Result<Vec<_>>>()
        })
        .unwrap();
    kernels(&recording).split_off(3)
}

#[test]
fn tokens_way_into_pages_and_their_attention_are_one_launch_where_a_gpu_has_a_kernel_for_it() {
    let properties = DeviceProperties { threadgroup_memory: 227 << 10, ..cuda(true).properties().clone() };
    let hopper = Executor::from_device(Device::new(NullBackend::with_properties(properties)));
    let invariant = hopper.with_precision(Precision::Invariant);
    assert_eq!(attend_pages(&invariant, &[[3, 1]]), ["attention_paged_decode_blocks"]);
    assert_eq!(attend_pages(&hopper.with_precision(Precision::Fast), &[[3, 1]]), ["attention_paged_decode_blocks"]);
    for precision in Precision::ALL {
        assert_eq!(attend_pages(&null().with_precision(*precision), &[[3, 1]]), ["attention_paged_decode"]);
    }
    // Several tokens of a text, texts of several numbers of tokens, other precisions and devices.
    for (executor, groups) in [
        (&invariant, &[[2, 5]][..]),
        (&invariant, &[[3, 1], [1, 7]]),
        (&hopper.with_precision(Precision::Strict), &[[3, 1]]),
        (&null().with_precision(Precision::Invariant), &[[3, 1], [1, 7]]),
    ] {
        let kernels = attend_pages(executor, groups);
        assert_eq!(kernels[0], "rope_append", "{kernels:?}");
        assert!(kernels[1..].iter().all(|name| name.starts_with("attention")) && kernels.len() > groups.len(), "{kernels:?}");
    }
}

#[test]
fn a_product_and_its_sum_are_one_launch_of_the_library() {
    let sums = |executor: &Executor, dtype| {
        let zeros = |dims: &[usize]| executor.zeros(dtype, dims).unwrap();
        let (x, w, addend) = (zeros(&[32, 64]), zeros(&[64, 48]), zeros(&[32, 48]));
        kernels(&executor.record(|recorded| addend.add(&x.on(recorded)?.matmul(&w)?)).unwrap().0)
    };
    assert_eq!(sums(&cuda(true), DType::BF16), ["matrix_product_sum"]);
    assert_eq!(sums(&cuda(false), DType::BF16), ["matmul", "add"]);
    assert_eq!(sums(&cuda(true).with_precision(Precision::Strict), DType::BF16), ["matmul_fixed", "add"]);
}

#[test]
fn what_several_products_round_is_rounded_once() {
    let w = Weights::new(&cuda(true));
    let layers = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        let (q, k) = (normalised.linear(&w.q, None)?, normalised.linear(&w.k, None)?);
        assert_eq!((q.dtype(), k.dtype()), (DType::F32, DType::F32));
        Ok((q, k, normalised))
    };
    assert_eq!(w.recorded(9, layers), ["rms_norm", "cast", "matrix_product", "matrix_product"]);
    assert_eq!(w.recorded(9, |x| x.linear(&w.q, None)?.linear(&w.k, None)), ["cast", "matrix_product", "cast", "matrix_product"]);
    let summed = |x: &Tensor| Ok((x.add(&x.linear(&w.q, None)?)?, x.linear(&w.k, None)?));
    assert_eq!(w.recorded(9, summed), ["cast", "matrix_product_sum", "matrix_product"]);
    // What changes between them is another operand.
    let changed = |x: &Tensor| {
        let q = x.linear(&w.q, None)?;
        x.add_(&q)?;
        Ok((q, x.linear(&w.k, None)?))
    };
    assert_eq!(w.recorded(9, changed), ["cast", "matrix_product", "add", "copy", "cast", "matrix_product"]);
}

/// A feed-forward network whose products are chains on tensor cores, where the device has them.
#[test]
fn what_alone_takes_a_result_rounded_has_it_so_from_what_makes_it() {
    let properties = DeviceProperties { threadgroup_memory: 227 << 10, ..cuda(true).properties().clone() };
    let hopper = Executor::from_device(Device::new(NullBackend::with_properties(properties)));
    let w = Weights::new(&hopper.with_precision(Precision::Invariant));
    let network = |x: &Tensor| {
        let normalised = x.rms_norm(Some(&w.norm), 1e-5)?;
        x.add(&normalised.linear(&w.q, None)?.swiglu(&normalised.linear(&w.q, None)?)?.linear(&w.q, None)?)
    };
    // A product normalises up to eight rows itself.
    assert_eq!(w.recorded(3, network), ["chain_few_rows", "chain_few_rows"]);
    assert_eq!(w.recorded(9, network), ["rms_norm", "chain_few_rows", "chain_few_rows"]);
    assert_eq!(w.recorded(100, network), ["rms_norm", "chain_many_rows", "chain_many_rows"]);
    // Fast ones are the library's in between.
    let fast = Weights::new(&hopper.with_precision(Precision::Fast));
    assert_eq!(fast.recorded(600, network), ["rms_norm", "chain_many_rows", "chain_many_rows"]);
    assert!(fast.recorded(100, network).iter().all(|name| !name.starts_with("chain")));
    let norm = |x: &Tensor| x.rms_norm(Some(&w.norm), 1e-5);
    assert_eq!(w.recorded(3, |x| norm(x)?.cast(DType::F16)), ["rms_norm"]);
    // Parts that are joined for a product are made rounded; one that nothing makes so is not.
    let part = |x: &Tensor, first| x.slice(0, first, 50, 1);
    let joined = |x: &Tensor, other: Tensor| x.add(&Tensor::concat(&[&norm(&part(x, 0)?)?, &other], 0)?.linear(&w.q, None)?);
    assert_eq!(w.recorded(100, |x| joined(x, norm(&part(x, 50)?)?)), ["rms_norm", "rms_norm", "copy_part", "copy_part", "chain_many_rows"]);
    assert_eq!(w.recorded(100, |x| joined(x, part(x, 50)?)), ["rms_norm", "copy_part", "copy_part", "cast", "chain_many_rows"]);
    // Where it is also taken as it is, or was rounded before, the cast stays.
    let both = |x: &Tensor| norm(x).and_then(|y| Ok((y.cast(DType::F16)?, y)));
    assert_eq!(w.recorded(3, both), ["rms_norm", "cast"]);
    assert_eq!(w.recorded(3, |x| norm(&x.cast(DType::BF16)?)?.cast(DType::F16)), ["cast", "rms_norm", "cast"]);
}

#[test]
fn a_group_gathers_what_a_product_takes_as_that_rounds_it() {
    let device = cuda(true).device().clone();
    let executor = Executor::of_group(Group::new(vec![device.clone(), device]).unwrap()).with_precision(Precision::Fast);
    let w = Weights::new(&executor);
    let gathered = |x: &Tensor| x.own_part()?.exp()?.all_gather()?.linear(&w.q, None);
    let names = |of_many: bool| w.recorded(if of_many { 9 } else { 1 }, gathered);
    assert_eq!(names(true), ["own_part", "fused", "all_gather", "matrix_product"]);
    assert_eq!(names(false), ["own_part", "exp", "all_gather", "matmul"]);
    let wanted = |x: &Tensor| {
        let whole = x.own_part()?.exp()?.all_gather()?;
        Ok((whole.linear(&w.q, None)?, whole))
    };
    assert_eq!(w.recorded(9, wanted), ["own_part", "exp", "all_gather", "cast", "matrix_product"]);
}

/// A GPU that runs nothing, and reaches the memory of others.
struct Peer(NullBackend);

impl Backend for Peer {
    forward!(0: properties memory allocate write read compile submit);

    fn prepare(&self, _commands: &Arc<CommandList>) -> Result<()> {
        Ok(())
    }

    fn adopt_peer(&self, memory: &RawBuffer) -> Result<RawBuffer> {
        self.0.allocate(memory.bytes(), Storage::Shared)
    }
}

/// What each of two GPUs launches for a list.
struct TwoGpus {
    w: Weights,
    launched: Arc<Mutex<Vec<Vec<String>>>>,
}

impl TwoGpus {
    fn new(precision: Precision) -> Self {
        let launched = Arc::new(Mutex::new(Vec::new()));
        let gpu = || {
            let (launched, properties) = (launched.clone(), cuda(true).properties().clone());
            let properties = DeviceProperties { kind: DeviceKind::Cuda, threadgroup_memory: 227 << 10, ..properties };
            Device::new(Peer(NullBackend::with_properties(properties).observed(move |list| launched.lock().unwrap().push(names(list)))))
        };
        let w = Weights::new(&Executor::of_group(Group::new(vec![gpu(), gpu()]).unwrap()).with_precision(precision));
        Self { w, launched }
    }

    fn launched(&self, rows: usize, body: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<Vec<String>> {
        let x = self.w.x(rows);
        let (recording, _y) = self.w.executor.record(|recorded| body(&x.on(recorded)?)).unwrap();
        self.launched.lock().unwrap().clear();
        self.w.executor.replay(&recording).unwrap().wait().unwrap();
        std::mem::take(&mut *self.launched.lock().unwrap())
    }
}

#[test]
fn products_of_more_than_a_few_rows_push_what_is_gathered() {
    let gpus = TwoGpus::new(Precision::Invariant);
    let each = |rows| gpus.launched(rows, |x| x.linear(&gpus.w.q, None)?.all_gather());
    assert_eq!(each(100), [["cast", "chain_many_rows"]; 2]);
    assert_eq!(each(9), [["cast", "chain_few_rows"]; 2]);
    assert_eq!(each(3), [["cast", "chain_few_rows", "all_gather_words"]; 2]);
}

/// A kernel is known by its key, and that of two layers is the same as that of one.
#[test]
fn a_product_pushes_after_one_of_several_results() {
    let gpus = TwoGpus::new(Precision::Invariant);
    let wide = gpus.w.executor.zeros(DType::BF16, &[512, 64]).unwrap();
    let launched = gpus.launched(100, |x| {
        let x = x.rms_norm(Some(&gpus.w.norm), 1e-5)?;
        let (q, k) = (x.linear(&gpus.w.q, None)?, x.linear(&gpus.w.q, None)?);
        q.add(&k)?.linear(&wide, None)?.all_gather()
    });
    assert_eq!(launched, [["rms_norm", "chain_many_rows", "add", "cast", "chain_many_rows"]; 2]);
}

#[test]
fn a_row_is_delivered_to_the_launch_that_takes_it() {
    let layers = |precision, count: usize| {
        let gpus = TwoGpus::new(precision);
        let layer = |x: &Tensor| x.rms_norm(Some(&gpus.w.norm), 1e-5)?.linear(&gpus.w.k, None)?.all_gather();
        gpus.launched(1, |x| (0..count).try_fold(x.clone(), |x, _| layer(&x)))
    };
    let gathered = |count| [["projection", "all_gather_words"]; 8][..count].concat();
    let delivered = |rows| vec!["projection_delivering"; rows];
    // The slots in whole turns; the last row is for no launch.
    assert_eq!(layers(Precision::Fast, 4), [gathered(4), gathered(4)]);
    let five = [delivered(5), vec!["all_gather_words"]].concat();
    assert_eq!(layers(Precision::Fast, 5), [five.clone(), five.clone()]);
    let seven = [five, gathered(2)].concat();
    assert_eq!(layers(Precision::Fast, 7), [seven.clone(), seven]);
    assert_eq!(layers(Precision::Strict, 5), [gathered(5), gathered(5)]);
}

#[test]
fn what_a_product_reads_is_kept_until_its_result_is_gathered() {
    let device = null().device().clone();
    let executor = Executor::of_group(Group::new(vec![device.clone(), device]).unwrap());
    let [a, b, c] = [[64, 128], [128, 128], [128, 64]].map(|dims| executor.zeros(DType::F32, &dims).unwrap());
    let (recording, _) = executor.record(|recorded| a.on(recorded)?.matmul(&b)?.matmul(&c)?.all_gather()?.exp()).unwrap();
    let read = |command: &Command, index: usize| match command {
        Command::Dispatch(dispatch) => dispatch.bindings[index].clone().unwrap(),
        Command::Copy(_) | Command::Fill(_) => panic!("only launches"),
    };
    let commands = recording.list.commands();
    assert_eq!(kernels(&recording), ["matmul", "matmul", "all_gather", "exp"]);
    assert!(!read(&commands[1], 0).overlaps(&read(&commands[3], 0)));
}

#[test]
fn a_norm_s_gradient_and_what_it_is_added_to_are_one_launch() {
    let w = Weights::new(&null());
    let residual = |x: &Tensor| {
        let x = x.requires_grad()?;
        let y = x.add(&x.rms_norm(Some(&w.norm), 1e-5)?.exp()?)?;
        y.backward_from(&x)?.of(&x).cloned()
    };
    // The one addition is the forward pass's.
    assert_eq!(w.recorded(9, residual), ["rms_norm", "fused", "add", "norm_gradient"]);
}

#[test]
fn what_was_kept_is_not_computed_again_for_its_gradient() {
    let w = Weights::new(&null());
    let twice = |is_kept: bool| {
        let w = &w;
        move |x: &Tensor| {
            let x = x.requires_grad()?;
            let layer = || x.rms_norm(Some(&w.norm), 1e-5)?.linear(&w.q, None);
            let (y, again) = (layer()?.detach(), layer()?);
            let again = if is_kept { y.in_place_of(&again)? } else { again };
            again.backward_from(&y)?.of(&x).cloned()
        }
    };
    let gradient = ["matmul", "norm_gradient"];
    assert_eq!(w.recorded(9, twice(false)), [&["rms_norm", "matmul_fixed"].repeat(2)[..], &gradient].concat());
    assert_eq!(w.recorded(9, twice(true)), [&["rms_norm", "matmul_fixed"][..], &gradient].concat());
    // A result that is read besides is computed.
    let read = |x: &Tensor| {
        let x = x.requires_grad()?;
        let layer = || x.rms_norm(Some(&w.norm), 1e-5);
        let (y, again) = (layer()?.detach(), layer()?);
        Ok((again.neg()?, y.in_place_of(&again)?))
    };
    assert_eq!(w.recorded(9, read), ["rms_norm", "rms_norm", "neg"]);
}

#[test]
fn adapters_of_rows_are_added_to_layers_of_one_input_together() {
    let executor = null();
    let zeros = |dtype, dims: &[usize]| executor.zeros(dtype, dims).unwrap();
    let (x, other, adapters) = (zeros(DType::F32, &[3, 64]), zeros(DType::F32, &[3, 64]), zeros(DType::I32, &[3]));
    let add = |x: &Tensor, n: usize| {
        let own = [
            zeros(DType::F32, &[3, n]),
            zeros(DType::F32, &[2, 4, 64]),
            zeros(DType::F32, &[2, 4, n]),
            zeros(DType::F32, &[2]),
            zeros(DType::I32, &[2]),
        ];
        let inputs: Vec<_> = [x, &adapters].into_iter().chain(&own).map(Some).collect();
        Ok(x.executor().apply(Arc::new(LoraRows), &inputs)?.remove(0))
    };
    let launches = |count: usize, others: usize| {
        let layers = |x: &Tensor, count: usize| (1..=count).map(|n| add(x, 32 * n)).collect::<Result<Vec<_>>>();
        let recorded = executor.record(|recorded| Ok((layers(&x.on(recorded)?, count)?, layers(&other.on(recorded)?, others)?)));
        kernels(&recorded.unwrap().0).len() / 2
    };
    assert_eq!((launches(1, 0), launches(3, 0), launches(4, 0), launches(2, 2)), (1, 1, 2, 2));
}
