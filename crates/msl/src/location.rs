//! Where a token stands in the files the user wrote.

use std::{fmt, sync::Arc};

/// A line of a file, as the preprocessor's line markers name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file's name, as it was given to the preprocessor.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The line markers of a preprocessed text.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineMap {
    markers: Vec<Marker>,
}

#[derive(Clone, Debug)]
struct Marker {
    /// Where the line that the marker names starts.
    offset: usize,
    line: u32,
    file: Arc<str>,
}

impl LineMap {
    /// Adds the marker `12 "file" flags`, which holds from `offset` on; anything else is ignored.
    pub(crate) fn marker(&mut self, offset: usize, text: &str) {
        let (number, rest) = text.split_once(' ').unwrap_or((text, ""));
        let Ok(line) = number.parse() else { return };
        let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
        let file = match (name, self.markers.last()) {
            (Some((name, _)), Some(last)) if *last.file == *name => last.file.clone(),
            (Some((name, _)), _) => name.replace("\\\"", "\"").replace("\\\\", "\\").into(),
            (None, Some(last)) => last.file.clone(),
            (None, None) => "".into(),
        };
        self.markers.push(Marker { offset, line, file });
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.markers.iter().map(|marker| &*marker.file)
    }

    pub(crate) fn location(&self, source: &str, offset: usize) -> Location {
        let newlines = |from: usize| source.as_bytes().get(from..offset).unwrap_or(&[]).iter().filter(|&&byte| byte == b'\n').count() as u32;
        let after = self.markers.partition_point(|marker| marker.offset <= offset);
        match after.checked_sub(1).map(|index| &self.markers[index]) {
            Some(marker) => Location { file: marker.file.clone(), line: marker.line + newlines(marker.offset) },
            None => Location { file: "".into(), line: 1 + newlines(0) },
        }
    }
}
