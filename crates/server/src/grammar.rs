//! What answers are limited to: JSON, schemas, regular expressions and grammars.

use std::sync::{Arc, OnceLock};

use elinvar::{Error, Result};
use elinvar_llm::{TokenMask, Tokenizer};
use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What an answer must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Grammar {
    /// A value that a JSON schema allows.
    Schema(Value),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// A text of a grammar in llguidance's variant of Lark.
    Lark(String),
}

/// Makes masks of grammars for a model's vocabulary, which it prepares at first use.
#[derive(Default)]
pub struct Grammars(OnceLock<Result<ParserFactory>>);

impl Grammars {
    /// The grammar at the beginning of an answer, of a model with so many tokens and these end tokens, which are the same each time.
    ///
    /// # Errors
    /// A grammar that is wrong or not supported, or a model without an end token.
    pub fn mask(&self, grammar: &Grammar, tokenizer: &Tokenizer, vocabulary: usize, ends: &[u32]) -> Result<GrammarMask> {
        let factory = self.0.get_or_init(|| factory(tokenizer, vocabulary, ends)).as_ref().map_err(Error::clone)?;
        let top = match grammar {
            Grammar::Schema(schema) => TopLevelGrammar::from_json_schema(compact(schema)),
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
        };
        let parser = factory.create_parser(top).map_err(|error| rejected(&error))?;
        let mut matcher = Matcher::new(Ok(parser));
        // What contradicts itself is found here, and not when the answer has begun.
        matcher.compute_mask_or_eos().map_err(|error| rejected(&error))?;
        Ok(GrammarMask { matcher, ends: ends.to_vec() })
    }
}

fn rejected(error: &dyn std::fmt::Display) -> Error {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    Error::invalid_argument(line)
}

/// JSON without space between its parts, unless the schema says otherwise: a model that may write space may write it for ever.
fn compact(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(map) = &mut schema {
        map.entry("x-guidance").or_insert_with(|| json!({"whitespace_flexible": false}));
    }
    schema
}

/// Sets of tokens, given as regular expressions, that are allowed as a whole where a grammar allows all of them: white space, and characters of a JSON string,
/// at most so many. Where a string may go on for few characters, the tokens that are longer are tried one by one: most tokens have four to eight characters,
/// so there the sets are close.
fn slices() -> Vec<String> {
    const CHARACTER: &str = r#"[^"\\\x00-\x1F\x7F]"#;
    let lengths = [3, 4, 5, 7, 10, 30].map(|most| format!("{CHARACTER}{{1,{most}}}"));
    [r"[\x20\x0A\x0D\x09]+".to_owned()].into_iter().chain(lengths).chain([format!("{CHARACTER}+")]).collect()
}

fn factory(tokenizer: &Tokenizer, vocabulary: usize, ends: &[u32]) -> Result<ParserFactory> {
    let Some(&end) = ends.first() else {
        return Err(Error::unsupported("the model has no end token, with which an answer of a grammar could end"));
    };
    let words: Vec<_> = (0..vocabulary as u32).map(|id| tokenizer.token_bytes(id)).collect();
    let trie = TokTrie::from(&TokRxInfo::new(vocabulary as u32, end), &words);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices()).map_err(|error| rejected(&error))?;
    factory.quiet();
    Ok(factory)
}

/// A grammar's state within an answer.
pub struct GrammarMask {
    matcher: Matcher,
    ends: Vec<u32>,
}

impl TokenMask for GrammarMask {
    fn allow(&mut self, words: &mut [u32]) -> Result<()> {
        let mask: SimpleVob = self.matcher.compute_mask_or_eos().map_err(|error| rejected(&error))?;
        for (word, found) in words.iter_mut().zip(mask.as_slice()) {
            *word |= found;
        }
        // The grammar knows one of the model's end tokens.
        if let [first, others @ ..] = &self.ends[..]
            && mask.is_allowed(*first)
        {
            for end in others {
                if let Some(word) = words.get_mut(*end as usize / 32) {
                    *word |= 1 << (end % 32);
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.matcher.consume_token(token).map_err(|error| rejected(&error))
    }
}
