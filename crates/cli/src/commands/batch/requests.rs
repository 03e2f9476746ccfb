//! The requests of a batch file: one on each line, as OpenAI's batches have them.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use elinvar::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest line, in bytes.
const MAX_LINE: u64 = 32 << 20;

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    /// Names this request in the output: a hash of its line.
    pub(super) id: String,
    /// The name that the file gives it.
    pub(super) custom_id: String,
    /// The endpoint's path.
    pub(super) url: String,
    /// What is asked there.
    pub(super) body: Map<String, Value>,
}

#[derive(Deserialize)]
struct Line {
    custom_id: String,
    method: String,
    url: String,
    body: Map<String, Value>,
}

/// Reads the requests of a file, one after the other; empty lines are passed over.
pub(super) struct Requests {
    path: PathBuf,
    file: BufReader<File>,
    line: usize,
}

impl Requests {
    /// Opens a file, reads it once, and gives its requests with their count.
    ///
    /// # Errors
    /// No file, a line that is no request, or two requests of one name.
    pub(super) fn open(path: &Path) -> Result<(Self, usize)> {
        let mut hashes = Vec::new();
        for request in Self::read(path)? {
            hashes.push(hash(&request?.custom_id));
        }
        let count = hashes.len();
        hashes.sort_unstable();
        let repeated: Vec<u64> = hashes.array_windows().filter(|[a, b]| a == b).map(|[a, _]| *a).collect();
        if !repeated.is_empty() {
            Self::reject_repeated(path, &repeated)?;
        }
        Ok((Self::read(path)?, count))
    }

    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read requests from {}", path.display()), e))?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(1 << 16, file), line: 0 })
    }

    /// Rejects two requests of one name among those whose names have these hashes.
    fn reject_repeated(path: &Path, hashes: &[u64]) -> Result<()> {
        let mut lines = HashMap::new();
        let mut requests = Self::read(path)?;
        while let Some(request) = requests.next() {
            let custom_id = request?.custom_id;
            if hashes.binary_search(&hash(&custom_id)).is_err() {
                continue;
            }
            if let Some(first) = lines.get(&custom_id) {
                return Err(requests.error(format_args!("custom_id {custom_id:?} is that of line {first}, too: give each request a name of its own")));
            }
            lines.insert(custom_id, requests.line);
        }
        Ok(())
    }

    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid_argument(format!("{}, line {}: {what}", self.path.display(), self.line))
    }

    /// The next line that is not empty, without its end.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let mut text = Vec::new();
            self.line += 1;
            let read = (&mut self.file).take(MAX_LINE).read_until(b'\n', &mut text);
            let read = read.map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", self.path.display()), e))?;
            if read as u64 == MAX_LINE && !text.ends_with(b"\n") {
                return Err(self.error(format_args!("longer than {} MiB", MAX_LINE >> 20)));
            }
            let line = text.trim_ascii();
            if read == 0 {
                return Ok(None);
            } else if !line.is_empty() {
                return Ok(Some(line.to_vec()));
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Result<Request> {
        let parsed = serde_json::from_slice(line).map_err(|e| {
            let (text, place) = (e.to_string(), format!(" at line {} column {}", e.line(), e.column()));
            self.error(format_args!("not a request, at column {}: {}", e.column(), text.strip_suffix(&place).unwrap_or(&text)))
        })?;
        let Line { custom_id, method, url, body } = parsed;
        if method != "POST" {
            return Err(self.error(format_args!("method is {method:?}: \"POST\" expected")));
        }
        if custom_id.is_empty() {
            return Err(self.error("custom_id is empty: give each request a name of its own"));
        }
        let id = format!("batch_req_{}", &blake3::hash(line).to_hex()[..32]);
        Ok(Request { id, custom_id, url, body })
    }
}

impl Iterator for Requests {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.next_line().transpose()?;
        Some(line.and_then(|line| self.parse(&line)))
    }
}

fn hash(name: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn open(text: &[u8]) -> Result<Vec<Request>> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("requests.jsonl");
        fs::write(&path, text).unwrap();
        let (requests, count) = Requests::open(&path)?;
        let requests = requests.collect::<Result<Vec<_>>>()?;
        assert_eq!(requests.len(), count);
        Ok(requests)
    }

    #[test]
    fn requests_are_read_in_order_and_empty_lines_passed_over() {
        let text = "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"},\"more\":1}\r\n\n  \n\
                    {\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{}}";
        let requests = open(text.as_bytes()).unwrap();
        assert_eq!(requests.iter().map(|request| &*request.custom_id).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!((&*requests[0].url, &requests[0].body["prompt"]), ("/v1/completions", &Value::from("x")));
        assert_ne!(requests[0].id, requests[1].id);
        assert!(open(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_request_is_rejected_with_its_line() {
        let good = r#"{"custom_id":"a","method":"POST","url":"/v1/completions","body":{}}"#;
        for (bad, expected) in [
            (r#"{"custom_id":"b""#, "line 3: not a request, at column 16: EOF while parsing an object"),
            (r#"{"custom_id":"b","method":"POST","url":"/v1/completions"}"#, "line 3: not a request, at column 57: missing field `body`"),
            (
                r#"{"custom_id":7,"method":"POST","url":"/v1/completions","body":{}}"#,
                "line 3: not a request, at column 14: invalid type: integer `7`",
            ),
            (r#"{"custom_id":"b","method":"GET","url":"/v1/completions","body":{}}"#, "line 3: method is \"GET\": \"POST\" expected"),
            (r#"{"custom_id":"","method":"POST","url":"/v1/completions","body":{}}"#, "line 3: custom_id is empty"),
            ("[1]", "line 3: not a request, at column"),
            (good, "line 3: custom_id \"a\" is that of line 1, too"),
        ] {
            let error = open(format!("{good}\n\n{bad}\n").as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.lines().count() == 1, "{bad}: {error}");
        }
        assert!(open(b"{\"custom_id\":\"\xff\"}").unwrap_err().to_string().contains("line 1: not a request"));
        let long = vec![b' '; MAX_LINE as usize + 1];
        assert!(open(&long).unwrap_err().to_string().contains("line 1: longer than 32 MiB"));
        let missing = Requests::open(Path::new("no/such/file")).err().unwrap();
        assert!(missing.to_string().starts_with("cannot read requests from no/such/file"));
    }
}
