use elinvar::{Error, Result};

/// Finds stop strings in a stream of text, across its pieces. Text that may be the beginning of one is held back.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

/// What [`StopMatcher::push`] lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Text that belongs to the answer.
    pub text: String,
    /// The stop string that followed it.
    pub stop: Option<String>,
}

impl StopMatcher {
    /// Stops at any of `stops`.
    ///
    /// # Errors
    /// An empty stop string.
    pub fn new(stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::invalid_argument("a stop string is empty: it would stop before the first token"));
        }
        Ok(Self { stops: stops.to_vec(), held: String::new() })
    }

    /// Takes the next piece. After a stop the rest is dropped.
    pub fn push(&mut self, piece: &str) -> Stopped {
        self.held.push_str(piece);
        if let Some((at, stop)) = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop))).min() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(at);
            return Stopped { text, stop: Some(stop.clone()) };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - keep);
        Stopped { text: std::mem::replace(&mut self.held, held), stop: None }
    }

    /// The text that was held back, when the stream ends without a stop.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that begins `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).filter(|&at| at <= text.len());
    lengths.rev().find(|&length| text.ends_with(&stop[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut matcher = StopMatcher::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            let step = matcher.push(piece);
            out.push(step.text);
            if step.stop.is_some() {
                return (out, step.stop);
            }
        }
        out.push(matcher.rest());
        (out, None)
    }

    fn strings(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|s| s.to_string()).collect()
    }

    #[test]
    fn a_stop_string_is_found_across_pieces_and_never_given_out() {
        assert_eq!(run(&["\n\nUser:"], &["Hello", ".\n", "\nUs", "er: hi"]), (strings(&["Hello", ".", "", ""]), Some("\n\nUser:".to_owned())));
        assert_eq!(run(&["END"], &["E", "EN", "x"]), (strings(&["", "E", "ENx", ""]), None));
        assert_eq!(run(&["END"], &["EN"]), (strings(&["", "EN"]), None));
    }

    #[test]
    fn the_earliest_of_several_stops_counts() {
        assert_eq!(run(&["cd", "b"], &["abcd"]), (strings(&["a"]), Some("b".to_owned())));
        assert_eq!(run(&["é!", "ß"], &["caf", "é", "é!"]), (strings(&["caf", "", "é"]), Some("é!".to_owned())));
        assert_eq!(run(&[], &["a", "b"]), (strings(&["a", "b", ""]), None));
    }

    #[test]
    fn an_empty_stop_string_is_rejected() {
        assert!(StopMatcher::new(&[String::new()]).is_err());
    }

    #[test]
    fn pieces_of_any_size_give_the_same_answer() {
        let text = "aababcabcabdabcabcabe and more";
        let stop = "abcabe";
        for size in 1..=text.len() {
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(|c| std::str::from_utf8(c).unwrap()).collect();
            let (out, stopped) = run(&[stop], &pieces);
            assert_eq!((out.concat(), stopped), (text[..text.find(stop).unwrap()].to_owned(), Some(stop.to_owned())), "{size}");
        }
    }
}
