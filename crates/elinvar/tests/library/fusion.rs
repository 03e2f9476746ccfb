//! Fused operators give the bits of the operators one by one, in fewer launches.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, Weak},
};

use elinvar::{
    DType, Executor, Recorder, Result, Tensor,
    kernels::{binary::BinaryOp, unary::UnaryOp},
};
use elinvar_core::{Backend, Device, KernelSource, MemoryPressure, NullBackend, Pipeline, Relief, forward};
use elinvar_cpu::CpuBackend;
#[cfg(target_os = "linux")]
use elinvar_kernels::conformance;

fn cpu() -> Executor {
    Executor::new_cpu(NonZeroUsize::new(2).unwrap()).unwrap()
}

/// A CPU of a system that lacks memory on demand, and the kernels it has compiled.
#[derive(Clone)]
struct Short {
    cpu: Arc<CpuBackend>,
    relieve: Arc<Mutex<Option<Relief>>>,
    compiled: Arc<Mutex<Vec<Weak<KernelSource>>>>,
}

impl Backend for Short {
    forward!(cpu: properties memory allocate write read submit);

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        self.compiled.lock().unwrap().push(Arc::downgrade(kernel));
        self.cpu.compile(kernel)
    }

    fn on_memory_pressure(&self, relieve: Relief) {
        *self.relieve.lock().unwrap() = Some(relieve);
    }
}

#[test]
fn programs_go_when_the_system_is_about_to_end_others() {
    let cpu = Arc::new(CpuBackend::new(NonZeroUsize::new(1)).unwrap());
    let short = Short { cpu, relieve: Arc::default(), compiled: Arc::default() };
    let executor = Executor::from_device(Device::new(short.clone()));
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let programs = || {
        let y = executor.fuse(|recorded| x.on(recorded)?.add(&x)?.mul(&x)).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 8.0]);
        let compiled = short.compiled.lock().unwrap();
        (compiled.len(), compiled.iter().filter(|kernel| kernel.strong_count() > 0).count())
    };
    let lack = |pressure| short.relieve.lock().unwrap().as_ref().unwrap()(pressure);
    assert_eq!([programs(), programs()], [(1, 1); 2]);
    lack(MemoryPressure::Warning);
    assert_eq!(programs(), (1, 1));
    lack(MemoryPressure::Critical);
    assert_eq!(short.compiled.lock().unwrap()[0].strong_count(), 0);
    assert_eq!(programs(), (2, 1), "made again");
}

