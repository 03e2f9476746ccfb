//! The names of an encoder's tensors.

/// Tensors of no layer: the file's name and ours.
const WHOLE: [(&str, &str); 4] = [
    ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// Parts of a layer: the file's name and ours.
const PARTS: [(&str, &str); 8] = [
    ("attn_q", "attention.self.query"),
    ("attn_k", "attention.self.key"),
    ("attn_v", "attention.self.value"),
    ("attn_output", "attention.output.dense"),
    ("attn_output_norm", "attention.output.LayerNorm"),
    ("ffn_up", "intermediate.dense"),
    ("ffn_down", "output.dense"),
    ("layer_output_norm", "output.LayerNorm"),
];

/// Our name of a tensor; its own if it has none here.
pub(super) fn translate(name: &str) -> String {
    let find = |table: &[(&str, &'static str)], part: &str| table.iter().find(|(theirs, _)| *theirs == part).map(|(_, ours)| *ours);
    let ours = || {
        let (path, kind) = name.rsplit_once('.')?;
        if let Some(whole) = find(&WHOLE, path) {
            return Some(format!("{whole}.{kind}"));
        }
        let (index, part) = path.strip_prefix("blk.")?.split_once('.')?;
        find(&PARTS, part).map(|part| format!("encoder.layer.{index}.{part}.{kind}"))
    };
    ours().unwrap_or_else(|| name.to_owned())
}

/// The file's name of a tensor of ours.
#[cfg(test)]
pub(crate) fn translate_back(name: &str) -> String {
    let (path, kind) = name.rsplit_once('.').unwrap();
    if let Some((theirs, _)) = WHOLE.iter().find(|(_, ours)| *ours == path) {
        return format!("{theirs}.{kind}");
    }
    let (index, part) = path.strip_prefix("encoder.layer.").unwrap().split_once('.').unwrap();
    let (theirs, _) = PARTS.iter().find(|(_, ours)| *ours == part).unwrap();
    format!("blk.{index}.{theirs}.{kind}")
}
