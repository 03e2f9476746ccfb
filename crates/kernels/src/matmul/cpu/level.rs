//! The instruction sets that work is compiled for, and the choice among them.

use super::simd::{Portable, Work};
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use crate::simd;

/// A level of vector instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What the compilation target guarantees.
    Portable(Portable),
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 F, VL, BW and DQ.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// The vectors of the best level ([`crate::simd::level`]).
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let best = simd::level();
            if let Some(simd) = Avx512::detect().filter(|_| best >= simd::Level::Avx512) {
                return Level::Avx512(simd);
            }
            if let Some(simd) = Avx2::detect().filter(|_| best >= simd::Level::Avx2) {
                return Level::Avx2(simd);
            }
        }
        Level::Portable(Portable)
    }

    /// The level below, if its vectors are narrower.
    pub(super) fn narrower(self) -> Self {
        match self {
            Level::Portable(_) => self,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => self,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => Avx2::detect().map_or(self, Level::Avx2),
        }
    }

    /// Runs `work` with this level's instructions.
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Level::Portable(simd) => work.run(simd),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.run(work),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.run(work),
        }
    }
}
