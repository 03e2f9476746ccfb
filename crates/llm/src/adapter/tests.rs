use std::{fs, path::PathBuf, sync::Arc};

use elinvar::{DType, Executor, Precision, Result, kernels::quantized::Format};

use super::{Adapter, AdapterConfig, Adapters, fuse};
use crate::{Config, Model, ModelFiles, Session, WeightType, Weights, model::tests::references::Reference};

fn executor() -> Executor {
    Executor::new_cpu(1.try_into().unwrap()).unwrap().with_precision(Precision::Strict)
}

fn open(files: &ModelFiles) -> Model {
    Model::new(&executor(), Config::read(files).unwrap(), &Weights::open(files).unwrap()).unwrap()
}

fn model(name: &str) -> Model {
    let reference = Reference::all().into_iter().find(|reference| reference.name == name).unwrap();
    open(&ModelFiles::open(reference.folder().path()).unwrap())
}

fn tokens() -> Vec<u32> {
    (0..40).map(|i| (i * i * 7 + i * 3 + 5) % 29).collect()
}

/// After each of the tokens that the references have.
fn logits(model: Model) -> Vec<f32> {
    Session::new(Arc::new(model), 40, DType::F32).unwrap().feed_all(&tokens()).unwrap()
}

fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// What PEFT saved: see `tests/references/adapters/make.py`.
fn saved() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references/adapters/peft")
}

/// An adapter of a model, of numbers around a middle.
pub(crate) fn waves(base: &Model, config: &str, [middle, height]: [f32; 2]) -> Adapter {
    let mut adapter = Adapter { config: AdapterConfig::parse(config).unwrap(), tensors: Default::default() };
    for (place, change) in adapter.config.changes(&base.places()).unwrap() {
        for (kind, dims) in place.tensors(change) {
            let wave = |i: usize| middle + height * ((i * 7 + place.name.len()) as f32).sin();
            adapter.tensors.insert(format!("{}.{kind}", place.name), (dims.clone(), (0..dims.iter().product()).map(wave).collect()));
        }
    }
    adapter
}

