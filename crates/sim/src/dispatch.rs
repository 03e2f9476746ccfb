//! What to run: dispatches, copies and fills.

use elinvar_core::{Error, Extent, Grid, Result};
use elinvar_msl::ParameterKind;

use crate::{
    abi::{BINDINGS, MAX_THREADS},
    buffer::Buffer,
    library::Pipeline,
};

/// Bytes that may be given in place of a buffer.
pub(crate) const MAX_INLINE_BYTES: usize = 4096;

/// What a dispatch must do with a bound buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Anything.
    #[default]
    Free,
    /// Write every byte of the bound range.
    Whole,
    /// Write every byte of the bound range if it writes any and reads none.
    WholeUnlessRead,
}

/// A buffer bound to an index.
#[derive(Clone)]
pub struct Binding {
    /// The index, as in `[[buffer(index)]]`.
    pub index: u32,
    /// The buffer.
    pub buffer: Buffer,
    /// Where the kernel's pointer points.
    pub offset: usize,
    /// Bytes from there that the kernel may touch; none: the whole buffer, before the offset too.
    pub bytes: Option<usize>,
    /// Whether the kernel must write it.
    pub output: Output,
}

impl Binding {
    /// A whole buffer.
    pub fn new(index: u32, buffer: &Buffer) -> Self {
        Self { index, buffer: buffer.clone(), offset: 0, bytes: None, output: Output::Free }
    }

    /// The same, of which only `bytes` from `offset` on may be touched.
    pub fn range(mut self, offset: usize, bytes: usize) -> Self {
        (self.offset, self.bytes) = (offset, Some(bytes));
        self
    }

    /// The same, pointing to `offset`.
    pub fn at(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// The same, which must be written.
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// First and last byte (exclusive) that may be touched.
    pub(crate) fn limits(&self) -> std::ops::Range<usize> {
        self.bytes.map_or(0..self.buffer.len(), |bytes| self.offset..self.offset + bytes)
    }
}

/// A kernel, what it works on, and how many threads run it.
#[derive(Clone)]
pub struct Dispatch {
    /// The kernel.
    pub pipeline: Pipeline,
    /// Buffers by index.
    pub buffers: Vec<Binding>,
    /// Bytes given in place of a buffer, by index.
    pub bytes: Vec<(u32, Vec<u8>)>,
    /// Bytes of threadgroup memory, by index.
    pub threadgroup_memory: Vec<(u32, usize)>,
    /// The grid.
    pub grid: Grid,
    /// Threads of each threadgroup, along each axis.
    pub threads_per_threadgroup: [u32; 3],
}

impl Dispatch {
    /// Without anything bound.
    pub fn new(pipeline: &Pipeline, grid: Grid, threads_per_threadgroup: [u32; 3]) -> Self {
        Self { pipeline: pipeline.clone(), buffers: Vec::new(), bytes: Vec::new(), threadgroup_memory: Vec::new(), grid, threads_per_threadgroup }
    }

    /// The same with a buffer bound.
    pub fn with(mut self, binding: Binding) -> Self {
        self.buffers.push(binding);
        self
    }

    /// The same with bytes bound.
    pub fn with_bytes(mut self, index: u32, bytes: impl Into<Vec<u8>>) -> Self {
        self.bytes.push((index, bytes.into()));
        self
    }

    /// The same with threadgroup memory.
    pub fn with_threadgroup_memory(mut self, index: u32, bytes: usize) -> Self {
        self.threadgroup_memory.push((index, bytes));
        self
    }

    pub(crate) fn threadgroups(&self) -> [u32; 3] {
        self.grid.threadgroups(Extent(self.threads_per_threadgroup))
    }

    /// Threads of the whole grid along each axis.
    pub(crate) fn threads(&self) -> [u32; 3] {
        // A kernel that asks how many there are has no more than 32 bits count: see `validate`.
        self.grid.threads(Extent(self.threads_per_threadgroup)).unwrap_or([u32::MAX; 3])
    }

    /// What findings call a bound buffer: the kernel's parameter, or the buffer where that has no name.
    pub(crate) fn name_of(&self, binding: &Binding) -> String {
        self.parameter_name(binding.index).unwrap_or_else(|| binding.buffer.name().to_owned())
    }

