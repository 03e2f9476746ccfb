//! Tokenizers and chat templates.

use std::path::PathBuf;

use elinvar::{Error, Result};
use elinvar_llm::{ChatOptions, ChatTemplate, Message, ModelFiles, Tokenizer};
use pyo3::{PyResult, pyclass, pymethods};

use crate::errors::raise;

/// A tokenizer.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct NativeTokenizer(pub(super) Tokenizer);

#[pymethods]
impl NativeTokenizer {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        ModelFiles::open(path).and_then(|files| Tokenizer::open(&files)).map(Self).map_err(raise)
    }

    fn encode(&self, text: &str, special: bool) -> PyResult<Vec<u32>> {
        if special { self.0.encode(text) } else { self.0.encode_rendered(text) }.map_err(raise)
    }

    fn decode(&self, tokens: Vec<u32>) -> PyResult<String> {
        self.0.decode(&tokens).map_err(raise)
    }

    fn apply_chat_template(
        &self,
        messages: Vec<(String, String)>,
        add_generation_prompt: bool,
        variables: Vec<(String, String)>,
    ) -> PyResult<String> {
        let options = ChatOptions { add_generation_prompt, variables, ..ChatOptions::default() };
        render(&self.0, messages, &options).map_err(raise)
    }

    fn token(&self, id: u32) -> Option<String> {
        self.0.token(id)
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.0.id(token)
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    #[getter]
    fn bos(&self) -> Option<&str> {
        self.0.bos()
    }

    #[getter]
    fn eos(&self) -> Option<&str> {
        self.0.eos()
    }

    #[getter]
    fn chat_template(&self) -> Option<&str> {
        self.0.chat_template()
    }
}

/// The prompt for a conversation.
fn render(tokenizer: &Tokenizer, messages: Vec<(String, String)>, options: &ChatOptions) -> Result<String> {
    let source = tokenizer.chat_template();
    let source = source.ok_or_else(|| Error::unsupported("the model has no chat template: let it continue a text instead"))?;
    let messages: Vec<_> = messages.into_iter().map(|(role, content)| Message::new(role, content)).collect();
    ChatTemplate::new(source, tokenizer.bos(), tokenizer.eos())?.render(&messages, options)
}
