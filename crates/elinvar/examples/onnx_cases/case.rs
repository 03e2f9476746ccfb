//! A case: its tensors, its attributes, and how results are compared.

use std::{collections::HashMap, fs, path::Path};

use elinvar::{DType, Error, ErrorKind, Executor, Result, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};

use crate::adapter;

pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Inapplicable(String),
}

/// One case of the manifest.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) op: String,
    pub(crate) opset: i64,
    pub(crate) attributes: Map<String, Value>,
    /// Names in order; empty for an absent one.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    rtol: f64,
    atol: f64,
    /// The true type of tensors that are stored wider.
    widened: HashMap<String, String>,
}

fn invalid(what: &str) -> Error {
    Error::invalid_data(format!("manifest.json: {what}"))
}

impl Case {
    pub(crate) fn load_all(folder: &Path) -> Result<Vec<Case>> {
        let path = folder.join("manifest.json");
        let text = fs::read_to_string(&path).map_err(|e| Error::with_source(ErrorKind::Io, path.display().to_string(), e))?;
        let manifest: Value = serde_json::from_str(&text).map_err(|e| Error::with_source(ErrorKind::InvalidData, path.display().to_string(), e))?;
        let cases = manifest["cases"].as_array().ok_or_else(|| invalid("no 'cases'"))?;
        cases.iter().map(Case::parse).collect()
    }

    fn parse(value: &Value) -> Result<Case> {
        let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| invalid(&format!("a case without '{key}'")));
        let names =
            |key: &str| -> Vec<String> { value[key].as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned()).collect() };
        let pairs = |key: &str| value[key].as_object().cloned().unwrap_or_default();
        Ok(Case {
            name: text("name")?,
            op: text("op")?,
            opset: pairs("opset").values().filter_map(Value::as_i64).next().unwrap_or(0),
            attributes: pairs("attrs"),
            inputs: names("inputs"),
            outputs: names("outputs"),
            rtol: value["rtol"].as_f64().unwrap_or(1e-3),
            atol: value["atol"].as_f64().unwrap_or(1e-7),
            widened: pairs("widened").into_iter().map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned())).collect(),
        })
    }

    pub(crate) fn run(&self, executor: &Executor, folder: &Path) -> Outcome {
        let tensors = match self.load(executor, &folder.join(format!("{}.safetensors", self.name))) {
            Ok(tensors) => tensors,
            Err(error) if error.is_unsupported() => return Outcome::Inapplicable(error.to_string()),
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        match adapter::run(self, executor, &tensors) {
            Ok(results) => self.compare(&results, &tensors).map_or_else(Outcome::Failed, |()| Outcome::Passed),
            Err(error) if error.is_unsupported() => Outcome::Inapplicable(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    fn load(&self, executor: &Executor, file: &Path) -> Result<HashMap<String, Tensor>> {
        let bytes = fs::read(file).map_err(|e| Error::with_source(ErrorKind::Io, file.display().to_string(), e))?;
        let stored = SafeTensors::deserialize(&bytes).map_err(|e| Error::with_source(ErrorKind::InvalidData, file.display().to_string(), e))?;
        let mut tensors = HashMap::new();
        for (name, view) in stored.tensors() {
            let dtype = data_type(view.dtype())?;
            let tensor = executor.tensor_from_bytes(dtype, view.shape(), view.data())?;
            let tensor = match self.widened.get(&name).map(String::as_str) {
                None => tensor,
                Some("bfloat16") => tensor.cast(DType::BF16)?,
                Some(other) => return Err(Error::unsupported(format!("{other} is no data type of the library"))),
            };
            tensors.insert(name, tensor);
        }
        Ok(tensors)
    }

    fn compare(&self, results: &[Option<Tensor>], tensors: &HashMap<String, Tensor>) -> Result<(), String> {
        for (index, name) in self.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let expected = tensors.get(&format!("out:{name}")).ok_or_else(|| format!("no expected '{name}'"))?;
            let found = results.get(index).and_then(Option::as_ref).ok_or_else(|| format!("output '{name}' was not computed"))?;
            // NumPy's `ascontiguousarray`, with which files are made, gives a number an axis.
            let fits = found.shape() == expected.shape() || found.shape().is_empty() && expected.shape()[..] == [1];
            if found.dtype() != expected.dtype() || !fits {
                return Err(format!("'{name}' is {found:?}, {expected:?} expected"));
            }
            self.close(found, expected).map_err(|why| format!("'{name}': {why}"))?;
        }
        Ok(())
    }

    /// NumPy's `allclose` at the case's tolerance. For f16 and bf16 outputs two units in the last place are allowed too: the nominal tolerance is
    /// finer than those types, and the expected values were computed with intermediate results of those types.
    fn close(&self, found: &Tensor, expected: &Tensor) -> Result<(), String> {
        let unit = match expected.dtype() {
            DType::F16 => 2f64.powi(-9),
            DType::BF16 => 2f64.powi(-6),
            _ => 0.0,
        };
        let (found, expected) = (widen(found)?, widen(expected)?);
        for (at, (&f, &e)) in found.iter().zip(&expected).enumerate() {
            let allowed = self.atol + self.rtol.max(unit) * e.abs();
            if !(f == e || f.is_nan() && e.is_nan() || (f - e).abs() <= allowed) {
                return Err(format!("element {at} is {f}, {e} expected"));
            }
        }
        Ok(())
    }
}

/// Whole numbers of up to 64 bits go through f64 here: cases use small ones.
fn widen(tensor: &Tensor) -> Result<Vec<f64>, String> {
    fn all<T: elinvar::Element>(tensor: &Tensor, to: impl Fn(T) -> f64) -> elinvar::Result<Vec<f64>> {
        Ok(tensor.to_vec::<T>()?.into_iter().map(to).collect())
    }
    let values = match tensor.dtype() {
        DType::I64 => all::<i64>(tensor, |v| v as f64),
        DType::U64 => all::<u64>(tensor, |v| v as f64),
        DType::I32 => all::<i32>(tensor, f64::from),
        DType::U32 => all::<u32>(tensor, f64::from),
        _ => tensor.cast(DType::F32).and_then(|t| all::<f32>(&t, f64::from)),
    };
    values.map_err(|e| e.to_string())
}

fn data_type(stored: Dtype) -> Result<DType> {
    Ok(match stored {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::BOOL => DType::Bool,
        other => return Err(Error::unsupported(format!("{other:?} is no data type of the library"))),
    })
}