    /// The kernel's name for what is bound to `index`.
    pub(crate) fn parameter_name(&self, index: u32) -> Option<String> {
        let named = |kind: &ParameterKind| matches!(kind, ParameterKind::Buffer { index: at, .. } if *at == index);
        let mut parameters = self.pipeline.kernel().parameters.iter();
        parameters.find(|parameter| named(&parameter.kind) && !parameter.name.is_empty()).map(|parameter| parameter.name.clone())
    }

    /// Checks everything Metal's own validation would.
    pub(crate) fn validate(&self) -> Result<()> {
        let kernel = &self.pipeline.kernel().name;
        let invalid = |what: String| Err(Error::invalid_launch(format!("kernel `{kernel}`: {what}")));
        let per_group = self.threads_per_threadgroup.iter().try_fold(1u32, |product, axis| product.checked_mul(*axis));
        if !per_group.is_some_and(|threads| (1..=MAX_THREADS as u32).contains(&threads)) {
            return invalid(format!("a threadgroup of {:?} threads was asked; it must hold 1 to {MAX_THREADS}", self.threads_per_threadgroup));
        }
        if self.grid.is_empty() {
            return invalid(format!("the grid {:?} holds no thread; every axis must be at least 1", self.grid));
        }
        if self.threadgroups().iter().try_fold(1u32, |product, axis| product.checked_mul(*axis)).is_none() {
            return invalid(format!("the grid {:?} has more threadgroups than the simulator can count (2^32)", self.grid));
        }
        if self.pipeline.kernel().counts_threads() {
            self.grid.threads(Extent(self.threads_per_threadgroup)).map_err(|error| error.context(format_args!("kernel `{kernel}`")))?;
        }
        for binding in &self.buffers {
            let (buffer, limits) = (&binding.buffer, binding.offset.checked_add(binding.bytes.unwrap_or(0)));
            if limits.is_none_or(|end| end > buffer.len()) {
                let asked = binding.bytes.map_or(String::new(), |bytes| format!("{bytes} bytes at "));
                return invalid(format!(
                    "buffer({}) binds {asked}offset {} of `{}`, which holds {}",
                    binding.index,
                    binding.offset,
                    buffer.name(),
                    buffer.len()
                ));
            }
        }
        for (index, bytes) in &self.bytes {
            if bytes.is_empty() || bytes.len() > MAX_INLINE_BYTES {
                return invalid(format!(
                    "buffer({index}) was given {} bytes; it takes 1 to {MAX_INLINE_BYTES}, beyond that use a buffer",
                    bytes.len()
                ));
            }
        }
        self.validate_arguments().or_else(invalid)
    }

    fn validate_arguments(&self) -> Result<(), String> {
        let bound: Vec<u32> = self.buffers.iter().map(|binding| binding.index).chain(self.bytes.iter().map(|(index, _)| *index)).collect();
        let groups: Vec<u32> = self.threadgroup_memory.iter().map(|(index, _)| *index).collect();
        for (what, indices) in [("buffer", &bound), ("threadgroup", &groups)] {
            if let Some(index) = indices.iter().find(|index| **index as usize >= BINDINGS) {
                return Err(format!("{what}({index}) was given; indices end at {}", BINDINGS - 1));
            }
            if let Some(index) = indices.iter().enumerate().find(|(at, index)| indices[..*at].contains(index)) {
                return Err(format!("{what}({}) was given twice", index.1));
            }
        }
        let required = self.pipeline.0.required.iter();
        for (parameter, _) in self.pipeline.kernel().parameters.iter().zip(required).filter(|(_, required)| **required) {
            match &parameter.kind {
                ParameterKind::Buffer { index, .. } if !bound.contains(index) => {
                    return Err(format!("buffer({index}), its parameter `{}`, is missing", parameter.name));
                }
                ParameterKind::Threadgroup { index, .. } if !groups.contains(index) => {
                    return Err(format!("the size of threadgroup({index}), its parameter `{}`, is missing", parameter.name));
                }
                ParameterKind::Buffer { .. } | ParameterKind::Threadgroup { .. } | ParameterKind::Position(_) => {}
            }
        }
        Ok(())
    }
}
