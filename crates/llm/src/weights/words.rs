//! Memory of our own, and what is written there.

use std::sync::Arc;

use elinvar::{DType, Error, HostMemory, Result};
use half::{bf16, f16};
use memmap2::MmapMut;

/// Bytes at a multiple of eight.
pub(super) enum Words {
    /// So many bytes of words.
    Few(Vec<u64>, usize),
    /// Mapped, in huge pages where the system has them: a matrix is read from its beginning to its end for every token.
    Many(MmapMut),
}

impl Words {
    pub(super) fn zeros(bytes: usize) -> Self {
        const MAPPED_FROM: usize = 1 << 20;
        if bytes >= MAPPED_FROM
            && let Ok(map) = MmapMut::map_anon(bytes)
        {
            #[cfg(target_os = "linux")]
            // Advice only: without huge pages the memory works the same.
            let _ = map.advise(memmap2::Advice::HugePage);
            return Self::Many(map);
        }
        Self::Few(vec![0; bytes.div_ceil(8)], bytes)
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Few(words, bytes) => bytemuck::cast_slice_mut(words).get_mut(..*bytes).unwrap_or_default(),
            Self::Many(map) => map,
        }
    }

    pub(super) fn into_memory(self) -> HostMemory {
        HostMemory::new(Arc::new(self))
    }
}

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Few(words, bytes) => bytemuck::cast_slice(words).get(..*bytes).unwrap_or_default(),
            Self::Many(map) => map,
        }
    }
}

/// The memory itself if it is aligned for elements of `size` bytes, or a copy.
pub(super) fn aligned(memory: HostMemory, size: usize) -> HostMemory {
    let bytes = memory.bytes();
    if bytes.as_ptr().addr().is_multiple_of(size) {
        return memory;
    }
    let mut words = Words::zeros(bytes.len());
    words.bytes_mut().copy_from_slice(bytes);
    words.into_memory()
}

/// Writes values in a type of floats, rounded to nearest even.
pub(crate) fn write(values: &[f32], dtype: DType, target: &mut [u8]) -> Result<()> {
    fn each<const BYTES: usize>(values: &[f32], target: &mut [u8], bytes: impl Fn(f32) -> [u8; BYTES]) {
        target.as_chunks_mut().0.iter_mut().zip(values).for_each(|(target, &value)| *target = bytes(value));
    }
    match dtype {
        DType::F32 => each(values, target, f32::to_le_bytes),
        DType::F16 => each(values, target, |value| f16::from_f32(value).to_le_bytes()),
        DType::BF16 => each(values, target, |value| bf16::from_f32(value).to_le_bytes()),
        DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
            return Err(Error::internal(format!("weights decoded to {dtype}")));
        }
    }
    Ok(())
}
