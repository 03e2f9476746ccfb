//! Files of launches, so that another device can run what the simulator ran.

use std::{fmt::Write, fs, path::Path};

use elinvar_sim::{ConstantValue, Grid};

use crate::{arguments::Case, compare::Ran};

/// Writes `KERNEL.safetensors`: what is bound (`buffer.INDEX`; `bytes.INDEX` in place of a buffer) and what was written (`written.INDEX`), all as bytes; the launch is in
/// the metadata.
pub(crate) fn save(folder: &Path, kernel: &str, case: &Case, ran: &Ran) -> std::io::Result<()> {
    let mut tensors: Vec<(String, &[u8])> = Vec::new();
    tensors.extend(case.buffers.iter().map(|argument| (format!("buffer.{}", argument.index), argument.contents.as_slice())));
    tensors.extend(case.bytes.iter().map(|(index, bytes)| (format!("bytes.{index}"), bytes.as_slice())));
    let outputs = case.buffers.iter().filter(|argument| argument.written);
    tensors.extend(outputs.zip(&ran.written).map(|(argument, bytes)| (format!("written.{}", argument.index), bytes.as_slice())));
    let (threads, extent) = match case.launch.grid {
        Grid::Threads(threads) => ("threads", threads),
        Grid::Threadgroups(groups) => ("threadgroups", groups),
    };
    let constants: Vec<String> = case.constants.iter().map(|(index, value)| format!("{index}={}", text(*value))).collect();
    let numbers = |numbers: [u32; 3]| numbers.map(|number| number.to_string()).join(",");
    let mut header = format!(
        r#"{{"__metadata__":{{"kernel":"{kernel}","{threads}":"{}","threadgroup":"{}","constants":"{}"}}"#,
        numbers(extent),
        numbers(case.launch.threadgroup),
        constants.join(",")
    );
    let mut end = 0;
    for (name, bytes) in &tensors {
        let start = end;
        end += bytes.len();
        let _ = write!(header, r#","{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{start},{end}]}}"#, bytes.len());
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    tensors.iter().for_each(|(_, bytes)| file.extend(*bytes));
    fs::write(folder.join(format!("{kernel}.safetensors")), file)
}

fn text(value: ConstantValue) -> String {
    match value {
        ConstantValue::Bool(value) => value.to_string(),
        ConstantValue::Int(value) => value.to_string(),
        ConstantValue::Uint(value) => value.to_string(),
        ConstantValue::Float(value) => value.to_string(),
    }
}
