//! Files that the library writes, read again.

use std::fs;

use super::super::{Kind, TensorType, Value, Writer};
use crate::gguf::Gguf;
use elinvar::{DType, Error, kernels::quantized::Format};

fn files(folder: &std::path::Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let values = [
        (Kind::U8, Value::Unsigned(200)),
        (Kind::I8, Value::Signed(-1)),
        (Kind::U16, Value::Unsigned(65_000)),
        (Kind::I16, Value::Signed(-3)),
        (Kind::U32, Value::Unsigned(1 << 31)),
        (Kind::I32, Value::Signed(i32::MIN.into())),
        (Kind::F32, Value::Float(0.5)),
        (Kind::Bool, Value::Bool(true)),
        (Kind::Text, Value::Text("ä\0")),
        (Kind::U64, Value::Unsigned(u64::MAX)),
        (Kind::I64, Value::Signed(i64::MIN)),
        (Kind::F64, Value::Float(0.1)),
    ];
    let mut writer = Writer::new();
    for (kind, value) in values {
        writer.set(&format!("k.{kind}"), kind, value).unwrap();
        writer.set_array(&format!("k.{kind}s"), kind, [value; 3]).unwrap();
    }
    writer.set_array("k.none", Kind::Text, []).unwrap();
    let mut tensors = vec![("f".to_owned(), TensorType::of_dtype(DType::F16).unwrap(), vec![3, 1, 2, 5])];
    let formats: Vec<_> = Format::ALL.iter().filter_map(|f| Some((f.to_string(), TensorType::of_format(*f).ok()?, vec![3, 512]))).collect();
    assert_eq!(formats.len(), 13);
    tensors.extend(formats);
    tensors.push(("scalar".to_owned(), TensorType::of_dtype(DType::F32).unwrap(), vec![]));
    tensors.iter().for_each(|(name, kind, dims)| writer.tensor(name, kind, dims).unwrap());
    let bytes = |number: usize| {
        let (_, kind, dims) = &tensors[number];
        vec![number as u8; dims.iter().product::<usize>() / kind.weights * kind.bytes]
    };
    // Data may come in pieces.
    writer.write(&path, |number, put| bytes(number).chunks(7).try_for_each(&mut *put)).unwrap();
    assert_eq!((fs::metadata(&path).unwrap().len(), files(folder.path())), (writer.bytes(), vec!["m.gguf".to_owned()]));

    let file = Gguf::open(&path).unwrap();
    assert_eq!((file.version(), file.keys().count(), file.tensors().count()), (3, 25, tensors.len()));
    for (kind, value) in values {
        assert_eq!(file.value(&format!("k.{kind}")).unwrap(), Some(value));
        let Some(Value::Array(array)) = file.value(&format!("k.{kind}s")).unwrap() else { panic!("{kind} is no array") };
        assert_eq!((array.kind, array.values().map(|v| v.unwrap()).collect::<Vec<_>>()), (kind, vec![value; 3]));
    }
    for (number, (name, kind, dims)) in tensors.iter().enumerate() {
        let info = file.tensor(name).unwrap();
        assert_eq!((info.kind, &info.dims), (*kind, dims));
        assert_eq!(file.data(info).unwrap().bytes(), bytes(number));
        assert!(info.range.start.is_multiple_of(32));
    }
}

#[test]
fn what_no_file_can_have_is_rejected() {
    let f32 = TensorType::of_dtype(DType::F32).unwrap();
    let q4k = TensorType::of_format(Format::Q4K).unwrap();
    let mut writer = Writer::new();
    writer.set("k", Kind::U8, Value::Unsigned(1)).unwrap();
    writer.tensor("x", f32, &[1]).unwrap();
    let keys = [("k", Kind::U8, Value::Unsigned(1)), ("", Kind::U8, Value::Unsigned(1)), ("a", Kind::U8, Value::Unsigned(256))];
    for (key, kind, value) in keys.into_iter().chain([("b", Kind::U32, Value::Signed(1)), ("c", Kind::Text, Value::Bool(true))]) {
        assert!(writer.set(key, kind, value).is_err(), "{key}");
    }
    assert!(writer.set_array("d", Kind::Array, [Value::Unsigned(1)]).is_err());
    let long = "n".repeat(64);
    for (name, kind, dims) in [
        ("x", f32, &[1][..]),
        ("", f32, &[1]),
        (&long, f32, &[1]),
        ("y", f32, &[1, 1, 1, 1, 1]),
        ("y", f32, &[2, 0]),
        ("y", q4k, &[256, 32]),
        ("y", f32, &[1 << 32, 1 << 32]),
        ("y", f32, &[1 << 62]),
    ] {
        let message = writer.tensor(name, kind, dims).unwrap_err().to_string();
        assert!(message.starts_with("tensor '") && !message.contains('\n'), "{message}");
    }
    assert!(TensorType::of_dtype(DType::I32).is_err());
}

#[test]
fn after_an_error_nothing_is_left_and_the_old_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, "old").unwrap();
    let mut writer = Writer::new();
    writer.tensor("x", TensorType::of_dtype(DType::F32).unwrap(), &[1 << 20]).unwrap();
    let error = writer.write(&path, |_, put| put(&[1; 4096]).and(Err(Error::io("no more")))).unwrap_err();
    assert_eq!(error.to_string(), "tensor 'x': no more");
    let error = writer.write(&path, |_, put| put(&[1; 4096])).unwrap_err();
    assert!(error.to_string().contains("4194304 bytes, 4096 were written"), "{error}");
    assert_eq!((fs::read(&path).unwrap(), files(folder.path())), (b"old".to_vec(), vec!["m.gguf".to_owned()]));
    for impossible in [folder.path().join("no/m.gguf"), folder.path().to_owned()] {
        let message = writer.write(&impossible, |_, put| put(&[0; 4 << 20])).unwrap_err().to_string();
        assert!(message.contains("cannot write") && !message.contains('\n'), "{message}");
    }
    assert_eq!(files(folder.path()).len(), 1);
}
