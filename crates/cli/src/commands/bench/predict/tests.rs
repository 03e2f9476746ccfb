use elinvar::DType;
use elinvar_core::{Access, Device, Dispatch, Extent, Grid, KernelKey, KernelSource, ListBuilder, NullBackend, Parameter, Work};

use super::*;

/// A list of one launch over `bytes` bytes, which says that it takes `operations`, and a fill of as many.
fn list(bytes: usize, operations: u64) -> Arc<CommandList> {
    let device = Device::new(NullBackend::new());
    let parameters = vec![Parameter { access: Access::Read, ..Parameter::read("x", DType::F32) }];
    let key = KernelKey::new("user", &[]);
    let source = Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal: None, native: None });
    let (buffer, one) = (device.allocate(bytes).unwrap(), Extent::linear(1));
    let whole = buffer.bind(0, bytes).unwrap();
    let mut list = ListBuilder::new();
    let dispatch = Dispatch {
        pipeline: device.pipeline(&source).unwrap(),
        bindings: vec![Some(whole.clone())],
        params: [].into(),
        grid: Grid::Threadgroups(one.0),
        threadgroup: one,
        threadgroup_memory: vec![],
        work: Work { operations, bytes: None },
    };
    list.dispatch(dispatch, device.properties()).unwrap();
    list.fill(whole, 0).unwrap();
    list.finish()
}

#[test]
fn a_command_takes_its_bytes_or_its_operations_and_a_start() {
    let gpu: Gpu = "Apple M3 Max, 40 cores".parse().unwrap();
    let cost = |operations| Cost::of([&*list(3_600_000, operations)], &gpu);
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
    // 3.6 MB at 360 GB/s, twice: the launch and the fill.
    let memory = cost(1000);
    close(memory.memory, 20e-6);
    assert_eq!((memory.commands, memory.arithmetic), (2, 0.0));
    close(memory.seconds(), 20e-6 + 2.0 * 5.16e-6);
    // 40 cores of 203.4 operations a clock at 1380 MHz.
    let arithmetic = cost(40 * 1_380_000 * 2034);
    close(arithmetic.arithmetic, 10e-3);
    close(arithmetic.memory, 10e-6);
}

#[test]
fn a_model_is_predicted_by_the_weights_that_it_reads_and_the_products_that_it_makes() {
    let args = PredictArgs {
        chips: vec![],
        shape: Shape::Tiny,
        dtype: elinvar_llm::WeightType::Plain(DType::BF16),
        cache_dtype: DType::F16.into(),
        prompt: 64,
        generate: 8,
        precision: None,
        json: false,
    };
    let on = |name: &str| predict(&args, name.parse().unwrap()).unwrap();
    let (small, large) = (on("Apple M1"), on("Apple M3 Ultra, 80 cores"));
    let weights = super::super::decode::bytes_per_token(&args.shape.config(), args.dtype) as f64;
    for prediction in [&small, &large] {
        let [read, least] = [prediction.decode.memory * 0.9e9 * prediction.gpu.bandwidth, 8.0 * weights];
        assert!((least..1.3 * least).contains(&read), "{read} bytes, weights {least}");
        // Two operations for each weight and token, beside attention's; the output layer sees the last token alone, and so does the last layer but for
        // its keys and values.
        let config = args.shape.config();
        let layer = (weights / 2.0 - (config.vocab_size * config.hidden_size) as f64) / config.layers as f64;
        let keys_and_values = (2 * config.kv_heads * config.head_dim * config.hidden_size) as f64;
        let products = 2.0 * ((config.layers - 1) as f64 * layer + keys_and_values) * args.prompt as f64;
        let made = prediction.prefill.operations as f64;
        assert!((products..1.3 * products).contains(&made), "{made} operations, products {products}");
    }
    assert!(large.rates(&args).iter().zip(small.rates(&args)).all(|(large, small)| *large > small));
    assert!(small.text(&args).starts_with("Apple M1, 7 cores") && on("Apple M5").text(&args).contains("cores *"));
    assert_eq!(small.json(&args)["prediction"], true);
}
