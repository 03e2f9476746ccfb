//! Compiling one plain body for several instruction sets and choosing at run time.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What the processor offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the target guarantees (NEON with fused multiply-add on AArch64).
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

static KNOWN: AtomicU8 = AtomicU8::new(u8::MAX);

/// The best level here. Levels change speed only: bodies use explicit `mul_add` and fixed orders, so bits are the same.
#[inline]
pub fn level() -> Level {
    match KNOWN.load(Relaxed) {
        0 => Level::Baseline,
        1 => Level::Avx2,
        2 => Level::Avx512,
        _ => {
            let level = detect();
            KNOWN.store(level as u8, Relaxed);
            level
        }
    }
}

/// From now on, in the whole process, the best level is the lower of this one and the processor's: for tests of every level.
#[cfg(feature = "reference")]
pub fn limit(most: Level) {
    KNOWN.store(detect().min(most) as u8, Relaxed);
}

#[cold]
fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq");
        if avx2 && wide && is_x86_feature_detected!("avx512vl") {
            return Level::Avx512;
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// Defines a function whose body is compiled once for each [`Level`] and dispatched at run time.
///
/// Everything the body calls must be `#[inline(always)]` to be compiled along. Split work over threads outside it: a closure handed to
/// another thread is compiled for the baseline.
#[macro_export]
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($generic:ident : $bound:path),+>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn avx512 $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? { body $(::<$($generic),+>)? ($($arg),*) }
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn avx2 $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? { body $(::<$($generic),+>)? ($($arg),*) }
                match $crate::simd::level() {
                    // SAFETY: `level` saw every enabled feature (BMI, LZCNT and POPCNT come with AVX2 processors).
                    $crate::simd::Level::Avx512 => return unsafe { avx512 $(::<$($generic),+>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2 $(::<$($generic),+>)? ($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body $(::<$($generic),+>)? ($($arg),*)
        }
    };
}
