//! Inputs that kernels reject: a word of memory for each launch of a submission that can, read when it is done.

use elinvar_core::{CommandList, ERROR_FLAG_BYTES as WORD, Pipeline, Result, first_rejection};

use crate::api::{Api, Bound, StorageMode};

/// The words of one submission.
pub(crate) struct ErrorFlags<A: Api> {
    words: A::Buffer,
    kernels: Vec<Pipeline>,
    bound: usize,
}

impl<A: Api> ErrorFlags<A> {
    /// A word, zero, for each launch that may reject; nothing if none does.
    pub(crate) fn new(api: &A, commands: &CommandList) -> Result<Option<Self>> {
        let kernels: Vec<_> = commands.kernels().filter(|kernel| kernel.source().rejects()).cloned().collect();
        if kernels.is_empty() {
            return Ok(None);
        }
        let words = api.buffer(WORD * kernels.len(), StorageMode::Shared, "rejections")?;
        api.write(&words, 0, &vec![0; WORD * kernels.len()])?;
        Ok(Some(Self { words, kernels, bound: 0 }))
    }

    /// The next launch's word, bound at `index`.
    pub(crate) fn bind(&mut self, index: usize) -> Bound<'_, A::Buffer> {
        let offset = WORD * self.bound;
        self.bound += 1;
        Bound { index, buffer: &self.words, offset, bytes: WORD, written: true, output: false }
    }

    /// The first launch's rejection.
    pub(crate) fn check(&self, api: &A) -> Result<()> {
        let mut words = vec![0; WORD * self.kernels.len()];
        api.read(&self.words, 0, &mut words)?;
        let words = words.as_chunks::<WORD>().0.iter().map(|word| u32::from_ne_bytes(*word));
        first_rejection(words, &self.kernels).map_or(Ok(()), Err)
    }
}