#[test]
fn operands_that_reach_beyond_32_bits_are_not_fused() {
    let executor = Executor::from_device(Device::new(NullBackend::new()));
    // Rows at a distance of 2^22 elements, of which the last begins at 2^32.
    let x = executor.zeros(DType::U8, &[1025, 1 << 22]).unwrap().slice(1, 0, 4, 1).unwrap();
    let launches = || {
        let (recording, _) = executor.record(|recorded| x.on(recorded)?.add(&x)?.add(&x)).unwrap();
        recording.len()
    };
    assert_eq!(launches(), 2);
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// A tensor of ordinary numbers, zeros and, of floats, a few infinities and NaN.
fn tensor(executor: &Executor, random: &mut Random, dtype: DType, dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    let odd = [0.0f32, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42];
    let mut value = || if random.below(12) == 0 { random.pick(&odd) } else { random.below(4001) as f32 / 500.0 - 4.0 };
    let values: Vec<f32> = (0..n).map(|_| value()).collect();
    let x = executor.tensor(dims, &values).unwrap();
    x.cast(dtype).unwrap()
}

/// A tensor that broadcasts to `[a, b, c]`: some axes of one, some views with other strides.
fn operand(executor: &Executor, random: &mut Random, dtype: DType, [a, b, c]: [usize; 3]) -> Tensor {
    match random.below(8) {
        0 => tensor(executor, random, dtype, &[]),
        1 => tensor(executor, random, dtype, &[c]),
        2 => tensor(executor, random, dtype, &[a, b, 1]),
        3 => tensor(executor, random, dtype, &[a, 1, c]),
        4 => tensor(executor, random, dtype, &[c, b, a]).permute(&[2, 1, 0]).unwrap(),
        5 if a > 0 => tensor(executor, random, dtype, &[2 * a, b, c]).slice(0, 2 * a - 1, a, -2).unwrap(),
        6 => tensor(executor, random, dtype, &[a, b, c + 3]).slice(2, 2, c, 1).unwrap(),
        _ => tensor(executor, random, dtype, &[a, b, c]),
    }
}

/// One random operator.
#[derive(Clone, Debug)]
enum Choice {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Select(usize, usize, usize),
    Fma(usize, usize, usize),
    Clamp(usize),
    Cast(usize, DType),
    /// A reduction of rows, and perhaps the difference from it.
    Reduce(usize, usize, bool),
}

/// Applies the choices to the operands; each result is an operand of those that follow.
fn evaluate(operands: &[Tensor], choices: &[Choice], outputs: &[usize]) -> Result<Vec<Tensor>> {
    let mut all = operands.to_vec();
    for choice in choices {
        let same = |b: usize, a: &Tensor| all[b].cast(a.dtype());
        all.push(match *choice {
            Choice::Unary(a, op) => {
                let x = &all[a];
                match op {
                    0 => x.abs()?,
                    1 => x.neg()?,
                    2 => x.relu()?,
                    _ if !x.dtype().is_float() => x.neg()?,
                    3 => x.sqrt()?,
                    4 => x.exp()?,
                    5 => x.silu()?,
                    6 => x.tanh()?,
                    7 => x.sigmoid()?,
                    8 => x.gelu()?,
                    _ => x.sin()?,
                }
            }
            Choice::Binary(a, b, op) => {
                let (a, b) = (&all[a], same(b, &all[a])?);
                match op {
                    0 => a.add(&b)?,
                    1 => a.sub(&b)?,
                    2 => a.mul(&b)?,
                    3 => a.div(&b)?,
                    4 => a.minimum(&b)?,
                    5 => a.maximum(&b)?,
                    _ => a.mul(&b)?.add(a)?,
                }
            }
            Choice::Select(c, a, b) => {
                let condition = all[c].lt(&same(a, &all[c])?)?;
                condition.select(&all[a], &same(b, &all[a])?)?
            }
            Choice::Fma(a, b, c) if all[a].dtype().is_float() => all[a].fma(&same(b, &all[a])?, &same(c, &all[a])?)?,
            Choice::Fma(a, ..) => all[a].abs()?,
            Choice::Clamp(a) => all[a].clamp(-2.0, 3.0)?,
            Choice::Cast(a, to) => all[a].cast(to)?,
            Choice::Reduce(a, ..) if !all[a].dtype().is_float() || all[a].shape().rank() == 0 => all[a].neg()?,
            Choice::Reduce(a, reduction, subtracts) => {
                let x = &all[a];
                let row = match reduction {
                    0 => x.sum(&[-1], true)?,
                    1 => x.mean(&[-1], true)?,
                    2 => x.max(&[-1], true)?,
                    _ => x.min(&[x.shape().rank() as isize - 1], true)?,
                };
                if subtracts { x.sub(&row)? } else { row }
            }
        });
    }
    Ok(outputs.iter().map(|&i| all[operands.len() + i].clone()).collect())
}

fn choices(random: &mut Random, operands: usize, count: usize) -> Vec<Choice> {
    let dtypes = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8, DType::I64];
    (0..count)
        .map(|done| {
            let known = operands + done;
            // Rather the last results, so that chains are long.
            let mut any = || if random.below(2) == 0 { known - 1 } else { random.below(known) };
            let (a, b, c) = (any(), any(), any());
            match random.below(14) {
                0..4 => Choice::Unary(a, random.below(10)),
                4..8 => Choice::Binary(a, b, random.below(7)),
                8 => Choice::Select(a, b, c),
                9 => Choice::Fma(a, b, c),
                10 => Choice::Clamp(a),
                11..13 => Choice::Reduce(a, random.below(4), random.below(3) > 0),
                _ => Choice::Cast(a, random.pick(&dtypes)),
            }
        })
        .collect()
}

fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let nan = |bits: u64| match a.dtype() {
        DType::F32 => bits & 0x7fff_ffff > 0x7f80_0000,
        DType::F16 => bits & 0x7fff > 0x7c00,
        DType::BF16 => bits & 0x7fff > 0x7f80,
        _ => false,
    };
    let size = a.dtype().size();
    let bits = |x: &Tensor| -> Vec<u64> {
        let number = |c: &[u8]| c.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        x.to_bytes().unwrap().chunks(size).map(number).map(|n| if nan(n) { u64::MAX } else { n }).collect()
    };
    a.dtype() == b.dtype() && a.shape() == b.shape() && bits(a) == bits(b)
}

/// Compares random expressions fused, recorded and one by one; how many launches were saved.
fn compare(executor: &Executor, seeds: std::ops::Range<u64>) -> usize {
    let mut saved = 0;
    for seed in seeds {
        let mut random = Random(seed);
        let shapes = [[1, 1, 1], [2, 3, 5], [1, 1, 1000], [3, 1, 257], [4, 33, 8], [0, 2, 3], [2, 5, 300], [1, 1, 2311]];
        let shape = random.pick(&shapes);
        let dtypes = [DType::F32, DType::F32, DType::F16, DType::BF16, DType::I32];
        let operands: Vec<_> = (0..1 + random.below(4))
            .map(|_| {
                let dtype = random.pick(&dtypes);
                operand(executor, &mut random, dtype, shape)
            })
            .collect();
        let count = 1 + random.below(12);
        let choices = choices(&mut random, operands.len(), count);
        let outputs: Vec<_> = (0..1 + random.below(3)).map(|_| random.below(count)).chain([count - 1]).collect();
        let expected = evaluate(&operands, &choices, &outputs).unwrap();
        let on = |recorded: &Executor| operands.iter().map(|operand| operand.on(recorded)).collect::<Result<Vec<_>>>();
        let fused = executor.fuse(|recorded| evaluate(&on(recorded)?, &choices, &outputs)).unwrap();
        let (recording, recorded) = executor.record(|recorded| evaluate(&on(recorded)?, &choices, &outputs)).unwrap();
        executor.replay(&recording).unwrap().wait().unwrap();
        for (expected, (fused, recorded)) in expected.iter().zip(fused.iter().zip(&recorded)) {
            assert!(same_bits(expected, fused), "seed {seed}: fused {choices:?} of {operands:?}, outputs {outputs:?}");
            assert!(same_bits(expected, recorded), "seed {seed}: recorded {choices:?} of {operands:?}, outputs {outputs:?}");
        }
        saved += count.saturating_sub(recording.len());
    }
    saved
}

#[test]
fn random_expressions_have_the_bits_of_their_operators_on_the_cpu() {
    assert!(compare(&cpu(), 0..3000) > 3000);
}

