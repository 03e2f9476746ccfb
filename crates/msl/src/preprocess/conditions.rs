//! `#if` and its companions.

use elinvar_core::Result;

use super::{definition, expression, file::Condition, reader::Reader, token::Token};

impl Reader<'_> {
    /// Follows the directive `word`, if it is one of conditions.
    pub(super) fn condition(&mut self, word: &str, at: &Token) -> Result<bool> {
        match word {
            "if" | "ifdef" | "ifndef" => {
                let line = self.files.last().map_or(0, |file| file.lexer.line());
                let taken = self.holds(word, at)?;
                if let Some(file) = self.files.last_mut() {
                    file.conditions.push(Condition { line, taken, last: false });
                }
                if !taken {
                    self.skip()?;
                }
            }
            "elif" | "elifdef" | "elifndef" | "else" | "endif" => {
                if self.open().is_none() {
                    return Err(self.error(at, format!("`#{word}` without an `#if`")));
                }
                if !self.turn(word, at)? {
                    self.skip()?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn open(&mut self) -> Option<&mut Condition> {
        self.files.last_mut().and_then(|file| file.conditions.last_mut())
    }

    /// Moves the innermost condition to its next group, or ends it; whether what follows is read.
    fn turn(&mut self, word: &str, at: &Token) -> Result<bool> {
        if word == "endif" {
            if let Some(file) = self.files.last_mut() {
                file.conditions.pop();
            }
            self.line();
            return Ok(true);
        }
        let (taken, last) = self.open().map_or((true, false), |open| (open.taken, open.last));
        if last {
            return Err(self.error(at, format!("`#{word}` after `#else`")));
        }
        let is_else = word == "else";
        let holds = if taken || is_else {
            self.line();
            !taken
        } else {
            self.holds(&word[2..], at)?
        };
        if let Some(open) = self.open() {
            open.taken |= holds;
            open.last = is_else;
        }
        Ok(holds)
    }

    /// Passes over groups that are not read, to the one that is or the end of the condition.
    fn skip(&mut self) -> Result<()> {
        let mut inner = 0_usize;
        while let Some(file) = self.files.last_mut() {
            let Some((start, end)) = file.lexer.next_directive() else { return Ok(()) };
            let text = file.lexer.text();
            match &text[start..end] {
                "if" | "ifdef" | "ifndef" => inner += 1,
                "endif" if inner > 0 => inner -= 1,
                word @ ("elif" | "elifdef" | "elifndef" | "else" | "endif") if inner == 0 => {
                    let at = self.here();
                    if self.turn(word, &at)? {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the condition in the rest of the line holds.
    fn holds(&mut self, word: &str, at: &Token) -> Result<bool> {
        let line = self.line();
        if word != "if" && word != "elif" {
            let name = definition::named(line.first(), &self.names).map_err(|found| self.error(at, found))?;
            return Ok(self.definition(name).is_some() == word.ends_with("ifdef"));
        }
        self.in_condition = true;
        let expanded = self.expand(line)?;
        self.in_condition = false;
        expression::evaluate(&expanded, &self.names).map_err(|found| self.error(at, format!("`#if` cannot be decided: {found}")))
    }
}
