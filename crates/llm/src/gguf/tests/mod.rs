mod mutated;
pub(crate) mod writer;
mod written;

use std::{fs, sync::Arc};

use super::*;
use writer::Writer;

pub(crate) fn parse(writer: &Writer) -> Result<Gguf> {
    bytes(writer.bytes())
}

fn bytes(bytes: Vec<u8>) -> Result<Gguf> {
    Gguf::parse("m.gguf", HostMemory::new(Arc::new(bytes)))
}

fn message(result: Result<Gguf>) -> String {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("m.gguf") && !message.contains('\n'), "{message}");
    message
}

#[track_caller]
fn rejected(writer: &Writer, expected: &[&str]) {
    let message = message(parse(writer));
    assert!(expected.iter().all(|part| message.contains(part)), "{message}");
}

fn everything() -> Writer {
    Writer::new()
        .raw("k.u8", 0, &[200])
        .raw("k.i8", 1, &[0xff])
        .u16("k.u16", 65_000)
        .raw("k.i16", 3, &(-3i16).to_le_bytes())
        .u32("k.u32", 1 << 31)
        .raw("k.i32", 5, &7i32.to_le_bytes())
        .f32("k.f32", 0.5)
        .bool("k.bool", true)
        .text("k.text", "ä")
        .texts("k.texts", &["a", "", "b"])
        .raw("k.u64", 10, &u64::MAX.to_le_bytes())
        .raw("k.i64", 11, &i64::MIN.to_le_bytes())
        .raw("k.f64", 12, &0.1f64.to_le_bytes())
        .f32s("x", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .tensor("q", 8, &[1, 32], &[0; 34])
}

#[test]
fn values_of_every_type_and_tensors_are_read() {
    for version in [2, 3] {
        let file = parse(&Writer { version, ..everything() }).unwrap();
        assert_eq!((file.version(), file.label(), file.keys().count()), (version, "m.gguf", 13));
        let value = |key: &str| file.value(key).unwrap().unwrap();
        assert_eq!([value("k.u8"), value("k.u16"), value("k.u64")], [200, 65_000, u64::MAX].map(Value::Unsigned));
        assert_eq!([value("k.i8"), value("k.i16"), value("k.i64")], [-1, -3, i64::MIN].map(Value::Signed));
        assert_eq!([value("k.f32"), value("k.f64")], [0.5, 0.1].map(Value::Float));
        assert_eq!((file.bool("k.bool").unwrap(), file.text("k.text").unwrap()), (Some(true), Some("ä")));
        assert_eq!(file.texts("k.texts").unwrap().unwrap(), ["a", "", "b"]);
        assert_eq!((file.unsigned("k.i32").unwrap(), file.unsigned("none").unwrap()), (Some(7), None));
        let error = |result: Result<Option<u64>>| result.unwrap_err().to_string();
        assert_eq!(error(file.unsigned("k.i8")), "m.gguf: key 'k.i8' is signed(-1): a number that is not negative expected");
        assert_eq!(error(file.unsigned("k.texts")), "m.gguf: key 'k.texts' is an array of 3 string: a number that is not negative expected");
        let x = file.tensor("x").unwrap();
        assert_eq!((x.kind.name, &x.dims[..], x.bytes()), ("F32", &[2, 3][..], 24));
        let mut values = [0.0; 6];
        x.kind.decode(file.data(x).unwrap().bytes(), &mut values).unwrap();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(file.tensors().map(|(name, t)| (name, t.bytes())).collect::<Vec<_>>(), [("q", 34), ("x", 24)]);
    }
}

#[test]
fn plain_types_decode_to_f32() {
    let cases: [(u32, Vec<u8>, [f32; 2]); 8] = [
        (0, [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect(), [1.5, -2.0]),
        (1, [0x3e00u16, 0x0001].iter().flat_map(|v| v.to_le_bytes()).collect(), [1.5, 2f32.powi(-24)]),
        (24, vec![0xff, 3], [-1.0, 3.0]),
        (25, [-300i16, 3].iter().flat_map(|v| v.to_le_bytes()).collect(), [-300.0, 3.0]),
        (26, [-70_000i32, 3].iter().flat_map(|v| v.to_le_bytes()).collect(), [-70_000.0, 3.0]),
        (27, [-70_000i64, 3].iter().flat_map(|v| v.to_le_bytes()).collect(), [-70_000.0, 3.0]),
        (28, [0.1f64, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect(), [0.1, 3.0]),
        (30, [0x3fc0u16, 0x0001].iter().flat_map(|v| v.to_le_bytes()).collect(), [1.5, f32::from_bits(1 << 16)]),
    ];
    for (kind, data, expected) in cases {
        let file = parse(&Writer::new().tensor("x", kind, &[2], &data)).unwrap();
        let x = file.tensor("x").unwrap();
        let mut values = [0.0; 2];
        x.kind.decode(file.data(x).unwrap().bytes(), &mut values).unwrap();
        assert_eq!(values, expected, "{}", x.kind.name);
    }
}

#[test]
fn a_file_cut_anywhere_is_rejected() {
    let whole = everything().bytes();
    // The padding of the last tensor may be missing.
    for length in 0..whole.len() - 30 {
        message(bytes(whole[..length].to_vec()));
    }
    assert!(bytes(whole[..whole.len() - 30].to_vec()).is_ok());
}

#[test]
fn other_files_and_versions_are_rejected() {
    assert!(message(bytes(b"PK\x03\x04 and more".to_vec())).contains(r"it begins with 'PK\x03\x04', not with 'GGUF'"));
    rejected(&Writer { version: 1, ..Writer::new() }, &["version 1 is not supported"]);
    rejected(&Writer { version: 4, ..Writer::new() }, &["version 4 is not supported"]);
    rejected(&Writer { version: 3u32.swap_bytes(), ..Writer::new() }, &["big-endian"]);
}

#[test]
fn counts_beyond_the_file_are_rejected_before_memory_is_taken() {
    for (tensors, keys) in [(u64::MAX, 0), (0, u64::MAX), (1 << 40, 1), (1, 1 << 40)] {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(tensors.to_le_bytes());
        file.extend(keys.to_le_bytes());
        file.resize(64, 0);
        assert!(message(bytes(file)).contains("in 40 bytes: the file is cut or damaged"));
    }
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    rejected(&Writer::new().raw("k", 9, &array(0, u64::MAX)), &["key 'k'", "18446744073709551615 values"]);
    rejected(&Writer::new().raw("k", 9, &array(10, 1 << 61)), &["key 'k'", "2305843009213693952 values"]);
    rejected(&Writer::new().raw("k", 9, &array(8, 3)), &["key 'k'", "3 values in 0 bytes"]);
    rejected(&Writer::new().raw("k", 8, &u64::MAX.to_le_bytes()), &["key 'k'", "a text of 18446744073709551615 bytes"]);
    let mut crowd = b"GGUF\x03\0\0\0".to_vec();
    crowd.extend([0u64.to_le_bytes(), 65_537u64.to_le_bytes()].concat());
    crowd.resize(1 << 20, 0);
    assert!(message(bytes(crowd)).contains("65537 keys of metadata: at most 65536"));
}

#[test]
fn damaged_metadata_are_rejected_with_the_key() {
    rejected(&Writer::new().u32("k", 1).u32("k", 2), &["key 'k' occurs twice"]);
    rejected(&Writer::new().raw("k", 13, &[0; 8]), &["key 'k'", "value type 13 is unknown"]);
    rejected(&Writer::new().array("k", 9, &[vec![0; 12]]), &["key 'k'", "array of arrays"]);
    rejected(&Writer::new().raw("k", 7, &[2]), &["key 'k'", "a bool is 2"]);
    rejected(&Writer::new().raw("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]), &["key 'k'", "not UTF-8"]);
    rejected(&Writer::new().u32("", 1), &["key 0", "a key of 0 bytes"]);
    rejected(&Writer::new().u32("a\n\u{1b}[31m", 1), &["key 0", r"the key 'a\n\u{1b}[31m' has control characters"]);
    rejected(&Writer::new().f32s("a\rb", &[1], &[1.0]), &["tensor 0", r"the name 'a\rb' has control characters"]);
}

/// A zero divides, 2^30 overflows a pointer, and the bytes of another type are read as one.
#[test]
fn alignments_that_are_no_powers_of_two_are_rejected() {
    for alignment in [0, 3, u32::MAX] {
        rejected(&Writer::new().u32("general.alignment", alignment), &["'general.alignment'", "a power of two expected"]);
    }
    rejected(&Writer::new().raw("general.alignment", 10, &32u64.to_le_bytes()), &["'general.alignment' is of type u64: u32 expected"]);
    rejected(&Writer::new().text("general.alignment", "x"), &["is of type string"]);
    rejected(&Writer::new().u32("general.alignment", 1 << 30).f32s("x", &[1], &[1.0]), &["tensor 'x'", "exceed the file"]);
    let file = Writer { alignment: 64, ..Writer::new() }.u32("general.alignment", 64).f32s("x", &[1], &[1.0]).f32s("y", &[1], &[2.0]);
    let file = parse(&file).unwrap();
    assert_eq!(file.data(file.tensor("y").unwrap()).unwrap().bytes(), 2f32.to_le_bytes());
}

/// Products that wrap to small numbers, and sums that do.
#[test]
fn sizes_that_overflow_are_rejected() {
    let x = |dims: &[u64]| Writer::new().tensor("x", 0, dims, &[0; 64]);
    for dims in [&[1 << 32, 1 << 32][..], &[1 << 62, 4], &[u64::MAX], &[1 << 63, 2, 1, 1], &[0], &[4, 0]] {
        rejected(&x(dims), &["tensor 'x'", "have no possible size"]);
    }
    rejected(&x(&[1 << 40]), &["tensor 'x'", "4398046511104 bytes at byte 0 of the data exceed the file"]);
    rejected(&Writer::new().tensor_at("x", 0, &[1], u64::MAX - 31, &[0; 4]), &["tensor 'x'", "begin at byte 18446744073709551584"]);
    rejected(&x(&[1, 1, 1, 1, 1]), &["tensor 'x'", "5 dimensions"]);
    rejected(&Writer::new().tensor("x", 2, &[u64::MAX - 31], &[0; 64]), &["tensor 'x'"]);
    assert!(message(bytes(x(&[17]).bytes())).contains("68 bytes"));
}

/// What other readers were caught by, each as it was published.
#[test]
fn published_attacks_are_rejected() {
    let dims = |dims: &[u64]| Writer::new().tensor("x", 0, dims, &[0; 64]);
    let text = |length: u64| [length.to_le_bytes().to_vec(), b"a".to_vec()].concat();
    let cases: [(&str, Writer, &str); 10] = [
        ("CVE-2025-53630: the sum of sizes wraps", dims(&[16]).tensor_at("y", 0, &[(1 << 62) - 1], 64, &[]), "exceed the file"),
        ("CVE-2026-27940: the sum of padded sizes wraps", dims(&[16]).tensor_at("y", 0, &[(1 << 62) - 8], 64, &[]), "exceed the file"),
        ("CVE-2026-33298: bytes of a tensor wrap", dims(&[1 << 31, 1 << 31, 1 << 2, 1]), "have no possible size"),
        ("CVE-2026-7482: a shape beyond the file", dims(&[1 << 20]), "exceed the file"),
        ("GHSA-7rxv: a token longer than an int", Writer::new().array("tokenizer.ggml.tokens", 8, &[text(1 << 31)]), "a text of 2147483648 bytes"),
        ("candle#3533: a count that takes gigabytes", Writer::new().raw("k", 9, &[4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]), "16777216 values in"),
        ("candle#3712: alignment 0", Writer::new().u32("general.alignment", 0), "a power of two expected"),
        ("ggml#1516: alignment 2^30", Writer::new().u32("general.alignment", 1 << 30).f32s("x", &[1], &[1.0]), "exceed the file"),
        ("llama.cpp#26318: an alignment of another type", Writer::new().text("general.alignment", "32"), "is of type string"),
        ("gguf-rs: the product of extents wraps", dims(&[1 << 32, 1 << 32]), "have no possible size"),
    ];
    for (name, writer, expected) in cases {
        let message = message(parse(&writer));
        assert!(message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn offsets_that_do_not_follow_each_other_are_rejected() {
    let x = Writer::new().f32s("x", &[8], &[1.0; 8]);
    for offset in [0, 16, 33, 64] {
        rejected(&x.clone().tensor_at("y", 0, &[8], offset, &[0; 32]), &["tensor 'y'", "32 is next after the tensor before"]);
    }
    rejected(&x.clone().f32s("x", &[8], &[1.0; 8]), &["tensor 'x'", "occurs twice"]);
}

#[test]
fn types_and_names_that_are_unknown_are_rejected() {
    for (kind, expected) in [(4, "type 4 was removed"), (31, "type 31 was removed"), (38, "type 38 was removed"), (99, "type 99 is unknown")] {
        rejected(&Writer::new().tensor("x", kind, &[32], &[0; 64]), &["tensor 'x'", expected]);
    }
    rejected(&Writer::new().tensor("x", 12, &[2, 32], &[0; 288]), &["tensor 'x'", "rows of 32 weights are no whole blocks of 256 (Q4_K)"]);
    rejected(&Writer::new().f32s(&"n".repeat(64), &[1], &[1.0]), &["a name of 64 bytes"]);
    // A type that is known but not decoded is found in the table.
    let file = parse(&Writer::new().tensor("x", 16, &[256], &[0; 66])).unwrap();
    let kind = file.tensor("x").unwrap().kind;
    assert_eq!((kind.name, kind.is_supported()), ("IQ2_XXS", false));
    assert!(kind.decode(&[0; 66], &mut [0.0; 256]).unwrap_err().to_string().contains("type IQ2_XXS is not supported"));
}

#[test]
fn split_files_are_read_together() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: u16, count: u16| Writer::new().u16(NUMBER, number).u16(COUNT, count);
    let write = |name: &str, writer: &Writer| fs::write(folder.path().join(name), writer.bytes()).unwrap();
    let open = |name: &str| Gguf::open(folder.path().join(name));
    let first = part(0, 2).u32(TENSORS, 2).text("general.name", "n").f32s("a", &[1], &[1.0]);
    write("m-00001-of-00002.gguf", &first);
    let missing = open("m-00001-of-00002.gguf").unwrap_err().to_string();
    assert!(missing.contains("cannot open") && missing.contains("m-00002-of-00002.gguf"), "{missing}");
    write("m-00002-of-00002.gguf", &part(1, 2).f32s("b", &[2], &[2.0, 3.0]));
    let file = open("m-00001-of-00002.gguf").unwrap();
    assert_eq!((file.text("general.name").unwrap(), file.tensors().count()), (Some("n"), 2));
    assert_eq!(file.data(file.tensor("b").unwrap()).unwrap().bytes()[4..], 3f32.to_le_bytes());

    let error = |name: &str| open(name).unwrap_err().to_string();
    assert!(error("m-00002-of-00002.gguf").contains("it is part 2 of 2: give the first, 'm-00001-of-00002.gguf'"));
    write("renamed.gguf", &first);
    assert!(error("renamed.gguf").contains("part 1 of 2, whose names end in '-00001-of-00002.gguf'"));
    write("m-00002-of-00002.gguf", &part(1, 2).f32s("a", &[1], &[2.0]));
    assert!(error("m-00001-of-00002.gguf").contains("tensor 'a' is in an earlier part too"));
    write("m-00002-of-00002.gguf", &part(1, 3).f32s("b", &[1], &[2.0]));
    assert!(error("m-00001-of-00002.gguf").contains("do not say that it is part 2 of 2"));
    write("m-00002-of-00002.gguf", &part(1, 2));
    assert!(error("m-00001-of-00002.gguf").contains("'split.tensors.count' is 2, but the parts have 1 tensors"));
    write("m-00001-of-00002.gguf", &part(0, u16::MAX));
    assert!(error("m-00001-of-00002.gguf").contains("part 1 of 65535"));
}

#[test]
fn no_byte_of_a_file_makes_the_reader_fail() {
    let whole = everything().bytes();
    let header = whole.len() - 96;
    for at in 0..header {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            if let Ok(file) = bytes(damaged) {
                file.tensors().for_each(|(_, info)| drop(file.data(info).unwrap()));
                file.keys().for_each(|(key, _)| drop(file.value(key)));
            }
        }
    }
}

/// The metadata of a model of two layers of width 8, with four query heads of four elements and two key heads.
pub(crate) fn tiny(architecture: &str) -> Writer {
    with_layers(architecture, 2)
}

/// The same, of as many layers.
pub(crate) fn with_layers(architecture: &str, layers: u32) -> Writer {
    let key = |name: &str| format!("{architecture}.{name}");
    Writer::new()
        .text("general.architecture", architecture)
        .u32(&key("block_count"), layers)
        .u32(&key("context_length"), 64)
        .u32(&key("embedding_length"), 8)
        .u32(&key("feed_forward_length"), 32)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
        .u32(&key("attention.key_length"), 4)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .u32(&key("vocab_size"), 16)
}