/// The simulator, or the device that `ELINVAR_DEVICE` names.
#[cfg(target_os = "linux")]
fn gpu() -> Executor {
    let backend = std::env::var("ELINVAR_DEVICE").map_or(elinvar::BackendType::MetalSim, |name| name.parse().unwrap());
    Executor::new_with_backend(backend).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn random_expressions_have_the_bits_of_their_operators_on_gpus() {
    let count = if conformance::runs_all() { 24 } else { 6 };
    if count < 24 {
        conformance::skipped("18 of 24 random expressions");
    }
    assert!(compare(&gpu(), 0..count) > count as usize);
}

/// Lengths around whole words, operands that begin between them, rows of whole words and of others.
#[test]
#[cfg(target_os = "linux")]
fn words_of_neighbouring_elements_have_the_bits_of_single_ones() {
    let executor = gpu();
    let mut random = Random(5);
    for dtype in [DType::F32, DType::BF16] {
        for n in [7usize, 8, 4096, 5003] {
            let (a, b) = (tensor(&executor, &mut random, dtype, &[n]), tensor(&executor, &mut random, dtype, &[n + 1]));
            let b = b.slice(0, 1, n, 1).unwrap();
            assert!(same_bits(&executor.fuse(|recorded| chain(&a.on(recorded)?, &b)).unwrap(), &chain(&a, &b).unwrap()), "{dtype}, {n}");
        }
        for [rows, columns, start] in [[3usize, 264usize, 8usize], [5, 12, 4], [3, 9, 1]] {
            let wide = tensor(&executor, &mut random, dtype, &[rows, columns + 2 * start]);
            let (a, row) = (wide.slice(1, start, columns, 1).unwrap(), tensor(&executor, &mut random, dtype, &[columns]));
            assert!(
                same_bits(&executor.fuse(|recorded| chain(&a.on(recorded)?, &row)).unwrap(), &chain(&a, &row).unwrap()),
                "{dtype}, {rows}, {columns}"
            );
        }
    }
}

fn chain(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.silu()?.mul(b)?.add(a)?.clamp(-1.0, 1.0)
}

type UnaryMethod = fn(&Tensor) -> Result<Tensor>;

/// Every function of the table, by the method that applies it.
fn unary_methods() -> Vec<(UnaryOp, UnaryMethod)> {
    macro_rules! methods {
        ($($op:ident $method:ident)*) => { vec![$((UnaryOp::$op, Tensor::$method as UnaryMethod)),*] };
    }
    methods! {
        Abs abs Neg neg Sign sign Square square Relu relu Not bitwise_not Popcount bitwise_count Floor floor Ceil ceil Trunc trunc Round round
        Sqrt sqrt Rsqrt rsqrt Reciprocal reciprocal Exp exp Exp2 exp2 Log log Log2 log2 Log10 log10 Log1p log1p Sin sin Cos cos Tan tan Tanh tanh
        Sigmoid sigmoid Softplus softplus Silu silu Mish mish Softsign softsign Selu selu HardSwish hard_swish Erf erf Gelu gelu GeluTanh gelu_tanh
    }
}

type BinaryMethod = fn(&Tensor, &Tensor) -> Result<Tensor>;

fn binary_methods() -> Vec<(BinaryOp, BinaryMethod)> {
    macro_rules! methods {
        ($($op:ident $method:ident)*) => { vec![$((BinaryOp::$op, Tensor::$method as BinaryMethod)),*] };
    }
    let mut methods = methods! {
        Add add Sub sub Mul mul Div div Min minimum Max maximum Pow pow Rem fmod And bitwise_and Or bitwise_or Xor bitwise_xor Shl left_shift
        Shr right_shift
    };
    methods.push((BinaryOp::LeakyRelu, |x, _| x.leaky_relu(0.3)));
    methods.push((BinaryOp::Elu, |x, _| x.elu(1.7)));
    methods.push((BinaryOp::HardSigmoid, |x, _| x.hard_sigmoid(0.2)));
    methods
}

/// Each function and its square, in one launch: the bits of its operator.
fn check_functions(executor: &Executor, dtypes: &[DType]) {
    let mut random = Random(9);
    let (unary, binary) = (unary_methods(), binary_methods());
    assert_eq!((unary.len(), binary.len()), (UnaryOp::ALL.len(), BinaryOp::ALL.len()));
    for &dtype in dtypes {
        let (a, b) = (tensor(executor, &mut random, dtype, &[3, 37]), tensor(executor, &mut random, dtype, &[37]));
        let check = |name: &str, method: &dyn Fn(&Tensor) -> Result<Tensor>| {
            let square = |a: &Tensor| method(a)?.mul(a);
            let (recording, fused) = executor.record(|recorded| square(&a.on(recorded)?)).unwrap();
            assert_eq!(recording.len(), 1, "{name} of {dtype}");
            executor.replay(&recording).unwrap().wait().unwrap();
            assert!(same_bits(&fused, &square(&a).unwrap()), "{name} of {dtype}");
        };
        unary.iter().filter(|(op, _)| op.takes(dtype)).for_each(|(op, method)| check(op.name(), method));
        binary.iter().filter(|(op, _)| op.takes(dtype)).filter(|(op, _)| dtype.is_float() || *op != BinaryOp::LeakyRelu).for_each(|(op, method)| {
            check(op.name(), &|a| method(a, &b));
        });
    }
}

#[test]
fn every_function_has_a_method_and_fuses_on_the_cpu() {
    check_functions(&cpu(), DType::NUMBERS);
}

#[test]
#[cfg(target_os = "linux")]
fn every_function_has_a_method_and_fuses_on_gpus() {
    // Each is two kernels to compile; that programs compute every function on every type is tested with Atlas.
    if conformance::runs_all() {
        check_functions(&gpu(), &[DType::BF16, DType::I16]);
    } else {
        conformance::skipped("fused functions");
    }
}

#[test]
fn a_recorded_chain_is_one_launch() {
    let executor = cpu();
    let mut random = Random(1);
    for n in [1usize, 7, 1000, 4096, 5001] {
        let (a, b) = (tensor(&executor, &mut random, DType::F32, &[n]), tensor(&executor, &mut random, DType::F32, &[n]));
        let (recording, y) = executor.record(|recorded| chain(&a.on(recorded)?, &b)).unwrap();
        assert_eq!(recording.len(), 1);
        for _ in 0..2 {
            executor.replay(&recording).unwrap().wait().unwrap();
            assert!(same_bits(&y, &chain(&a, &b).unwrap()));
            a.write(&vec![0.75f32; n]).unwrap();
        }
    }
}

#[test]
fn outputs_of_one_shape_share_a_launch() {
    let executor = cpu();
    let x = tensor(&executor, &mut Random(2), DType::F32, &[300]);
    let body = |x: Tensor| {
        let s = x.silu()?;
        let (a, b) = (s.mul(&x)?.neg()?, s.add(&x)?.exp()?);
        Ok((s, a, b))
    };
    let (recording, recorded) = executor.record(|recorded| body(x.on(recorded)?)).unwrap();
    assert_eq!(recording.len(), 1);
    executor.replay(&recording).unwrap().wait().unwrap();
    let expected = body(x).unwrap();
    assert!(same_bits(&expected.0, &recorded.0) && same_bits(&expected.1, &recorded.1) && same_bits(&expected.2, &recorded.2));
    // What nothing holds runs all the same.
    let (recording, ()) = executor.record(|recorded| expected.0.on(recorded)?.tanh()?.sin().map(drop)).unwrap();
    assert_eq!(recording.len(), 1);
}

#[test]
fn operators_before_a_change_read_memory_as_it_was() {
    let executor = cpu();
    let (x, z) = (executor.tensor(&[3], &[1f32, 2.0, 3.0]).unwrap(), executor.tensor(&[3], &[7f32, 8.0, 9.0]).unwrap());
    let body = |recorded: &Executor| {
        let x = x.on(recorded)?;
        let sum = x.add(&x)?;
        let y = sum.neg()?;
        x.copy_from(&z)?;
        Ok((y, x.add(&x)?.neg()?, sum.mul(&x)?))
    };
    let (y, later, both) = executor.fuse(body).unwrap();
    let values = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap();
    assert_eq!([values(&y), values(&later), values(&both)], [[-2.0, -4.0, -6.0], [-14.0, -16.0, -18.0], [14.0, 32.0, 54.0]]);
    x.write(&[1f32, 2.0, 3.0]).unwrap();
    let (recording, (y, later, both)) = executor.record(body).unwrap();
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!([values(&y), values(&later), values(&both)], [[-2.0, -4.0, -6.0], [-14.0, -16.0, -18.0], [14.0, 32.0, 54.0]]);
}

#[test]
fn views_of_results_are_of_their_elements() {
    let executor = cpu();
    let x = executor.tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let body = |recorded: &Executor| {
        let y = x.on(recorded)?.mul(&x)?.neg()?;
        Ok((y.transpose(0, 1)?.add(&x.reshape(&[3, 2])?)?, y.abs()?.sum(&[], false)?, y.reshape(&[6])?.slice(0, 5, 2, -4)?.exp()?.log()?))
    };
    let (t, sum, ends) = executor.fuse(body).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.0, -14.0, -1.0, -21.0, -4.0, -30.0]);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [91.0]);
    assert_eq!(ends.to_vec::<f32>().unwrap()[1], -4.0);
}

