//! A model with an adapter is a model of the adapter's name.

use std::{fs, path::PathBuf};

use elinvar_server::ServerOptions;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::client::{folder, options, serve, served};

/// An adapter of the queries of all six layers.
fn adapter() -> PathBuf {
    const RANK: usize = 2;
    const WIDTH: usize = 256;
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("adapter");
    fs::create_dir_all(&folder).unwrap();
    let config = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 32, "target_modules": ["q_proj"], "lora_dropout": 0.0, "bias": "none"});
    fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let waves: Vec<u8> = (0..RANK * WIDTH).flat_map(|i| (0.3 * (i as f32).sin()).to_le_bytes()).collect();
    let shapes = [("A", vec![RANK, WIDTH]), ("B", vec![WIDTH, RANK])];
    let names = (0..6).flat_map(|layer| {
        shapes.clone().map(|(part, dims)| (format!("base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"), dims))
    });
    let views = names.map(|(name, dims)| (name, TensorView::new(Dtype::F32, dims, &waves).unwrap()));
    fs::write(folder.join("adapter_model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    folder
}

#[test]
fn requests_name_an_adapter_as_a_model() {
    let server = serve(vec![served(&folder(), options(), &[("wise".to_owned(), adapter())])], Vec::new(), ServerOptions::default());
    let models = server.get("/v1/models").json();
    assert_eq!((&models["data"][1]["id"], &models["data"][1]["parent"]), (&json!("wise"), &json!("shakespeare")));
    assert_eq!(server.get("/v1/models/wise").json(), models["data"][1]);
    let body = |model: &str| json!({"model": model, "prompt": "ROMEO:", "max_tokens": 12, "temperature": 0, "digest": true});
    let (plain, wise) = (server.answer("/v1/completions", &body("default")), server.answer("/v1/completions", &body("wise")));
    assert_eq!((&plain["model"], &wise["model"]), (&json!("shakespeare"), &json!("wise")));
    assert_ne!(plain["elinvar"]["digest"], wise["elinvar"]["digest"]);
    // Beside each other they are what they are alone.
    let asked: Vec<_> = (0..6).map(|i| server.ask("/v1/completions", &body(if i % 2 == 0 { "shakespeare" } else { "wise" }))).collect();
    for (i, stream) in asked.into_iter().enumerate() {
        let expected = if i % 2 == 0 { &plain } else { &wise };
        assert_eq!(crate::client::read(stream).json()["elinvar"]["digest"], expected["elinvar"]["digest"]);
    }
    assert_eq!(server.error("/v1/completions", &body("foolish")).0, 404);
}
