use std::{fs, path::Path};

use serde_json::{Value, json};

use super::*;
use crate::files::ModelFiles;

/// A tokenizer in the manner of Llama 2: `▁` for spaces, a prefix space that decoding strips, bytes as `<0xNN>`. Ids: 3 special tokens,
/// 256 bytes, then pieces.
fn byte_fallback() -> Value {
    let mut vocab = json!({"<unk>": 0, "<s>": 1, "</s>": 2});
    for byte in 0..256 {
        vocab[format!("<0x{byte:02X}>")] = json!(3 + byte);
    }
    for (i, piece) in ["▁", "H", "i", "y", "▁H", "▁Hi", "▁y"].into_iter().enumerate() {
        vocab[piece] = json!(259 + i);
    }
    json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "vocab": vocab, "merges": ["▁ H", "▁H i", "▁ y"]}
    })
}

fn special(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
}

/// A byte-level tokenizer without merges: ids are GPT-2's order of bytes, then `<|end|>`.
fn byte_level() -> Value {
    let printable = |b: u32| (33..=126).contains(&b) || (161..=172).contains(&b) || (174..=255).contains(&b);
    let mut vocab = json!({});
    let mut others = 256;
    for byte in 0..256 {
        let shown = if printable(byte) {
            byte
        } else {
            others += 1;
            others - 1
        };
        vocab[char::from_u32(shown).unwrap().to_string()] = json!(byte);
    }
    json!({
        "version": "1.0",
        "added_tokens": [special(256, "<|end|>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}
    })
}

fn open(folder: &Path, tokenizer: &Value, config: &Value) -> Tokenizer {
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    Tokenizer::open(&ModelFiles::open(folder).unwrap()).unwrap()
}

fn tokenizer(json: &Value) -> Tokenizer {
    open(tempfile::tempdir().unwrap().path(), json, &json!({}))
}

/// The pieces a stream gives out, the rest last.
fn stream(tokenizer: &Tokenizer, prompt: &[u32], ids: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream(prompt).unwrap();
    let mut out: Vec<_> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    out.push(stream.rest().unwrap());
    out
}

#[test]
fn a_stream_keeps_the_spaces_between_words_and_strips_the_first() {
    let t = tokenizer(&byte_fallback());
    let ids = t.encode("Hi Hi y").unwrap();
    assert_eq!(ids, [1, 264, 264, 265]);
    assert_eq!(stream(&t, &ids[..1], &ids[1..]), ["Hi", " Hi", " y", ""]);
    assert_eq!(stream(&t, &ids[..2], &ids[2..]), [" Hi", " y", ""]);
    assert_eq!(stream(&t, &[], &[264, 2, 1, 265, 99_999, 261]), ["Hi", "", "", " y", "", "i", ""]);
    assert_eq!(stream(&t, &[1], &[259, 259, 261]), ["", " ", "i", ""]);
}

#[test]
fn characters_are_given_out_when_their_last_byte_has_come() {
    let fallback = tokenizer(&byte_fallback());
    let bytes = |text: &str| text.bytes().map(|b| 3 + u32::from(b)).collect::<Vec<_>>();
    assert_eq!(stream(&fallback, &[264], &bytes("é🦀!")), ["", "é", "", "", "", "🦀", "!", ""]);
    let level = tokenizer(&byte_level());
    let ids = level.encode("é🦀 !").unwrap();
    assert_eq!(ids.len(), 8);
    assert_eq!(stream(&level, &[], &ids), ["", "é", "", "", "", "🦀", " ", "!", ""]);
    assert_eq!(stream(&level, &ids[..3], &ids[3..]).concat(), "🦀 !");
}

#[test]
fn a_token_stands_for_bytes() {
    for json in [byte_fallback(), byte_level()] {
        let t = tokenizer(&json);
        let text = "Hi y \n é🦀\u{7f}";
        let bytes: Vec<u8> = t.encode_rendered(text).unwrap().iter().flat_map(|&id| t.token_bytes(id)).collect();
        assert_eq!(std::str::from_utf8(&bytes).unwrap().trim_start(), text);
    }
    let level = tokenizer(&byte_level());
    assert!((0..256).all(|id| level.token_bytes(id).len() == 1) && level.token_bytes(256).is_empty() && level.token_bytes(999).is_empty());
}

#[test]
fn bytes_that_are_no_text_do_not_stall_or_fail() {
    let fallback = tokenizer(&byte_fallback());
    let invalid = |count| vec![3 + 0xFF; count];
    assert_eq!(stream(&fallback, &[264], &invalid(1)), ["", "\u{fffd}"]);
    assert!(stream(&fallback, &[264], &invalid(40))[..40].iter().any(|piece| !piece.is_empty()));
    let ids = [invalid(2), vec![264]].concat();
    assert_eq!(stream(&fallback, &[264], &ids), ["", "", "\u{fffd}\u{fffd} Hi", ""]);
    // A character already given out, then bytes that spoil its run.
    assert!(stream(&fallback, &[264], &[3 + 0xC3, 3 + 0xA9, 3 + 0xC3, 264]).concat().ends_with(" Hi"));
}

#[test]
fn every_text_survives_every_cut() {
    let text = "Hi y  Hié🦀\n\tHi y\u{200d}z";
    for json in [byte_fallback(), byte_level()] {
        let t = tokenizer(&json);
        let ids = t.encode_rendered(text).unwrap();
        assert_eq!(t.decode(&ids).unwrap(), text);
        assert_eq!(stream(&t, &[], &ids).concat(), text);
        for cut in 1..ids.len() {
            let head = t.decode(&ids[..cut]).unwrap();
            if !head.ends_with('\u{fffd}') {
                assert_eq!(head + &stream(&t, &ids[..cut], &ids[cut..]).concat(), text, "cut at {cut}");
            }
        }
    }
}

#[test]
fn the_configuration_decides_on_the_first_token() {
    let folder = tempfile::tempdir().unwrap();
    let bos = json!({"content": "<s>", "lstrip": false});
    let t = open(folder.path(), &byte_fallback(), &json!({"add_bos_token": false, "bos_token": bos, "eos_token": "</s>"}));
    assert_eq!((t.encode("Hi").unwrap(), t.bos(), t.eos()), (vec![264], Some("<s>"), Some("</s>")));
    assert_eq!(t.encode_rendered("<s>Hi").unwrap(), [1, 264]);
    let level = open(folder.path(), &byte_level(), &json!({"add_bos_token": true, "bos_token": "<|end|>"}));
    assert_eq!(level.encode("A").unwrap(), [256, 65]);
    assert_eq!(level.encode("<|end|>A").unwrap(), [256, 65]);
}

#[test]
fn prompts_are_neither_cut_nor_padded() {
    let mut json = byte_level();
    json["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "!"});
    assert_eq!(tokenizer(&json).encode("abcd").unwrap().len(), 4);
}

#[test]
fn the_splitting_expressions_of_llama_3_are_understood() {
    let expression = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let json = json!({
        "version": "1.0",
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false},
        "model": {"type": "WordLevel", "unk_token": "?",
            "vocab": {"?": 0, "He": 1, "'S": 2, " said": 3, "123": 4, "45": 5, " ": 6, " no": 7, "!!\n\n\n": 8}}
    });
    assert_eq!(tokenizer(&json).encode("He'S said12345  no!!\n\n\nwhat").unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 0]);
}

#[test]
fn the_template_is_found_where_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let template = |config: &Value| open(folder.path(), &byte_level(), config).chat_template().map(str::to_owned);
    assert_eq!(template(&json!({})), None);
    assert_eq!(template(&json!({"chat_template": "a"})).as_deref(), Some("a"));
    let named = json!({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]});
    assert_eq!(template(&named).as_deref(), Some("d"));
    fs::write(folder.path().join("chat_template.jinja"), "file").unwrap();
    assert_eq!(template(&named).as_deref(), Some("file"));
}

