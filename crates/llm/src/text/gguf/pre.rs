//! How byte-level tokenizers cut a text before they merge, by the name in `tokenizer.ggml.pre`.

/// A way to cut texts.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Applied one after the other to the pieces of the one before.
    pub(super) patterns: &'static [&'static str],
    /// A piece that is a token is taken as it is.
    pub(super) ignore_merges: bool,
    /// Texts begin with the token for that unless the file says otherwise.
    pub(super) add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Letters of scripts with upper and lower case.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\u{b5}À-ÖØ-öø-ƺƼ-ƿǄ-\u{293}\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+";
const DEEPSEEK_CJK: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";

/// Those that a vocabulary with known tokens has proven, with the names that share their patterns.
const ALL: [PreTokenizer; 8] = [
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
    },
    plain(&["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "stablelm2", "hunyuan"], &[QWEN2]),
    plain(&["qwen35"], &[QWEN35]),
    plain(
        &["gpt-2", "mpt", "olmo", "phi-2", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0", "mellum", "modern-bert"],
        &[GPT2],
    ),
    plain(&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"], &[r"\p{N}", GPT2]),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    plain(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"]),
    plain(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
    ),
];

const fn plain(names: &'static [&'static str], patterns: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, patterns, ignore_merges: false, add_bos: false }
}

/// The one of this name.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    ALL.iter().find(|pre| pre.names.contains(&name))
}

/// The name of the one that applies these patterns, as `tokenizer.json` writes them.
pub(super) fn find_patterns(patterns: &[String], ignore_merges: bool) -> Option<&'static str> {
    // What no pattern takes is a piece by itself, so the last alternative may be there or not.
    fn plain(pattern: &str) -> String {
        let spelt = pattern.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])");
        spelt.strip_suffix(r"|\s+").unwrap_or(&spelt).to_owned()
    }
    let same = |pre: &&PreTokenizer| {
        pre.ignore_merges == ignore_merges
            && pre.patterns.len() == patterns.len()
            && pre.patterns.iter().zip(patterns).all(|(a, b)| plain(a) == plain(b))
    };
    ALL.iter().find(same).and_then(|pre| pre.names.first()).copied()
}

/// The pattern of byte-level tokenizers that name none.
pub(super) const DEFAULT: &str = GPT2;

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|pre| pre.names).copied()
}
