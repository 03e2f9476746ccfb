//! Data sets: lines of JSON, as tokens.

use std::{fs, path::Path};

use elinvar::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::text::{ChatOptions, ChatTemplate, Message, Tokenizer};

/// A text to learn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its tokens, two at least.
    pub(super) tokens: Vec<u32>,
    /// How many of them at first are given, and not to be predicted.
    pub(super) prompt: usize,
}

impl Sample {
    /// Of tokens, of which the first `prompt` are given.
    ///
    /// # Errors
    /// Nothing to predict.
    pub fn new(tokens: Vec<u32>, prompt: usize) -> Result<Self> {
        if tokens.len() < 2 || prompt >= tokens.len() {
            return Err(Error::invalid_data(format!("{} tokens, of which {prompt} are the prompt: there is nothing to predict", tokens.len())));
        }
        Ok(Self { tokens, prompt })
    }
}

/// Samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    samples: Vec<Sample>,
}

/// How lines become samples.
#[derive(Clone, Copy, Debug)]
pub struct DataOptions {
    /// Only what follows the prompt, or is in the last message, is to be predicted.
    pub mask_prompt: bool,
    /// Tokens of a sample at most.
    pub max_tokens: usize,
}

/// A line of a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Messages { messages: Vec<Turn> },
    Completion { prompt: String, completion: String },
    Text { text: String },
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: String,
}

impl Dataset {
    /// Of samples.
    ///
    /// # Errors
    /// None are given.
    pub fn new(samples: Vec<Sample>) -> Result<Self> {
        if samples.is_empty() {
            return Err(Error::invalid_data("the data set has no samples"));
        }
        Ok(Self { samples })
    }

    /// Reads a file with a line of JSON for each sample: `text`; `prompt` and `completion`; or `messages`, each with `role` and `content`. Where the model has a
    /// chat template, a prompt and its completion are the messages of a user and of the assistant. Empty lines are passed over.
    ///
    /// # Errors
    /// The file cannot be read, has no samples, or a line that is no sample or too long, which is named.
    pub fn open(path: &Path, tokenizer: &Tokenizer, options: DataOptions) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", path.display()), e))?;
        let template = tokenizer.chat_template();
        let template = template.map(|source| ChatTemplate::new(source, tokenizer.bos(), tokenizer.eos())).transpose()?;
        let reader = Reader { tokenizer, template, options };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let sample = |(index, line): (usize, &str)| reader.sample(line).map_err(|e| e.context(format!("{}, line {}", path.display(), index + 1)));
        Self::new(lines.map(sample).collect::<Result<_>>()?).map_err(|e| e.context(path.display()))
    }

    /// Its samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    template: Option<ChatTemplate>,
    options: DataOptions,
}

impl Reader<'_> {
    fn sample(&self, line: &str) -> Result<Sample> {
        let value: serde_json::Value = serde_json::from_str(line).map_err(|e| Error::invalid_data(format!("no JSON: {e}")))?;
        let line = serde_json::from_value(value);
        let line = line.map_err(|_| Error::invalid_data("neither 'text', nor 'prompt' with 'completion', nor 'messages' of 'role' and 'content'"))?;
        let (tokens, prompt) = match (line, &self.template) {
            (Line::Text { text }, _) => (self.ended(self.tokenizer.encode(&text)?), 0),
            (Line::Completion { prompt, completion }, None) => {
                let mut tokens = self.unended(self.tokenizer.encode(&prompt)?);
                let given = tokens.len();
                tokens.extend(self.tokenizer.encode_rendered(&completion)?);
                (self.ended(tokens), given)
            }
            (Line::Completion { prompt, completion }, Some(template)) => {
                self.conversation(template, &[Message::new("user", prompt), Message::new("assistant", completion)])?
            }
            (Line::Messages { .. }, None) => {
                return Err(Error::invalid_argument(
                    "'messages' need a chat template, and the model has none: write 'text' or 'prompt' with 'completion'",
                ));
            }
            (Line::Messages { messages }, Some(template)) => {
                let messages: Vec<_> = messages.into_iter().map(|turn| Message::new(turn.role, turn.content)).collect();
                self.conversation(template, &messages)?
            }
        };
        let (count, most) = (tokens.len(), self.options.max_tokens);
        if count > most {
            return Err(Error::invalid_data(format!("{count} tokens do not fit a context of {most}: shorten the text, or make several of it")));
        }
        Sample::new(tokens, if self.options.mask_prompt { prompt } else { 0 })
    }

    /// A conversation, and how many of its tokens come before the last message.
    fn conversation(&self, template: &ChatTemplate, messages: &[Message]) -> Result<(Vec<u32>, usize)> {
        let render = |messages: &[Message], add_generation_prompt: bool| -> Result<Vec<u32>> {
            self.tokenizer.encode_rendered(&template.render(messages, &ChatOptions { add_generation_prompt, ..ChatOptions::default() })?)
        };
        let tokens = render(messages, false)?;
        if !self.options.mask_prompt {
            return Ok((tokens, 0));
        }
        let before = render(&messages[..messages.len().saturating_sub(1)], true)?;
        let common = tokens.iter().zip(&before).take_while(|(a, b)| a == b).count();
        Ok((tokens, common))
    }

    /// With the token that ends a text.
    fn ended(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        let end = self.end();
        if let Some(end) = end.filter(|end| tokens.len() < 2 || tokens.last() != Some(end)) {
            tokens.push(end);
        }
        tokens
    }

    /// Without it.
    fn unended(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        if tokens.len() > 1 && tokens.last().copied() == self.end() {
            tokens.pop();
        }
        tokens
    }

    fn end(&self) -> Option<u32> {
        self.tokenizer.eos().and_then(|eos| self.tokenizer.id(eos))
    }
}