#[test]
fn what_does_not_fit_is_rejected_when_it_is_recorded() {
    let (executor, other) = (cpu(), cpu());
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let half = x.cast(DType::F16).unwrap();
    let rejected = |body: &dyn Fn(Tensor) -> Result<Tensor>| executor.fuse(|recorded| body(x.on(recorded)?)).map(drop).unwrap_err().to_string();
    let expected = "operator 1 of the recording (add of [2] f32, [2] f16): add: b is f16, a is f32: expected one type";
    assert_eq!(rejected(&|x| x.exp()?.add(&half)), expected);
    assert!(rejected(&|x| x.exp()?.add(&executor.tensor(&[3], &[0f32; 3])?)).contains("a has shape [2], b has shape [3]"));
    let expected = "operator 0 of the recording (add of [2] f32, [2] f32): tensors or kernels of different devices";
    assert!(rejected(&|x| x.add(&other.tensor(&[2], &[0f32; 2])?)).starts_with(expected));
    let add = || Arc::new(elinvar::kernels::binary::Binary { op: BinaryOp::Add });
    let overlapping = |x: Tensor| executor.apply_into(add(), &[Some(&x), Some(&x)], &[&x]).map(|()| x.clone());
    let message = rejected(&|y| overlapping(y.exp()?));
    assert!(message.starts_with("operator 1 of the recording (add of [2] f32, [2] f32): ") && message.contains("shares memory"), "{message}");
    assert!(rejected(&|_| other.record(|recorded| x.on(recorded)?.exp()).map(|(_, y)| y)).contains("different devices"));
    // What is found when commands are made says it too, where operators before it were fused.
    let (cache, position) = (executor.zeros(DType::F32, &[1, 4, 2]).unwrap(), executor.tensor(&[1], &[0i32]).unwrap());
    let message = rejected(&|x| {
        let y = x.exp()?.neg()?;
        cache.kv_append(&cache.slice(1, 2, 1, 1)?, &position.on(x.executor())?)?;
        Ok(y)
    });
    let expected = "operator 2 of the recording (kv_append of [1, 4, 2] f32, [1, 1, 2] f32, [1] i32): ";
    assert!(message.starts_with(expected) && message.contains("'cache' is written but overlaps 'rows'"), "{message}");
    // An error leaves nothing behind.
    let y = x.add(&x).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
fn recorders_live_side_by_side_and_on_any_thread() {
    let executor = cpu();
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let [first, second] = [(); 2].map(|()| Recorder::new(&executor));
    let (a, b) = (x.on(first.executor()).unwrap().neg().unwrap(), x.on(second.executor()).unwrap().add(&x).unwrap());
    let mixed = a.mul(&b).map(drop).unwrap_err().to_string();
    assert!(mixed.contains("different recorders"), "{mixed}");
    let (a, b) = std::thread::scope(|scope| {
        let [a, b] = [a, b].map(|y| scope.spawn(move || y.mul(&y)?.exp()));
        (a.join().unwrap().unwrap(), b.join().unwrap().unwrap())
    });
    assert!(a.to_vec::<f32>().unwrap_err().to_string().contains("while recording"));
    let recordings = [first, second].map(|recorder| std::thread::spawn(|| recorder.finish()).join().unwrap().unwrap());
    assert_eq!(recordings.each_ref().map(elinvar::Recording::len), [1, 1]);
    let both = elinvar::Recording::concat(&recordings).unwrap();
    executor.replay(&both).unwrap().wait().unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), x.neg().unwrap().mul(&x.neg().unwrap()).unwrap().exp().unwrap().to_vec::<f32>().unwrap());
    assert_eq!(
        b.to_vec::<f32>().unwrap(),
        [4f32, 16.0].map(|v| executor.full(DType::F32, &[], f64::from(v)).unwrap().exp().unwrap().item::<f32>().unwrap())
    );
}