#[track_caller]
fn rejected<T>(result: Result<T>) -> String {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn adapters_of_peft_have_its_logits_and_are_written_as_it_writes_them() {
    let (base, adapter) = (model("phi3"), Adapter::open(saved()).unwrap());
    let expected: Vec<f32> = fs::read(saved().join("logits.f32")).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let plain = logits(base.clone());
    let found = logits(base.with_adapter(&adapter).unwrap());
    assert!(apart(&found, &expected) < 1e-4 && apart(&plain, &expected) > 0.1, "{}", apart(&found, &expected));
    // The model without it is as it was; with it in its weights it says the same.
    assert_eq!(logits(base.clone()), plain);
    assert!(apart(&logits(base.with_adapter(&adapter).unwrap().merge().unwrap()), &expected) < 1e-4);
    let folder = tempfile::tempdir().unwrap();
    adapter.save(folder.path()).unwrap();
    assert_eq!(Adapter::open(folder.path()).unwrap(), adapter);
    let names = |folder: PathBuf| {
        let bytes = fs::read(folder.join("adapter_model.safetensors")).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        header.tensors().into_iter().map(|(name, info)| (name, info.shape.clone())).collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(names(folder.path().to_owned()), names(saved()));
}

#[test]
fn a_session_goes_on_with_another_adapter() {
    let base = Arc::new(model("phi3"));
    let adapted = Arc::new(base.with_adapter(&Adapter::open(saved()).unwrap()).unwrap());
    let mut session = Session::new(base.clone(), 40, DType::F32).unwrap();
    let plain = session.feed(&[1, 2, 3]).unwrap();
    session.set_model(adapted.clone()).unwrap();
    let other = session.feed(&[1, 2, 3]).unwrap();
    session.set_model(base).unwrap();
    assert!(session.feed(&[1, 2, 3]).unwrap() == plain && other == Session::new(adapted, 40, DType::F32).unwrap().feed(&[1, 2, 3]).unwrap());
    assert!(rejected(session.set_model(Arc::new(model("qwen2")))).contains("of its configuration"));
}

#[test]
fn adapters_are_loaded_and_unloaded_by_name() {
    let mut adapters = Adapters::new(Arc::new(model("phi3")));
    let adapted = adapters.load("recipes", saved()).unwrap();
    assert!(rejected(adapters.load("recipes", saved())).contains("there is an adapter 'recipes' already"));
    assert!(rejected(adapters.load("poems", "nowhere")).contains("cannot read"));
    assert!(adapters.names().eq(["recipes"]) && Arc::ptr_eq(adapters.get("recipes").unwrap(), &adapted));
    assert!(rejected(adapters.get("poems")).contains("the adapter 'poems' is not loaded: loaded are recipes"));
    let mut session = Session::new(adapters.base().clone(), 40, DType::F32).unwrap();
    let plain = session.feed_all(&tokens()).unwrap();
    session.set_model(adapters.get("recipes").unwrap().clone()).unwrap();
    adapters.unload("recipes").unwrap();
    assert!(rejected(adapters.unload("recipes")).contains("not loaded: none is"));
    let (found, merged) = (session.feed_all(&tokens()).unwrap(), logits(adapted.merge().unwrap()));
    assert!(found == logits(Model::clone(&adapted)) && apart(&found, &merged) < 1e-4 && apart(&found, &plain) > 1e-2);
}

#[test]
fn fused_models_say_what_the_adapter_said() {
    // The first has an output projection of its own, the second shares the embedding, which is stored whole here.
    for (name, config) in [
        ("qwen2", r#"{"peft_type": "LORA", "target_modules": ["q_proj", "down_proj"], "use_dora": true}"#),
        ("qwen3", r#"{"peft_type": "LORA", "target_modules": "all-linear", "modules_to_save": ["embed_tokens"], "layers_to_transform": null}"#),
    ] {
        let reference = Reference::all().into_iter().find(|reference| reference.name == name).unwrap().folder();
        let files = ModelFiles::open(reference.path()).unwrap();
        let base = open(&files);
        let adapter = waves(&base, config, [0.3, 0.2]);
        let expected = logits(base.with_adapter(&adapter).unwrap());
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("fused");
        fuse(&files, &Weights::open(&files).unwrap(), &base, &adapter, &folder, &mut |_, _| {}).unwrap();
        let found = logits(open(&ModelFiles::open(&folder).unwrap()));
        assert!(apart(&found, &expected) < 1e-4 && apart(&expected, &logits(base.clone())) > 1e-2, "{name}: {}", apart(&found, &expected));
        assert!(rejected(fuse(&files, &Weights::open(&files).unwrap(), &base, &adapter, &folder, &mut |_, _| {})).contains("exists"));
    }
}

#[test]
fn adapters_of_quantised_models_say_what_they_say_in_the_weights() {
    let config = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}"#;
    let base = Model::random(&executor(), Config::parse(config).unwrap(), WeightType::Block(Format::Q8_0), 1).unwrap();
    for targets in [r#"["q_proj", "v_proj"]"#, r#""all-linear""#] {
        for dora in [false, true] {
            let config = format!(r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": {targets}, "use_dora": {dora}}}"#);
            let adapted = base.with_adapter(&waves(&base, &config, [if dora { 0.6 } else { 0.0 }, 0.2])).unwrap();
            let found = logits(adapted.clone());
            // The model in whose weights it is multiplies floats; integers of 16 bits stand for what goes through blocks.
            let merged = apart(&found, &logits(adapted.merge().unwrap()));
            assert!(merged < 2e-3 && apart(&found, &logits(base.clone())) > 0.1, "{config}: {merged:.1e}");
            let mut one_by_one = Session::new(Arc::new(adapted), 40, DType::F32).unwrap();
            one_by_one.set_chunk(1);
            assert!(one_by_one.feed_all(&tokens()).unwrap() == found, "{config}");
        }
    }
}

#[test]
fn configurations_keep_what_they_say_and_reject_what_is_not_understood() {
    let parse = |more: &str| AdapterConfig::parse(&format!(r#"{{"peft_type": "LORA", "target_modules": ["q_proj"]{more}}}"#));
    let full = r#", "r": 4, "lora_alpha": 3, "use_rslora": true, "rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"^model\\.layers\\.0\\..*": 8},
        "exclude_modules": ["layers.3.self_attn.q_proj"], "layers_to_transform": [0, 1, 3], "lora_dropout": 0.1, "corda_config": null, "loftq_config": {}"#;
    let config = parse(full).unwrap();
    assert_eq!(AdapterConfig::parse(&config.to_json()).unwrap(), config);
    let scale = |layer: usize| config.scale_of(&format!("model.layers.{layer}.self_attn.q_proj")).unwrap();
    assert_eq!((scale(0), scale(1), scale(2)), ((4, 4.0), (2, (3.0 / 2f64.sqrt()) as f32), (4, 1.5)));
    for (more, why) in [
        (r#", "fan_in_fan_out": true"#, "'fan_in_fan_out' is true, which is not supported"),
        (r#", "bias": "all""#, "'bias' is \"all\""),
        (r#", "init_lora_weights": "pissa""#, "'init_lora_weights' is \"pissa\""),
        (r#", "layer_replication": [[0, 2]]"#, "'layer_replication' is [[0,2]]"),
        (r#", "alora_invocation_tokens": [5]"#, "'alora_invocation_tokens' is [5]"),
        (r#", "r": 0"#, "'r' is 0: a rank from 1"),
        (r#", "lora_alpha": "x""#, "'lora_alpha' is \"x\": a number expected"),
        (r#", "rank_pattern": {"(": 4}"#, "'(' is no regular expression"),
        (r#", "layers_to_transform": [1], "layers_pattern": ["h"]"#, "'layers_pattern' is [\"h\"]"),
    ] {
        let error = rejected(parse(more));
        assert!(error.contains(why), "{error}");
    }
    assert!(rejected(AdapterConfig::parse(r#"{"peft_type": "IA3"}"#)).contains("is not \"LORA\""));
    let two = parse(r#", "rank_pattern": {"q_proj": 2, "self_attn.q_proj": 3}"#).unwrap();
    assert!(rejected(two.scale_of("model.layers.0.self_attn.q_proj")).contains("both match 'model.layers.0.self_attn.q_proj'"));
}

#[test]
fn adapters_of_another_model_or_rank_are_named() {
    let (base, good) = (model("phi3"), Adapter::open(saved()).unwrap());
    let with = |change: &dyn Fn(&mut Adapter)| {
        let mut adapter = good.clone();
        change(&mut adapter);
        rejected(base.with_adapter(&adapter))
    };
    let name = "model.layers.0.self_attn.qkv_proj.lora_A.weight";
    assert!(with(&|a| drop(a.tensors.remove(name))).contains(&format!("has no tensor '{name}'")));
    assert!(
        with(&|a| a.config.rank = 3)
            .contains("has shape [2, 36], its configuration and the model ask for [3, 36]: it belongs to another model or rank")
    );
    assert!(with(&|a| a.config.layers = Some(vec![1])).contains("gate_up_proj.lora_A.weight' has no place in its configuration"));
    let embedding = r#"{"peft_type": "LORA", "target_modules": ["qkv_proj", "embed_tokens"]}"#;
    assert!(with(&|a| a.config = AdapterConfig::parse(embedding).unwrap()).contains("a low-rank adapter of the embedding 'model.embed_tokens'"));
    let other = rejected(model("qwen2").with_adapter(&good));
    assert!(other.contains("'qkv_proj', which is nothing in the model"), "{other}");
    let empty = tempfile::tempdir().unwrap();
    assert!(rejected(Adapter::open(empty.path())).contains("an adapter is a folder with adapter_config.json and adapter_model.safetensors"));
    good.save(empty.path()).unwrap();
    fs::write(empty.path().join("adapter_model.safetensors"), "no tensors").unwrap();
    assert!(rejected(Adapter::open(empty.path())).contains("is no safetensors file, or damaged"));
}
