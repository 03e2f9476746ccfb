use std::{fmt, marker::PhantomData, sync::Arc};

use crate::{
    dtype::Element,
    error::{Error, Result},
    grid::Extent,
    signature::Access,
};

/// A CPU kernel. It runs inside the device's rayon pool and may use all of it.
pub type HostKernel = fn(&mut HostArguments<'_>) -> Result<()>;

/// A kernel that is data: what the CPU device runs for it.
pub trait HostProgram: fmt::Debug + Send + Sync {
    /// Runs it, inside the device's rayon pool.
    ///
    /// # Errors
    /// Arguments or a launch that do not fit it, or a failure of its own.
    fn run(&self, arguments: &mut HostArguments<'_>) -> Result<()>;
}

/// What the CPU device runs for a kernel.
#[derive(Clone, Debug)]
pub enum HostForm {
    /// The library's: a CPU kernel.
    Kernel(HostKernel),
    /// A user's program.
    Program(Arc<dyn HostProgram>),
}

impl HostForm {
    /// Runs it.
    ///
    /// # Errors
    /// Those of the kernel or the program.
    pub fn run(&self, arguments: &mut HostArguments<'_>) -> Result<()> {
        match self {
            HostForm::Kernel(kernel) => kernel(arguments),
            HostForm::Program(program) => program.run(arguments),
        }
    }
}

/// One bound range of host memory.
#[derive(Clone, Copy)]
pub struct HostBinding {
    pointer: *mut u8,
    bytes: usize,
    access: Access,
}

impl HostBinding {
    /// Describes a range to be passed to a kernel.
    ///
    /// # Safety
    /// `pointer` is valid for reads of `bytes` initialised bytes, and for writes if `access` writes, for as long as the
    /// [`HostArguments`] made of it live; a written range overlaps no other binding of the same arguments, nor is it touched elsewhere meanwhile.
    pub unsafe fn new(pointer: *mut u8, bytes: usize, access: Access) -> Self {
        Self { pointer, bytes, access }
    }
}

/// What a CPU kernel receives: its buffers in binding order and its parameter block.
pub struct HostArguments<'a> {
    bindings: Vec<Option<HostBinding>>,
    params: &'a [u8],
    grid: Extent,
    threadgroup: Extent,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> HostArguments<'a> {
    /// Arguments in binding order; `None` for an absent optional buffer.
    pub fn new(bindings: Vec<Option<HostBinding>>, params: &'a [u8]) -> Self {
        Self { bindings, params, grid: Extent::linear(1), threadgroup: Extent::linear(1), memory: PhantomData }
    }

    /// The same for a launch over a grid of threadgroups; without it there is one thread.
    pub fn over(self, grid: Extent, threadgroup: Extent) -> Self {
        Self { grid, threadgroup, ..self }
    }

    /// Threadgroups.
    pub fn grid(&self) -> Extent {
        self.grid
    }

    /// Threads of a threadgroup.
    pub fn threadgroup(&self) -> Extent {
        self.threadgroup
    }

    /// The parameter block's bytes.
    pub fn params_bytes(&self) -> &'a [u8] {
        self.params
    }

    /// The parameter block.
    ///
    /// # Errors
    /// A block of another size.
    pub fn params<P: bytemuck::AnyBitPattern>(&self) -> Result<P> {
        bytemuck::try_pod_read_unaligned(self.params)
            .map_err(|_| Error::invalid_launch(format!("parameter block has {} bytes, the kernel takes {}", self.params.len(), size_of::<P>())))
    }

    /// Whether an optional buffer is bound.
    pub fn is_bound(&self, index: usize) -> bool {
        self.bindings.get(index).is_some_and(Option::is_some)
    }

    /// A buffer the kernel reads.
    ///
    /// # Errors
    /// Not bound, not declared as read, or not aligned for `T`.
    pub fn input<T: Element>(&self, index: usize) -> Result<&'a [T]> {
        let binding = self.bindings.get(index).copied().flatten().filter(|b| b.access == Access::Read);
        let binding = binding.ok_or_else(|| Error::invalid_launch(format!("buffer {index} is not bound for reading")))?;
        let elements = Self::elements::<T>(index, &binding)?;
        // SAFETY: valid and initialised for 'a by `HostBinding::new`; alignment checked above; `T: Pod`; read-only bindings are never written meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(binding.pointer.cast(), elements) })
    }

    /// A buffer the kernel reads, if it is bound.
    ///
    /// # Errors
    /// As [`HostArguments::input`].
    pub fn optional<T: Element>(&self, index: usize) -> Result<Option<&'a [T]>> {
        if self.is_bound(index) { self.input(index).map(Some) } else { Ok(None) }
    }

    /// A buffer the kernel writes or updates. It is handed out once.
    ///
    /// # Errors
    /// Not bound, not declared as written, already taken, or not aligned for `T`.
    pub fn output<T: Element>(&mut self, index: usize) -> Result<&'a mut [T]> {
        let binding = self.bindings.get_mut(index).and_then(|b| b.take_if(|b| b.access.writes()));
        let binding = binding.ok_or_else(|| Error::invalid_launch(format!("buffer {index} is not bound for writing, or was taken before")))?;
        let elements = Self::elements::<T>(index, &binding)?;
        // SAFETY: valid for reads and writes for 'a and disjoint from every other binding by `HostBinding::new`; taken out, so handed out once.
        Ok(unsafe { std::slice::from_raw_parts_mut(binding.pointer.cast(), elements) })
    }

    /// A buffer the kernel writes, if it is bound.
    ///
    /// # Errors
    /// As [`HostArguments::output`].
    pub fn optional_output<T: Element>(&mut self, index: usize) -> Result<Option<&'a mut [T]>> {
        if self.is_bound(index) { self.output(index).map(Some) } else { Ok(None) }
    }

    fn elements<T: Element>(index: usize, binding: &HostBinding) -> Result<usize> {
        if !binding.pointer.cast::<T>().is_aligned() || !binding.bytes.is_multiple_of(size_of::<T>()) {
            return Err(Error::invalid_launch(format!("buffer {index} ({} bytes) is not a whole, aligned array of {}", binding.bytes, T::DTYPE)));
        }
        Ok(binding.bytes / size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_handed_out_once_and_never_as_an_input() {
        let mut data = [1f32, 2.0];
        // SAFETY: `data` outlives the arguments and is not touched otherwise.
        let binding = unsafe { HostBinding::new(data.as_mut_ptr().cast(), 8, Access::ReadWrite) };
        let mut arguments = HostArguments::new(vec![Some(binding), None], &[]);
        assert!(arguments.input::<f32>(0).is_err());
        arguments.output::<f32>(0).unwrap()[1] = 5.0;
        assert!(arguments.output::<f32>(0).is_err());
        assert!(!arguments.is_bound(1) && arguments.optional::<f32>(1).unwrap().is_none());
        assert!(arguments.params::<u32>().is_err());
        assert_eq!(data, [1.0, 5.0]);
    }
}
