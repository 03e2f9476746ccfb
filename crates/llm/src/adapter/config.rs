//! `adapter_config.json`, as PEFT writes it.

use elinvar::{Error, Result};
use serde_json::{Map, Value, json};

use super::targets::{Pattern, Targets};
use crate::model::check_dropout;

/// What an adapter changes, and how: PEFT's `LoraConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    /// Rank of the products `B A`.
    pub rank: usize,
    /// They are multiplied by `alpha / rank`.
    pub alpha: f64,
    /// They are multiplied by `alpha / √rank` instead (rsLoRA).
    pub use_rslora: bool,
    /// Rows are rescaled to lengths of their own (DoRA).
    pub use_dora: bool,
    /// In training each element that they read is zero with this probability.
    pub dropout: f64,
    /// Linear layers that get one.
    pub targets: Targets,
    /// Linear layers that get none.
    pub exclude: Option<Targets>,
    /// The only layers of the model whose linear layers get one.
    pub layers: Option<Vec<usize>>,
    /// Ranks of linear layers whose names end with what the pattern matches.
    pub rank_pattern: Vec<(Pattern, usize)>,
    /// Their alphas.
    pub alpha_pattern: Vec<(Pattern, f64)>,
    /// Matrices that are stored whole: names, or what they end with.
    pub modules_to_save: Vec<String>,
    /// The model that it belongs to, as a note.
    pub base_model: Option<String>,
}

impl Default for AdapterConfig {
    /// Rank 8, alpha 16, every linear layer.
    fn default() -> Self {
        Self {
            rank: 8,
            alpha: 16.0,
            use_rslora: false,
            use_dora: false,
            dropout: 0.0,
            targets: Targets::AllLinear,
            exclude: None,
            layers: None,
            rank_pattern: Vec::new(),
            alpha_pattern: Vec::new(),
            modules_to_save: Vec::new(),
            base_model: None,
        }
    }
}

/// Keys that say how an adapter was made or trained, and nothing of what it computes.
const NOTES: &[&str] = &[
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Ways to begin that leave the model's weights as they are.
const BEGINNINGS: &[&str] = &["gaussian", "eva", "orthogonal"];

impl AdapterConfig {
    /// Reads the text of an `adapter_config.json`.
    ///
    /// # Errors
    /// No JSON, another method than LoRA, or a key that is not understood and has an effect.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys: Map<String, Value> = serde_json::from_str(text).map_err(|e| Error::invalid_data(e.to_string()))?;
        let mut take = |key: &str| keys.remove(key).unwrap_or(Value::Null);
        if take("peft_type") != "LORA" {
            return Err(Error::unsupported("the adapter's 'peft_type' is not \"LORA\": LoRA and DoRA are supported"));
        }
        let rank = match take("r") {
            Value::Null => 8,
            rank => rank_of("r", &rank)?,
        };
        let config = Self {
            rank,
            alpha: number("lora_alpha", &take("lora_alpha"))?.unwrap_or(8.0),
            use_rslora: flag("use_rslora", &take("use_rslora"))?,
            use_dora: flag("use_dora", &take("use_dora"))?,
            dropout: number("lora_dropout", &take("lora_dropout"))?.unwrap_or(0.0),
            targets: Targets::read("target_modules", take("target_modules"))?.unwrap_or(Targets::Names(Vec::new())),
            exclude: Targets::read("exclude_modules", take("exclude_modules"))?,
            layers: layers(take("layers_to_transform"))?,
            rank_pattern: pattern("rank_pattern", take("rank_pattern"), rank_of)?,
            alpha_pattern: pattern("alpha_pattern", take("alpha_pattern"), |key, value| {
                number(key, value)?.ok_or_else(|| wrong(key, value, "a number"))
            })?,
            modules_to_save: names("modules_to_save", take("modules_to_save"))?.unwrap_or_default(),
            base_model: take("base_model_name_or_path").as_str().map(str::to_owned),
        };
        check_dropout(config.dropout).map_err(|e| e.context("the adapter's 'lora_dropout'"))?;
        match take("bias") {
            Value::Null => {}
            Value::String(bias) if bias == "none" => {}
            bias => return Err(unsupported("bias", &bias)),
        }
        match take("init_lora_weights") {
            Value::Null | Value::Bool(_) => {}
            Value::String(way) if BEGINNINGS.contains(&way.as_str()) => {}
            way => return Err(unsupported("init_lora_weights", &way)),
        }
        if config.layers.is_some() {
            match take("layers_pattern") {
                Value::Null => {}
                Value::String(name) if name == "layers" || name.is_empty() => {}
                Value::Array(names) if names.iter().all(|name| name == "layers") => {}
                other => return Err(unsupported("layers_pattern", &other)),
            }
        }
        match keys.into_iter().find(|(key, value)| !NOTES.contains(&key.as_str()) && !is_neutral(value)) {
            Some((key, value)) => Err(unsupported(&key, &value)),
            None => Ok(config),
        }
    }

    /// The text of an `adapter_config.json`.
    pub fn to_json(&self) -> String {
        let patterns = |patterns: Vec<(&Pattern, Value)>| Value::Object(patterns.into_iter().map(|(p, v)| (p.to_string(), v)).collect());
        let config = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "inference_mode": true,
            "base_model_name_or_path": self.base_model,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "bias": "none",
            "fan_in_fan_out": false,
            "init_lora_weights": true,
            "use_rslora": self.use_rslora,
            "use_dora": self.use_dora,
            "target_modules": self.targets.to_json(),
            "exclude_modules": self.exclude.as_ref().map(Targets::to_json),
            "layers_to_transform": self.layers,
            "layers_pattern": Value::Null,
            "rank_pattern": patterns(self.rank_pattern.iter().map(|(p, rank)| (p, json!(rank))).collect()),
            "alpha_pattern": patterns(self.alpha_pattern.iter().map(|(p, alpha)| (p, json!(alpha))).collect()),
            "modules_to_save": if self.modules_to_save.is_empty() { Value::Null } else { json!(self.modules_to_save) },
        });
        format!("{config:#}\n")
    }

    /// The rank of a linear layer, and the factor of its product.
    pub(crate) fn scale_of(&self, name: &str) -> Result<(usize, f32)> {
        let rank = only(&self.rank_pattern, name)?.unwrap_or(self.rank);
        let alpha = only(&self.alpha_pattern, name)?.unwrap_or(self.alpha);
        let divisor = if self.use_rslora { (rank as f64).sqrt() } else { rank as f64 };
        Ok((rank, (alpha / divisor) as f32))
    }
}

