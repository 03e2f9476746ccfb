use std::sync::Arc;

use crate::{
    ModelFiles, Tokenizer,
    gguf::tests::{parse, writer::Writer},
};

fn open(writer: &Writer) -> elinvar::Result<Tokenizer> {
    Tokenizer::open(&ModelFiles::Gguf(Arc::new(parse(writer)?)))
}

#[track_caller]
fn rejected(writer: &Writer, expected: &str) {
    let message = open(writer).map(|_| ()).unwrap_err().to_string();
    assert!(message.starts_with("m.gguf: ") && message.contains(expected) && !message.contains('\n'), "{message}");
}

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

fn vocabulary(model: &str, tokens: &[(String, f32, i32)]) -> Writer {
    let texts: Vec<_> = tokens.iter().map(|(text, ..)| text.as_str()).collect();
    Writer::new()
        .text("tokenizer.ggml.model", model)
        .texts("tokenizer.ggml.tokens", &texts)
        .array("tokenizer.ggml.scores", 6, &tokens.iter().map(|(_, score, _)| score.to_le_bytes().to_vec()).collect::<Vec<_>>())
        .array("tokenizer.ggml.token_type", 5, &tokens.iter().map(|(.., kind)| kind.to_le_bytes().to_vec()).collect::<Vec<_>>())
}

/// Ids 0 to 2 are special, 3 to 258 bytes; then pieces, of which the best score joins first.
fn sentence_piece() -> Writer {
    let mut tokens = vec![("<unk>".to_owned(), 0.0, UNKNOWN), ("<s>".to_owned(), 0.0, CONTROL), ("</s>".to_owned(), 0.0, CONTROL)];
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, BYTE)));
    let pieces = [("▁", -9.0), ("a", -9.0), ("b", -9.0), ("c", -9.0), ("ab", -2.0), ("bc", -1.0), ("▁a", -3.0), ("abc", -4.0)];
    tokens.extend(pieces.map(|(piece, score)| (piece.to_owned(), score, NORMAL)));
    tokens.push(("<turn>".to_owned(), -5.0, USER));
    vocabulary("llama", &tokens).u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2)
}

#[test]
fn sentence_piece_joins_by_score() {
    let tokenizer = open(&sentence_piece().text("tokenizer.chat_template", "{{ bos_token }}")).unwrap();
    let ids = |text: &str| tokenizer.encode_rendered(text).unwrap();
    // ▁ a b c: 'bc' before 'ab', then '▁a'.
    assert_eq!(ids("abc"), [265, 264]);
    assert_eq!(ids("b ab"), [259, 261, 259, 263]);
    // What has no piece is bytes; tokens that users defined and special ones are found in the text.
    assert_eq!(ids("é"), [259, 3 + 0xc3, 3 + 0xa9]);
    assert_eq!(ids("<turn>a</s>"), [267, 265, 2]);
    assert_eq!(tokenizer.encode("a").unwrap(), [1, 265]);
    assert_eq!(tokenizer.decode(&[1, 265, 264, 3 + 0xc3, 3 + 0xa9, 2]).unwrap(), "abcé");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.chat_template()), (Some("<s>"), Some("</s>"), Some("{{ bos_token }}")));
}

#[test]
fn the_file_decides_on_the_space_before_and_the_tokens_around() {
    let flag = |name: &str, value| sentence_piece().bool(&format!("tokenizer.ggml.{name}"), value);
    assert_eq!(open(&flag("add_space_prefix", false)).unwrap().encode("abc").unwrap(), [1, 266]);
    assert_eq!(open(&flag("add_bos_token", false)).unwrap().encode("a").unwrap(), [265]);
    assert_eq!(open(&flag("add_eos_token", true)).unwrap().encode("a").unwrap(), [1, 265, 2]);
}

fn byte_level(pre: &str) -> Writer {
    let tokens = ["a", "b", "Ġ", "1", "2", "Ġa", "Ġab", "12", "ab12", "<|im_end|>", "<|x|>"].map(|text| {
        let kind = if text == "<|x|>" { CONTROL } else { NORMAL };
        (text.to_owned(), 0.0, kind)
    });
    let writer = vocabulary("gpt2", &tokens).texts("tokenizer.ggml.merges", &["Ġ a", "Ġa b", "1 2"]);
    writer.text("tokenizer.ggml.pre", pre).u32("tokenizer.ggml.bos_token_id", 10)
}

