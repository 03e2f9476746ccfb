//! What the child process sends: a tag, a length, and so many bytes. Nothing of it is trusted.

use std::{
    ffi::c_int,
    io::{Result, Write},
};

use elinvar_core::{Error, ErrorKind};

/// A message.
#[derive(Debug)]
pub(super) enum Message {
    /// All that is to be printed so far.
    Report(String),
    /// What is to be written to the user's file of this number.
    File(u8, Vec<u8>),
    /// The work has ended, and says whether nothing was found.
    Verdict(bool),
    /// The work has failed.
    Failed(Error),
    /// The kernel tried this system call.
    Denied(c_int),
}

const HEADER: usize = 9;

/// Kinds of errors by the byte that stands for them.
const KINDS: [ErrorKind; 10] = [
    ErrorKind::OutOfMemory,
    ErrorKind::DeviceLost,
    ErrorKind::DeviceUnavailable,
    ErrorKind::CompileFailed,
    ErrorKind::InvalidLaunch,
    ErrorKind::InvalidArgument,
    ErrorKind::Unsupported,
    ErrorKind::InvalidData,
    ErrorKind::Io,
    ErrorKind::Internal,
];

impl Message {
    /// The bytes of [`Message::Denied`], made without memory of the heap's: for signal handlers.
    pub(super) fn denied(call: c_int) -> [u8; HEADER + 4] {
        let mut bytes = [0; HEADER + 4];
        bytes[0] = b'D';
        bytes[1..HEADER].copy_from_slice(&4u64.to_le_bytes());
        bytes[HEADER..].copy_from_slice(&call.to_le_bytes());
        bytes
    }

    pub(super) fn write(&self, to: &mut impl Write) -> Result<()> {
        let (tag, content): (u8, &[u8]) = match self {
            Message::Report(text) => (b'R', text.as_bytes()),
            Message::File(number, bytes) => (b'F', &[&[*number], bytes.as_slice()].concat()),
            Message::Verdict(verdict) => (b'V', &[u8::from(*verdict)]),
            Message::Failed(error) => {
                let kind = KINDS.iter().position(|kind| *kind == error.kind()).unwrap_or(KINDS.len());
                (b'E', &[&[kind as u8], error.to_string().as_bytes()].concat())
            }
            Message::Denied(call) => return to.write_all(&Self::denied(*call)),
        };
        to.write_all(&[tag])?;
        to.write_all(&(content.len() as u64).to_le_bytes())?;
        to.write_all(content)
    }

    fn read(tag: u8, content: &[u8]) -> Self {
        let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
        match (tag, content) {
            (b'R', _) => Message::Report(text(content)),
            (b'F', [number, bytes @ ..]) => Message::File(*number, bytes.to_vec()),
            (b'V', [verdict]) => Message::Verdict(*verdict != 0),
            (b'E', [kind, why @ ..]) => {
                let kind = KINDS.get(usize::from(*kind)).copied().unwrap_or(ErrorKind::Internal);
                Message::Failed(Error::new(kind, text(why)))
            }
            (b'D', &[a, b, c, d]) => Message::Denied(c_int::from_le_bytes([a, b, c, d])),
            _ => Message::Failed(Error::invalid_data("the kernel's process sent what cannot be read")),
        }
    }
}

/// Bytes that have come, and become messages.
#[derive(Default)]
pub(super) struct Inbox(Vec<u8>);

impl Inbox {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message, if all of it has come.
    pub(super) fn next(&mut self) -> Option<Message> {
        let (tag, rest) = self.0.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let message = Message::read(*tag, rest.get(..length)?);
        self.0.drain(..HEADER + length);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_however_their_bytes_come() {
        let sent = [
            Message::Report("text".to_owned()),
            Message::File(1, vec![7; 1000]),
            Message::Report(String::new()),
            Message::Denied(231),
            Message::Failed(Error::compile_failed("why")),
            Message::Verdict(true),
        ];
        let mut bytes = Vec::new();
        sent.iter().for_each(|message| message.write(&mut bytes).unwrap());
        for step in [1, 7, bytes.len()] {
            let (mut inbox, mut come) = (Inbox::default(), Vec::new());
            for part in bytes.chunks(step) {
                inbox.add(part);
                come.extend(std::iter::from_fn(|| inbox.next()));
            }
            assert_eq!(format!("{come:?}"), format!("{sent:?}"));
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_failure() {
        for (tag, content) in [(b'V', &[][..]), (b'D', &[1, 2]), (b'E', &[]), (b'x', &[])] {
            assert!(matches!(Message::read(tag, content), Message::Failed(_)));
        }
        let mut inbox = Inbox::default();
        inbox.add(&[b'F', 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        assert!(inbox.next().is_none());
    }
}
