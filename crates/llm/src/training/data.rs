//! Data sets: lines of JSON, as tokens.

use std::{fs, path::Path};

use elinvar::{Error, ErrorKind, Result};
use serde::{Deserialize, de::DeserializeOwned};

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

/// Samples, or pairs of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    samples: Vec<Sample>,
    /// Samples that belong together.
    width: usize,
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

/// A line of a file of pairs.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Texts { prompt: String, chosen: String, rejected: String },
    Messages { prompt: Vec<Turn>, chosen: Vec<Turn>, rejected: Vec<Turn> },
}

#[derive(Clone, Deserialize)]
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
        Ok(Self { samples, width: 1 })
    }

    /// Of pairs: a text that is to be preferred, and one that is not.
    ///
    /// # Errors
    /// None are given.
    pub fn of_pairs(pairs: Vec<[Sample; 2]>) -> Result<Self> {
        Ok(Self { width: 2, ..Self::new(pairs.into_iter().flatten().collect())? })
    }

    /// Reads a file with a line of JSON for each sample: `text`; `prompt` and `completion`; or `messages`, each with `role` and `content`. Where the model has a
    /// chat template, a prompt and its completion are the messages of a user and of the assistant. Empty lines are passed over.
    ///
    /// # Errors
    /// The file cannot be read, has no samples, or a line that is no sample or too long, which is named.
    pub fn open(path: &Path, tokenizer: &Tokenizer, options: DataOptions) -> Result<Self> {
        Self::new(read(path, tokenizer, options, |reader, line| reader.sample(line))?).map_err(|e| e.context(path.display()))
    }

    /// Reads a file with a line of JSON for each pair: `prompt`, `chosen` and `rejected`, texts or lists of messages. What is preferred is learned of what
    /// follows the prompt alone, whatever `options` say.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_pairs(path: &Path, tokenizer: &Tokenizer, options: DataOptions) -> Result<Self> {
        let options = DataOptions { mask_prompt: true, ..options };
        Self::of_pairs(read(path, tokenizer, options, |reader, line| reader.pair(line))?).map_err(|e| e.context(path.display()))
    }

    /// Its samples, those of a pair one after the other.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// How many samples belong together: 1, or 2 for pairs.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Samples, or pairs.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.samples.len() / self.width
    }

    /// A sample, or the two of a pair.
    pub(super) fn group(&self, index: usize) -> &[Sample] {
        &self.samples[index * self.width..][..self.width]
    }
}

/// What the lines of a file give.
fn read<T>(path: &Path, tokenizer: &Tokenizer, options: DataOptions, line: impl Fn(&Reader<'_>, &str) -> Result<T>) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", path.display()), e))?;
    let template = tokenizer.chat_template();
    let template = template.map(|source| ChatTemplate::new(source, tokenizer.bos(), tokenizer.eos())).transpose()?;
    let reader = Reader { tokenizer, template, options };
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    lines.map(|(index, text)| line(&reader, text).map_err(|e| e.context(format!("{}, line {}", path.display(), index + 1)))).collect()
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    template: Option<ChatTemplate>,
    options: DataOptions,
}

fn parsed<T: DeserializeOwned>(line: &str, otherwise: &str) -> Result<T> {
    let value: serde_json::Value = serde_json::from_str(line).map_err(|e| Error::invalid_data(format!("no JSON: {e}")))?;
    serde_json::from_value(value).map_err(|_| Error::invalid_data(otherwise))
}

impl Reader<'_> {
    fn sample(&self, line: &str) -> Result<Sample> {
        let expected = "neither 'text', nor 'prompt' with 'completion', nor 'messages' of 'role' and 'content'";
        match parsed(line, expected)? {
            Line::Text { text } => self.limited(self.ended(self.tokenizer.encode(&text)?), 0),
            Line::Completion { prompt, completion } => self.completed(prompt, completion),
            Line::Messages { messages } => self.messages(messages),
        }
    }

    fn pair(&self, line: &str) -> Result<[Sample; 2]> {
        let pair: Pair = parsed(line, "no 'prompt', 'chosen' and 'rejected', each a text or each a list of messages of 'role' and 'content'")?;
        let [chosen, rejected] = match pair {
            Pair::Texts { prompt, chosen, rejected } => [self.completed(prompt.clone(), chosen)?, self.completed(prompt, rejected)?],
            Pair::Messages { prompt, chosen, rejected } => {
                let answered = |answer: Vec<Turn>| self.messages(prompt.iter().cloned().chain(answer).collect());
                [answered(chosen)?, answered(rejected)?]
            }
        };
        if chosen == rejected {
            return Err(Error::invalid_data("'chosen' and 'rejected' are the same: there is nothing to prefer"));
        }
        Ok([chosen, rejected])
    }

    fn completed(&self, prompt: String, completion: String) -> Result<Sample> {
        let Some(template) = &self.template else {
            let mut tokens = self.unended(self.tokenizer.encode(&prompt)?);
            let given = tokens.len();
            tokens.extend(self.tokenizer.encode_rendered(&completion)?);
            return self.limited(self.ended(tokens), given);
        };
        let (tokens, given) = self.conversation(template, &[Message::new("user", prompt), Message::new("assistant", completion)])?;
        self.limited(tokens, given)
    }

    fn messages(&self, messages: Vec<Turn>) -> Result<Sample> {
        let Some(template) = &self.template else {
            let instead = "write 'text' or 'prompt' with 'completion'";
            return Err(Error::invalid_argument(format!("'messages' need a chat template, and the model has none: {instead}")));
        };
        let messages: Vec<_> = messages.into_iter().map(|turn| Message::new(turn.role, turn.content)).collect();
        let (tokens, given) = self.conversation(template, &messages)?;
        self.limited(tokens, given)
    }

    /// Of tokens, of which the first `prompt` are the prompt.
    fn limited(&self, tokens: Vec<u32>, prompt: usize) -> Result<Sample> {
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