/// What the pattern that matches stands for. PEFT takes the first, in the order of the file.
fn only<T: Copy + PartialEq>(patterns: &[(Pattern, T)], name: &str) -> Result<Option<T>> {
    let mut found: Option<(&Pattern, T)> = None;
    for (pattern, value) in patterns {
        match found {
            _ if !pattern.ends(name)? => {}
            Some((other, known)) if known != *value => {
                return Err(Error::unsupported(format!(
                    "the adapter's patterns '{other}' and '{pattern}' both match '{name}', with different values"
                )));
            }
            Some(_) => {}
            None => found = Some((pattern, *value)),
        }
    }
    Ok(found.map(|(_, value)| value))
}

/// Whether a value says that there is nothing.
fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(_) => false,
    }
}

fn unsupported(key: &str, value: &Value) -> Error {
    Error::unsupported(format!("the adapter's '{key}' is {value}, which is not supported"))
}

pub(super) fn wrong(key: &str, value: &Value, expected: &str) -> Error {
    Error::invalid_data(format!("the adapter's '{key}' is {value}: {expected} expected"))
}

fn flag(key: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Null => Ok(false),
        value => value.as_bool().ok_or_else(|| wrong(key, value, "true or false")),
    }
}

fn number(key: &str, value: &Value) -> Result<Option<f64>> {
    match value {
        Value::Null => Ok(None),
        value => value.as_f64().filter(|x| x.is_finite()).map(Some).ok_or_else(|| wrong(key, value, "a number")),
    }
}

fn rank_of(key: &str, value: &Value) -> Result<usize> {
    let rank = value.as_u64().filter(|rank| (1..=1 << 16).contains(rank));
    rank.map(|rank| rank as usize).ok_or_else(|| wrong(key, value, "a rank from 1 to 65536"))
}

fn layers(value: Value) -> Result<Option<Vec<usize>>> {
    let key = "layers_to_transform";
    let index = |value: &Value| value.as_u64().map(|index| index as usize).ok_or_else(|| wrong(key, value, "the index of a layer"));
    match &value {
        Value::Null => Ok(None),
        Value::Array(all) => all.iter().map(index).collect::<Result<_>>().map(Some),
        one => Ok(Some(vec![index(one)?])),
    }
}

fn pattern<T>(key: &str, value: Value, read: impl Fn(&str, &Value) -> Result<T>) -> Result<Vec<(Pattern, T)>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(all) => all.iter().map(|(pattern, value)| Ok((Pattern::new(pattern)?, read(key, value)?))).collect(),
        other => Err(wrong(key, &other, "patterns with values")),
    }
}

pub(super) fn names(key: &str, value: Value) -> Result<Option<Vec<String>>> {
    match value {
        Value::Null => Ok(None),
        Value::Array(all) => {
            all.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(|| wrong(key, name, "a name"))).collect::<Result<_>>().map(Some)
        }
        other => Err(wrong(key, &other, "a list of names")),
    }
}
