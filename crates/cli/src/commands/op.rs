use std::{collections::HashMap, path::PathBuf};

use clap::Args;
use elinvar::{
    Error, Result, Tensor,
    kernels::{
        AttributeInfo, Description, Port,
        registry::{find, operators},
    },
};
use serde_json::{Value, json};

use crate::output::print_line;
use crate::{args::ComputeArgs, tensors};

/// Arguments of `elinvar op`.
#[derive(Debug, Args)]
pub(crate) struct OpArgs {
    /// Run this operator, as `--list` names it
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// List every operator with its inputs, outputs, data types and attributes
    #[arg(long, conflicts_with_all = ["name", "input", "output", "attr"])]
    list: bool,
    /// Print JSON, with --list
    #[arg(long, requires = "list")]
    json: bool,
    /// Read the inputs by name from this safetensors file; an operator without inputs needs none
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write the outputs by name to this safetensors file
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    output: Option<PathBuf>,
    /// Set an attribute; lists are written 1,2,3; repeat for more
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
    #[command(flatten)]
    device: ComputeArgs,
}

pub(crate) fn run(args: &OpArgs) -> Result<()> {
    let (Some(name), Some(output)) = (&args.name, &args.output) else {
        list(args.json);
        return Ok(());
    };
    let description = find(name)?;
    let mut attributes = Vec::new();
    for text in &args.attr {
        let (key, value) = text.split_once('=').ok_or_else(|| Error::invalid_argument(format!("--attr '{text}': write it as NAME=VALUE")))?;
        attributes.push((key.to_owned(), value.to_owned()));
    }
    let takes_precision = description.attributes.iter().any(|a| a.name == "precision");
    if let Some(precision) = args.device.precision.filter(|_| takes_precision) {
        attributes.push(("precision".to_owned(), precision.to_string()));
    }
    let operator = description.operator(attributes)?;
    let executor = args.device.executor()?;
    let given = args.input.as_deref().map(|file| tensors::read(&executor, file)).transpose()?.unwrap_or_default();
    let inputs = in_order(description, &given)?;
    let results = executor.apply(operator.into(), &inputs)?;
    tensors::write(output, named(description, &inputs, results)?)
}

/// The inputs in the order the operator declares them.
fn in_order<'a>(description: &Description, given: &'a HashMap<String, Tensor>) -> Result<Vec<Option<&'a Tensor>>> {
    let mut inputs = Vec::new();
    let mut used = 0;
    for port in description.inputs {
        let names: Vec<String> = if port.variadic {
            (0..).map(|i| format!("{}{i}", port.name)).take_while(|n| given.contains_key(n)).collect()
        } else {
            vec![port.name.into()]
        };
        for name in names {
            let tensor = given.get(&name);
            if tensor.is_none() && !port.optional {
                let wanted: Vec<_> = description.inputs.iter().map(shown).collect();
                return Err(Error::invalid_argument(format!("{}: input '{name}' is missing: it takes {}", description.name, wanted.join(", "))));
            }
            used += usize::from(tensor.is_some());
            inputs.push(tensor);
        }
    }
    if used < given.len() {
        let known = |name: &str| description.inputs.iter().any(|p| p.name == name || p.variadic && name.starts_with(p.name));
        let mut unknown: Vec<_> = given.keys().filter(|n| !known(n)).cloned().collect();
        unknown.sort();
        let wanted: Vec<_> = description.inputs.iter().map(shown).collect();
        return Err(Error::invalid_argument(format!(
            "{}: unknown input '{}': it takes {}",
            description.name,
            unknown.join("', '"),
            wanted.join(", ")
        )));
    }
    Ok(inputs)
}

fn shown(port: &Port) -> String {
    match (port.variadic, port.optional) {
        (true, _) => format!("{0}0, {0}1, …", port.name),
        (false, true) => format!("[{}]", port.name),
        (false, false) => port.name.to_owned(),
    }
}

/// Results by name; those that the operator does not give are inputs of these names, which it has updated.
fn named(description: &Description, inputs: &[Option<&Tensor>], results: Vec<Tensor>) -> Result<Vec<(String, Tensor)>> {
    if let [Port { variadic: true, name, .. }] = description.outputs {
        return Ok(results.into_iter().enumerate().map(|(i, t)| (format!("{name}{i}"), t)).collect());
    }
    let updated = |port: &Port| description.inputs.iter().position(|p| p.name == port.name).and_then(|index| (*inputs.get(index)?).cloned());
    let mut results = results.into_iter();
    let result = |port: &Port| Some((port.name.to_owned(), results.next().or_else(|| updated(port))?));
    Ok(description.outputs.iter().filter_map(result).collect())
}

fn list(json: bool) {
    if json {
        print_line(Value::Array(operators().iter().map(|d| describe(d)).collect()));
        return;
    }
    for description in operators() {
        let inputs: Vec<_> = description.inputs.iter().map(shown).collect();
        let attributes: Vec<_> = description.attributes.iter().map(|a| format!(" {}={}", a.name, a.default.unwrap_or("?"))).collect();
        print_line(format!("{}({}){}\n    {}", description.name, inputs.join(", "), attributes.concat(), description.summary));
    }
}

fn describe(description: &Description) -> Value {
    let port = |p: &Port| {
        let dtypes: Vec<_> = p.dtypes.iter().map(|d| d.name()).collect();
        json!({ "name": p.name, "dtypes": dtypes, "optional": p.optional, "variadic": p.variadic, "doc": p.doc })
    };
    let attribute = |a: &AttributeInfo| {
        let (kind, values) = (a.kind.to_string(), a.kind.values());
        json!({ "name": a.name, "kind": kind, "values": values, "default": a.default, "required": a.default.is_none(), "doc": a.doc })
    };
    json!({
        "name": description.name,
        "summary": description.summary,
        "inputs": description.inputs.iter().map(port).collect::<Vec<_>>(),
        "outputs": description.outputs.iter().map(port).collect::<Vec<_>>(),
        "attributes": description.attributes.iter().map(attribute).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use elinvar::Executor;

    use super::*;

    #[test]
    fn inputs_are_matched_by_name() {
        let executor = Executor::new_auto().unwrap();
        let softmax = find("softmax").unwrap();
        let x = executor.tensor(&[2], &[1.0f32, 2.0]).unwrap();
        let given = HashMap::from([("x".to_owned(), x.clone())]);
        assert_eq!(in_order(softmax, &given).unwrap().len(), 1);
        let wrong = HashMap::from([("y".to_owned(), x.clone())]);
        assert_eq!(in_order(softmax, &wrong).unwrap_err().to_string(), "softmax: input 'x' is missing: it takes x");
        let extra = HashMap::from([("x".to_owned(), x.clone()), ("z".to_owned(), x)]);
        assert!(in_order(softmax, &extra).unwrap_err().to_string().contains("unknown input 'z'"));
    }

    #[test]
    fn errors_name_the_operator() {
        let (softmax, executor) = (find("softmax").unwrap(), Executor::new_auto().unwrap());
        let rejected = |x: Tensor| {
            let operator = softmax.operator([("axis", "3")]).unwrap();
            executor.apply(operator.into(), &[Some(&x)]).unwrap_err().to_string()
        };
        assert_eq!(rejected(executor.tensor(&[2], &[1i8, 2]).unwrap()), "softmax: x is i8: expected f32, f16 or bf16");
        assert!(rejected(executor.tensor(&[2], &[1.0f32, 2.0]).unwrap()).starts_with("softmax: x has shape [2], the axis is 3: expected"));
    }
}
