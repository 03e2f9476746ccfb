//! The compiler's messages, reported at the user's own lines.

use std::path::Path;

use elinvar_core::Error;

use crate::symbols::{COMPILATION_FOLDER, PRELUDE_FOLDER};

/// At most so many messages are shown.
const SHOWN: usize = 8;

/// The error for a failed compilation of `what`.
pub(crate) fn error(what: &str, output: &[u8]) -> Error {
    let text = String::from_utf8_lossy(output);
    let messages = messages(&text);
    let message = match messages.as_slice() {
        [] => format!("{what}: the compiler failed: {}", text.trim().lines().next().unwrap_or("it said nothing")),
        [first] => first.clone(),
        all => {
            let more = if all.len() > SHOWN { format!("\n({} more)", all.len() - SHOWN) } else { String::new() };
            all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n") + &more
        }
    };
    Error::compile_failed(message)
}

/// Each error at its own line, or, where that lies in the prelude, at the user's line that led there.
fn messages(text: &str) -> Vec<String> {
    let lines: Vec<Diagnostic<'_>> = text.lines().filter_map(diagnostic).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.level.ends_with("error")) {
        let led_here = lines[at + 1..].iter().take_while(|note| note.level == "note").find(|note| note.is_users());
        let place = if line.is_users() { line.place } else { led_here.map_or("in Metal's own headers", |note| note.place) };
        let message = format!("{}: error: {}", own_name(place), line.message);
        if !found.contains(&message) {
            found.push(message);
        }
    }
    found
}

/// `place: level: message`.
struct Diagnostic<'a> {
    place: &'a str,
    level: &'a str,
    message: &'a str,
}

impl Diagnostic<'_> {
    fn is_users(&self) -> bool {
        !Path::new(self.place).starts_with(PRELUDE_FOLDER) && !self.place.contains("/prelude-")
    }
}

fn diagnostic(line: &str) -> Option<Diagnostic<'_>> {
    ["fatal error", "error", "note"].into_iter().find_map(|level| {
        let separator = format!(": {level}: ");
        let at = line.find(&separator)?;
        Some(Diagnostic { place: &line[..at], level, message: &line[at + separator.len()..] })
    })
}

fn own_name(place: &str) -> &str {
    place.strip_prefix(COMPILATION_FOLDER).map_or(place, |rest| rest.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_the_prelude_is_reported_at_the_users_line() {
        let text = "/tmp/cache/prelude-12/vector.h:7:3: error: no member 'q'\n\
                    k.metal:12:5: note: in instantiation of member function requested here\n\
                    k.metal:30:1: error: expected ';'\n2 errors generated.\n";
        assert_eq!(messages(text), ["k.metal:12:5: error: no member 'q'", "k.metal:30:1: error: expected ';'"]);
    }
}
