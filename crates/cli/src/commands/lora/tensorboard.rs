//! A training as TensorBoard reads it: a file of records, each an event of Protocol Buffers (`tensorflow/core/util/event.proto`).

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use elinvar::{Error, ErrorKind, Result};
use elinvar_llm::{Rewards, TrainingEvent};

/// An event file.
pub(super) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// A new file in a folder, of a training that goes on after `steps` steps: what other files say of later steps no longer counts.
    pub(super) fn new(folder: &Path, steps: u64) -> Result<Self> {
        let path = folder.join(format!("events.out.tfevents.{:010}.{}", now() as u64, process::id()));
        let file = OpenOptions::new().create_new(true).append(true).open(&path).map_err(|e| failed(&path, e))?;
        let mut events = Self { path, file };
        events.write(0, &[&bytes(3, b"brain.Event:2")])?;
        // The session begins.
        events.write(steps + 1, &[&bytes(7, &varint(1, 1))])?;
        Ok(events)
    }

    pub(super) fn listen(&mut self, event: TrainingEvent) -> Result<()> {
        match event {
            TrainingEvent::Step { step, loss, norm, rewards, rate, tokens, seconds } => {
                let mut scalars = vec![
                    ("loss", loss),
                    ("learning_rate", rate as f32),
                    ("gradient_norm", norm),
                    ("tokens_per_second", tokens as f32 / seconds as f32),
                ];
                if let Some(Rewards { chosen, rejected, accuracy }) = rewards {
                    scalars.extend([("rewards/chosen", chosen), ("rewards/rejected", rejected), ("rewards/margins", chosen - rejected)]);
                    scalars.push(("rewards/accuracies", accuracy));
                }
                self.scalars(step, &scalars)
            }
            TrainingEvent::Validated { step, loss } => self.scalars(step, &[("validation_loss", loss as f32)]),
            TrainingEvent::Stopped { .. } | TrainingEvent::Saved { .. } => Ok(()),
        }
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f32)]) -> Result<()> {
        let value = |(tag, value): &(&str, f32)| bytes(1, &[bytes(1, tag.as_bytes()), [&[2 << 3 | 5], &value.to_le_bytes()[..]].concat()].concat());
        let summary: Vec<u8> = scalars.iter().flat_map(value).collect();
        self.write(step, &[&bytes(5, &summary)])
    }

    /// Writes an event of now.
    fn write(&mut self, step: u64, fields: &[&[u8]]) -> Result<()> {
        let time = [&[1 << 3 | 1], &now().to_le_bytes()[..]].concat();
        let event = [&time, &varint(2, step), &fields.concat()].map(Vec::as_slice).concat();
        self.file.write_all(&record(&event)).map_err(|e| failed(&self.path, e))
    }
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e)
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A field of a number.
fn varint(field: u8, mut number: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes, a text or a message.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = varint(field, content.len() as u64);
    bytes[0] |= 2;
    bytes.extend(content);
    bytes
}

/// A record: its length and its content, each with a checksum.
fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [&length, &masked(&length).to_le_bytes()[..], content, &masked(content).to_le_bytes()].concat()
}

/// The checksum as records have it.
fn masked(content: &[u8]) -> u32 {
    crc32c(content).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's.
fn crc32c(content: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !content.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_tensorflow() {
        // The check value of the algorithm, and the first record of every file but for its time.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let version = record(&[&[9; 9][..], &bytes(3, b"brain.Event:2")].concat());
        assert_eq!((version[0], &version[8..12], version.len()), (24, &[0xa3, 0x7f, 0x4b, 0x22][..], 40));
        assert_eq!((varint(2, 300), bytes(5, b"ab")), (vec![16, 172, 2], vec![42, 2, b'a', b'b']));
    }
}