#[test]
fn a_recorder_that_ended_or_was_dropped_is_rejected() {
    let executor = cpu();
    let x = executor.tensor(&[2], &[1f32, 2.0]).unwrap();
    let recorder = Recorder::new(&executor);
    let (handle, moved) = (recorder.executor().clone(), x.on(recorder.executor()).unwrap());
    let y = moved.exp().unwrap();
    recorder.finish().unwrap();
    let rejected = handle.apply(Arc::new(elinvar::kernels::copy::Copy), &[Some(&x)]).map(drop).unwrap_err().to_string();
    assert!(rejected.contains("the recorder of this executor ended"), "{rejected}");
    // Its results, and what was moved to it, are tensors as others are.
    y.add(&moved.exp().unwrap()).unwrap().to_vec::<f32>().unwrap();
    let recorder = Recorder::new(&executor);
    let lost = x.on(recorder.executor()).unwrap().exp().unwrap();
    drop(recorder);
    for error in [lost.to_vec::<f32>().map(drop).unwrap_err(), lost.neg().map(drop).unwrap_err()] {
        assert!(error.to_string().contains("was dropped") || error.to_string().contains("the recorder ended"), "{error}");
    }
    let nothing = executor.record(|_| x.exp()).map(drop).unwrap_err().to_string();
    assert!(nothing.contains("nothing was recorded"), "{nothing}");
}