#[test]
fn byte_level_texts_are_cut_as_the_file_names_it() {
    let ids = |pre: &str, text: &str| open(&byte_level(pre)).unwrap().encode(text).unwrap();
    assert_eq!(ids("gpt-2", "a ab12"), [0, 6, 7]);
    assert_eq!(ids("qwen2", "a ab12"), [0, 6, 3, 4]);
    assert_eq!(ids("smollm", "a ab12"), [0, 6, 3, 4]);
    // Begins with a token for that unless the file says otherwise.
    assert_eq!(ids("llama-bpe", "a ab12"), [10, 0, 6, 7]);
    assert_eq!(open(&byte_level("llama-bpe").bool("tokenizer.ggml.add_bos_token", false)).unwrap().encode("a").unwrap(), [0]);
    // An end that is not marked has no text either.
    let tokenizer = open(&byte_level("qwen2")).unwrap();
    assert_eq!((tokenizer.encode("a<|im_end|>").unwrap(), tokenizer.decode(&[0, 9, 6, 10]).unwrap()), (vec![0, 9], "a ab".to_owned()));
}

fn word_piece() -> Writer {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁e", "cole", "s", "▁,", "▁中", "▁文"];
    let tokens: Vec<_> = tokens.iter().map(|text| ((*text).to_owned(), 0.0, if text.starts_with('[') { CONTROL } else { NORMAL })).collect();
    let id = |name: &str| format!("tokenizer.ggml.{name}_token_id");
    vocabulary("bert", &tokens).u32(&id("unknown"), 1).u32(&id("cls"), 2).u32(&id("seperator"), 3)
}

#[test]
fn word_piece_takes_the_longest_pieces_of_each_word() {
    let tokenizer = open(&word_piece()).unwrap();
    let ids = |text: &str| tokenizer.encode_rendered(text).unwrap();
    assert_eq!(ids("The ÉCOLES,\tthe\u{0} 中文"), [4, 5, 6, 7, 8, 4, 9, 10]);
    // A word of which a rest has no piece is unknown as a whole, and so is one that is too long.
    assert_eq!((ids("eco the"), ids(&format!("e{}", "s".repeat(99))).len(), ids(&format!("e{}", "s".repeat(100)))), (vec![1, 4], 100, vec![1]));
    assert_eq!((tokenizer.encode("the").unwrap(), ids("[SEP]the")), (vec![2, 4, 3], vec![3, 4]));
    assert_eq!(tokenizer.decode(&[2, 4, 5, 6, 7, 3]).unwrap(), "the ecoles");
    let cased = open(&word_piece().bool("tokenizer.ggml.normalizer.lowercase", false).bool("tokenizer.ggml.add_sep_token", false)).unwrap();
    assert_eq!(cased.encode("The the").unwrap(), [2, 1, 4]);
}

#[test]
fn every_way_to_cut_compiles() {
    for pre in super::pre::names() {
        assert_eq!(open(&byte_level(pre)).unwrap().encode_rendered("a").unwrap(), [0], "{pre}");
    }
}

#[test]
fn tokenizers_that_are_not_understood_are_rejected_by_name() {
    rejected(&byte_level("new-model"), "key 'tokenizer.ggml.pre' is 'new-model', which is not supported");
    let one = [("a".to_owned(), 0.0, NORMAL)];
    rejected(&vocabulary("gpt2", &one), "key 'tokenizer.ggml.pre' is missing");
    rejected(&vocabulary("gpt2", &one).text("tokenizer.ggml.pre", "gpt-2"), "key 'tokenizer.ggml.merges' is missing");
    rejected(&vocabulary("t5", &one), "tokenizer model 't5' is not supported");
    rejected(&vocabulary("bert", &one), "key 'tokenizer.ggml.unknown_token_id' is missing");
    rejected(&vocabulary("bert", &one).u32("tokenizer.ggml.unknown_token_id", 0), "key 'tokenizer.ggml.cls_token_id' is missing");
    rejected(&Writer::new().text("tokenizer.ggml.model", "gpt2"), "'tokenizer.ggml.tokens' is missing");
    let gpt2 = |merges: &[&str]| vocabulary("gpt2", &one).text("tokenizer.ggml.pre", "gpt-2").texts("tokenizer.ggml.merges", merges);
    rejected(&gpt2(&["ab"]), "'ab' is no pair of tokens");
    rejected(&gpt2(&["a z"]), "the tokenizer's parts contradict each other");
    rejected(&vocabulary("llama", &[("a".to_owned(), 0.0, 9)]), "key 'tokenizer.ggml.token_type' is an array of 1 i32: an array of token types");
    rejected(&vocabulary("llama", &[("a".repeat(1025), 0.0, NORMAL)]), "token 0 has 1025 bytes");
    let chain: Vec<_> = (1..100).map(|length| ("a".repeat(length), 0.0, NORMAL)).collect();
    rejected(&vocabulary("llama", &chain), "can be split in more ways");
    let few = Writer::new().text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", &["a", "b"]);
    rejected(&few.clone(), "'tokenizer.ggml.scores' must have a score for each of 2 tokens");
    rejected(&few.array("tokenizer.ggml.token_type", 5, &[1i32.to_le_bytes().to_vec()]), "has 1 values for 2 tokens");
}
