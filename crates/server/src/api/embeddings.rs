//! `/v1/embeddings`.

use serde_json::{Value, json};

use super::{ApiError, fields::Fields};
use crate::{embedder::Embedder, models::Models};

const MAX_TEXTS: usize = 2048;

pub(super) fn answer(fields: &Fields<'_>, models: &Models) -> Result<Value, ApiError> {
    let model = models.find_embedder(fields.string("model")?)?;
    let texts = texts(fields)?;
    let is_packed = match fields.string("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(fields.reject("encoding_format", "float or base64 expected")),
    };
    check_dimensions(fields, model)?;
    let vectors = model.embed(&texts).map_err(|error| ApiError::from(error).of_field("input"))?;
    let vector = |index: usize| {
        let row = vectors.row(index);
        if is_packed { base64(&row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()).into() } else { json!(row) }
    };
    let data: Vec<_> = (0..vectors.len()).map(|index| json!({"object": "embedding", "index": index, "embedding": vector(index)})).collect();
    let tokens: usize = vectors.tokens().iter().sum();
    Ok(json!({"object": "list", "model": model.name(), "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}))
}

fn texts<'a>(fields: &Fields<'a>) -> Result<Vec<&'a str>, ApiError> {
    let expected = || fields.reject("input", format!("a string, or an array of 1 to {MAX_TEXTS} strings, expected"));
    let texts = match fields.required("input")? {
        Value::String(text) => vec![text.as_str()],
        Value::Array(texts) if (1..=MAX_TEXTS).contains(&texts.len()) => {
            texts.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(expected)?
        }
        _ => return Err(expected()),
    };
    match texts.iter().position(|text| text.is_empty()) {
        Some(index) => Err(ApiError::field("input", format!("input: text {index} is empty"))),
        None => Ok(texts),
    }
}

fn check_dimensions(fields: &Fields<'_>, model: &Embedder) -> Result<(), ApiError> {
    match fields.count("dimensions")? {
        Some(count) if count != model.dimensions() => {
            Err(fields.reject("dimensions", format!("the model's vectors have {}, and are not cut", model.dimensions())))
        }
        Some(_) | None => Ok(()),
    }
}

/// Bytes in the alphabet of RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (index, &byte)| bits | u32::from(byte) << (16 - 8 * index));
        let digit = |index: usize| if index <= chunk.len() { char::from(ALPHABET[(bits >> (18 - 6 * index)) as usize & 63]) } else { '=' };
        text.extend((0..4).map(digit));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_has_the_examples_of_its_rfc() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(super::base64(bytes.as_bytes()), text);
        }
        assert_eq!(super::base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }
}
