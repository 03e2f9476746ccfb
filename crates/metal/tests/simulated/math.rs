//! The strict functions in Metal, executed by the simulator, have the bits of the Rust ones.

use std::sync::Arc;

use elinvar_core::{DType, Device, DeviceKind, Dispatch, Extent, Grid, KernelKey, KernelSource, ListBuilder, Metal, MetalFile, MetalForm, Parameter};
use elinvar_kernels::math;
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

const PREFACE: MetalFile = MetalFile { name: "preface.metal", text: "#include <metal_stdlib>\nusing namespace metal;\n" };

/// Functions by name, and a kernel that applies each to one element of `x`, and the power to one of `x` and `exponent`.
macro_rules! functions {
    ($($name:ident)*) => {
        const FUNCTIONS: &[(&str, fn(f32) -> f32)] = &[$((stringify!($name), math::$name)),*];
        const EVERY: MetalFile = MetalFile {
            name: "every.metal",
            text: concat!(
                "template <typename T>\n[[kernel]] void every(device const T* x [[buffer(0)]], device const T* exponent [[buffer(1)]],",
                " device T* y [[buffer(2)]], uint i [[thread_position_in_grid]], uint count [[threads_per_grid]])\n{\n",
                "    const T value = x[i];\n    uint at = i;\n",
                $("    y[at] = strict::", stringify!($name), "(value);\n    at += count;\n",)*
                "    y[at] = strict::pow(value, exponent[i]);\n}\n"
            ),
        };
    };
}
functions!(exp exp2 exp_nonpositive log log2 log1p sin cos sin_fast cos_fast tan tanh sigmoid silu softplus erf gelu gelu_tanh log10 hard_swish selu rsqrt);

const FORM: MetalForm = MetalForm::new(&[PREFACE, math::METAL, EVERY], "every");
const GROUPS: u32 = 64;
const COUNT: usize = 256 * GROUPS as usize;

/// Edges and their neighbours, ordinary numbers and random bits.
fn samples(seed: u32) -> Vec<f32> {
    let edges = [0.0, 1e-45, f32::MIN_POSITIVE, 1e-30, 0.346_573_6, 0.5, 1.0, 1.25, 2.0, 3.0, 4.0, 10.0, 14.6, 20.0, 87.336_55, 88.722_84];
    let more = [103.972_08, 126.0, 128.0, 149.0, 150.0, math::FAST_TRIG_LIMIT, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
    let near = edges.into_iter().chain(more).flat_map(|edge: f32| {
        let bits = edge.to_bits();
        (bits.saturating_sub(1)..=bits + 1).flat_map(|bits| [bits, bits | 0x8000_0000])
    });
    let mut state = seed;
    let random = std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bits = state ^ state >> 15;
        let ordinary = (bits % 8_001) as f32 / 100.0 - 40.0;
        Some(if state >> 31 == 0 { bits } else { ordinary.to_bits() })
    });
    let mut samples: Vec<f32> = near.chain(random).take(COUNT).map(f32::from_bits).collect();
    samples.rotate_left(seed as usize % COUNT);
    samples
}

fn run(device: &Device, x: &[f32], exponent: &[f32]) -> Vec<f32> {
    let bind = |bytes: &[u8]| {
        let buffer = device.allocate(bytes.len()).unwrap();
        device.write(&buffer, 0, bytes).unwrap();
        Some(buffer.bind(0, bytes.len()).unwrap())
    };
    let results = (FUNCTIONS.len() + 1) * size_of_val(x);
    let y = device.allocate(results).unwrap().bind(0, results).unwrap();
    let parameters = vec![Parameter::read("x", DType::F32), Parameter::read("exponent", DType::F32), Parameter::write("y", DType::F32)];
    let key = KernelKey::new("every", &[DType::F32]);
    let pipeline = device
        .pipeline(&Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal: Some(Metal::Form(FORM)), native: None }))
        .unwrap();
    let mut list = ListBuilder::new();
    let dispatch = Dispatch {
        pipeline,
        bindings: vec![bind(bytemuck::cast_slice(x)), bind(bytemuck::cast_slice(exponent)), Some(y.clone())],
        params: [].into(),
        grid: Grid::Threadgroups([GROUPS, 1, 1]),
        threadgroup: Extent::linear(256),
        threadgroup_memory: Vec::new(),
        work: Default::default(),
    };
    list.dispatch(dispatch, device.properties()).unwrap();
    device.submit(&list.finish()).unwrap().wait().unwrap();
    let mut found = vec![0.0f32; results / 4];
    device.read(y.buffer(), 0, bytemuck::cast_slice_mut(&mut found)).unwrap();
    found
}

#[test]
fn the_functions_have_the_bits_of_the_rust_ones() {
    let device = Device::new(MetalBackend::new(Simulated::new(SimulatorOptions::default()).unwrap(), DeviceKind::MetalSim));
    let (x, exponent) = (samples(1), samples(4_243));
    let found = run(&device, &x, &exponent);
    let differ = |a: f32, b: f32| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    for ((name, function), found) in FUNCTIONS.iter().zip(found.chunks_exact(COUNT)) {
        for (&x, &found) in x.iter().zip(found) {
            let expected = function(x);
            assert!(!differ(found, expected), "{name}({x:e}) is {found:e} in Metal, {expected:e} in Rust");
        }
    }
    for ((&x, &y), &found) in x.iter().zip(&exponent).zip(&found[FUNCTIONS.len() * COUNT..]) {
        let expected = math::pow(x, y);
        assert!(!differ(found, expected), "pow({x:e}, {y:e}) is {found:e} in Metal, {expected:e} in Rust");
    }
}