#[test]
fn damaged_tokenizers_are_rejected_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let rejected = |text: &[u8]| {
        fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        let error = Tokenizer::open(&ModelFiles::open(folder.path()).unwrap()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json") && !error.contains('\n'), "{error}");
    };
    let whole = byte_level().to_string();
    for length in (0..whole.len()).step_by(97) {
        rejected(&whole.as_bytes()[..length]);
    }
    rejected(b"[]");
    rejected(br#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]}}"#);
    rejected(b"\xff\xfe");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    let error = Tokenizer::open(&ModelFiles::open(folder.path()).unwrap()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json is missing"), "{error}");
}

/// Calls `visit` with `root` once for every value inside it that is replaced by `with`.
fn each_replacement(root: &Value, with: &Value, visit: &mut dyn FnMut(&Value)) {
    fn paths(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().take(12).for_each(|(k, v)| paths(v, format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| paths(v, format!("{at}/{i}"), out)),
            _ => {}
        }
        out.push(at);
    }
    let mut all = Vec::new();
    paths(root, String::new(), &mut all);
    for path in all {
        let mut changed = root.clone();
        *changed.pointer_mut(&path).unwrap() = with.clone();
        visit(&changed);
    }
}

#[test]
fn no_contradiction_inside_a_tokenizer_is_fatal() {
    let folder = tempfile::tempdir().unwrap();
    let mut usable = 0;
    for root in [byte_fallback(), byte_level()] {
        for with in [json!(null), json!(-1), json!("x"), json!([]), json!({}), json!(4_000_000_000u32)] {
            each_replacement(&root, &with, &mut |changed| {
                fs::write(folder.path().join("tokenizer.json"), changed.to_string()).unwrap();
                let Ok(t) = Tokenizer::open(&ModelFiles::open(folder.path()).unwrap()) else { return };
                usable += 1;
                if let Ok(ids) = t.encode("Hi \u{e9}") {
                    drop(t.decode(&ids));
                }
            });
        }
    }
    assert!(usable > 0);
}
