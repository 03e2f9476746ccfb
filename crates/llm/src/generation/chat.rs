use elinvar::{Error, Result};

use super::{Generated, GenerationOptions, Generator, Listener};
use crate::text::{ChatOptions, ChatTemplate, Message};

/// A conversation. Each turn renders all of it, and computes only what the cache does not hold.
pub struct Chat {
    generator: Generator,
    template: ChatTemplate,
    options: ChatOptions,
    messages: Vec<Message>,
}

impl Chat {
    /// With the template of the model, or `template` in its place.
    ///
    /// # Errors
    /// Neither is there, or it is damaged.
    pub fn new(generator: Generator, template: Option<&str>, options: ChatOptions) -> Result<Self> {
        let tokenizer = generator.tokenizer();
        let source = template.or(tokenizer.chat_template());
        let source = source.ok_or_else(|| {
            Error::unsupported(
                "the model has no chat template (tokenizer_config.json, chat_template.jinja, or the metadata of a GGUF file): let it continue a text instead, or give a template",
            )
        })?;
        let template = ChatTemplate::new(source, tokenizer.bos(), tokenizer.eos())?;
        Ok(Self { generator, template, options, messages: Vec::new() })
    }

    /// The turns so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds a turn without an answer, such as the system's.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Forgets all turns; what the cache holds may still be of use.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Answers the user. A turn that fails leaves the conversation as it was; an answer that was cancelled is kept as far as it came.
    ///
    /// # Errors
    /// The template rejects the turns, and those of [`Generator::generate`].
    pub fn answer(&mut self, user: &str, options: &GenerationOptions, listener: &mut Listener<'_>) -> Result<Generated> {
        self.messages.push(Message::new("user", user));
        let result = self.template.render(&self.messages, &self.options).and_then(|prompt| {
            let prompt = self.generator.tokenizer().encode_rendered(&prompt)?;
            self.generator.generate(&prompt, options, listener)
        });
        match &result {
            Ok(answer) => self.messages.push(Message::new("assistant", &*answer.text)),
            Err(_) => drop(self.messages.pop()),
        }
        result
    }
}
