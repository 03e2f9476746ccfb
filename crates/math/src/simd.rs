//! Compiling one plain body for several instruction sets and choosing at run time.

use std::{
    fmt,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use elinvar_core::{Error, Result};

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

impl Level {
    /// From the lowest up.
    pub const ALL: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

    /// The name in `ELINVAR_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Baseline => "baseline",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// The level that the environment variable `ELINVAR_SIMD` names, if it names one.
    ///
    /// # Errors
    /// It names one that is not known, or that this processor lacks.
    pub fn from_environment() -> Result<Option<Self>> {
        match std::env::var("ELINVAR_SIMD") {
            Ok(name) if !name.is_empty() => named(&name, processor()).map(Some),
            _ => Ok(None),
        }
    }
}

fn named(name: &str, best: Level) -> Result<Level> {
    let names = Level::ALL.into_iter().filter(|&level| level <= best).map(Level::name).collect::<Vec<_>>().join(", ");
    let found = Level::ALL.into_iter().find(|level| level.name() == name && *level <= best);
    found.ok_or_else(|| Error::invalid_argument(format!("ELINVAR_SIMD is '{name}': this processor has {names}")))
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

static KNOWN: AtomicU8 = AtomicU8::new(u8::MAX);

/// The level that is used here: the processor's best, or the one that `ELINVAR_SIMD` names. (The CPU device reports a name that is wrong.)
/// Levels change speed only: bodies use explicit `mul_add` and fixed orders, so bits are the same.
#[inline]
pub fn level() -> Level {
    match KNOWN.load(Relaxed) {
        0 => Level::Baseline,
        1 => Level::Avx2,
        2 => Level::Avx512,
        _ => {
            let level = wanted();
            KNOWN.store(level as u8, Relaxed);
            level
        }
    }
}

/// From now on, in the whole process, the level is this one, or the one that is used without it if that is lower: for tests of every level.
#[cfg(feature = "reference")]
pub fn limit(most: Level) {
    KNOWN.store(wanted().min(most) as u8, Relaxed);
}

#[cold]
fn wanted() -> Level {
    Level::from_environment().ok().flatten().unwrap_or_else(processor)
}

/// The processor's best.
fn processor() -> Level {
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

/// Announces that a cache line will be used soon. Any address is fine.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64; prefetching reads nothing, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Defines a function whose body is compiled once for each [`Level`] and dispatched at run time. After `[P]` the body may use `P`, the level's
/// [packet](crate::packet::Packet).
///
/// Everything the body calls must be `#[inline(always)]` to be compiled along. Split work over threads outside it: a closure handed to
/// another thread is compiled for the baseline.
#[macro_export]
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $([$packet:ident])? $(<$($generic:ident : $bound:path),+>)? ($($arg:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body <$($packet: $crate::packet::Packet,)? $($($generic: $bound),+)?> ($($arg: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn avx512 $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? {
                    body::<$($crate::simd!(@packet $packet Avx512),)? $($($generic),+)?>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn avx2 $(<$($generic: $bound),+>)? ($($arg: $type),*) $(-> $result)? {
                    body::<$($crate::simd!(@packet $packet Avx2),)? $($($generic),+)?>($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: `level` saw every enabled feature (BMI, LZCNT and POPCNT come with AVX2 processors).
                    $crate::simd::Level::Avx512 => return unsafe { avx512 $(::<$($generic),+>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2 $(::<$($generic),+>)? ($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body::<$($crate::simd!(@one $packet),)? $($($generic),+)?>($($arg),*)
        }
    };
    (@packet $packet:ident $level:ident) => { $crate::packet::$level };
    (@one $packet:ident) => { f32 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_chosen_by_its_name_if_the_processor_has_it() {
        assert_eq!(named("avx2", Level::Avx512).unwrap(), Level::Avx2);
        assert_eq!(named("baseline", Level::Baseline).unwrap(), Level::Baseline);
        let error = |name, best| named(name, best).unwrap_err().to_string();
        assert_eq!(error("avx512", Level::Avx2), "ELINVAR_SIMD is 'avx512': this processor has baseline, avx2");
        assert_eq!(error("sse", Level::Baseline), "ELINVAR_SIMD is 'sse': this processor has baseline");
    }
}