#[test]
fn results_go_into_tensors_that_exist() {
    let executor = cpu();
    let x = executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let y = executor.zeros(DType::F32, &[2, 2]).unwrap();
    let add = || Arc::new(elinvar::kernels::binary::Binary { op: BinaryOp::Add });
    executor.apply_into(add(), &[Some(&x), Some(&x)], &[&y]).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    let row = y.slice(0, 1, 1, 1).unwrap();
    let (recording, ()) =
        executor.record(|recorded| recorded.apply_into(add(), &[Some(&x.slice(0, 0, 1, 1)?), Some(&x.slice(0, 0, 1, 1)?)], &[&row])).unwrap();
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0, 2.0, 4.0]);
    let rejected = |target: &Tensor| executor.apply_into(add(), &[Some(&x), Some(&x)], &[target]).unwrap_err().to_string();
    assert!(rejected(&row).contains("the result is f32[2, 2]") && rejected(&x).contains("shares memory"));
    assert!(rejected(&y.transpose(0, 1).unwrap()).contains("a view with gaps"));
    assert!(rejected(&y.cast(DType::F16).unwrap()).contains("f16"));
}

#[test]
fn expressions_that_are_too_large_are_cut() {
    let executor = cpu();
    let mut random = Random(3);
    let operands: Vec<_> = (0..20).map(|_| tensor(&executor, &mut random, DType::F32, &[2, 70])).collect();
    let body = |first: Tensor| {
        let mut sum = first;
        for _ in 0..5 {
            for x in &operands {
                sum = sum.mul(x)?.tanh()?.add(x)?;
            }
        }
        Ok(sum)
    };
    let (recording, y) = executor.record(|recorded| body(operands[0].on(recorded)?)).unwrap();
    executor.replay(&recording).unwrap().wait().unwrap();
    assert!(same_bits(&body(operands[0].clone()).unwrap(), &y) && recording.len() < 40, "{}", recording.len());
}
