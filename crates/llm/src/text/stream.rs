use elinvar::Result;

use crate::text::tokenizer::Tokenizer;

/// Decodes tokens as they come, giving out whole characters only.
///
/// A token alone has no text of its own: its leading space depends on what came before, and its bytes may be a part of a character.
/// So a window of tokens is decoded with and without the new ones, and the difference is the new text.
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Tokens whose text is given out, then tokens held back.
    window: Vec<u32>,
    given: usize,
}

/// A character takes at most four bytes, so at most four tokens: what is undecodable for longer stays so.
const MAX_HELD: usize = 4;
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

impl TextStream {
    /// Begins after the tokens of `prompt`, whose text is not given out.
    pub(crate) fn after(tokenizer: &Tokenizer, prompt: &[u32]) -> Result<Self> {
        const MOST: usize = 8;
        let mut window = Vec::new();
        for &id in prompt.iter().rev().filter(|&&id| !tokenizer.is_silent(id)).take(MOST) {
            window.insert(0, id);
            let text = tokenizer.decode(&window)?;
            if !text.is_empty() && !text.starts_with(REPLACEMENT) {
                break;
            }
        }
        Ok(Self { tokenizer: tokenizer.clone(), given: window.len(), window })
    }

    /// The text that `id` completes; empty if a character is still unfinished.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.tokenizer.is_silent(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        let text = self.fresh()?;
        if text.is_empty() || (text.ends_with(REPLACEMENT) && self.window.len() - self.given <= MAX_HELD) {
            return Ok(String::new());
        }
        self.window.drain(..self.given);
        self.given = self.window.len();
        Ok(text)
    }

    /// What is held back, with U+FFFD for unfinished characters.
    ///
    /// # Errors
    /// The tokenizer's decoder fails.
    pub fn rest(&mut self) -> Result<String> {
        let text = self.fresh()?;
        self.given = self.window.len();
        Ok(text)
    }

    fn fresh(&self) -> Result<String> {
        let before = self.tokenizer.decode(self.window.get(..self.given).unwrap_or_default())?;
        let after = self.tokenizer.decode(&self.window)?;
        // Equal but for invalid bytes, whose replacement may change when more follow.
        let common = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
        Ok(after.get(common..).unwrap_or_default().to_owned())
    }
}

impl Tokenizer {
    /// Decodes what follows `prompt`, token by token.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn stream(&self, prompt: &[u32]) -> Result<TextStream> {
        TextStream::after(self, prompt)
    }
}
