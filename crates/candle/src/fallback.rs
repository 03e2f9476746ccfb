//! What runs on Candle's own operators because Elinvar does not reach the device: counted, and said once.

use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering},
};

use candle_core::Device;

static FALLBACKS: AtomicU64 = AtomicU64::new(0);
static SAID: Once = Once::new();

/// How many calls of fused operators ran on Candle's own, unfused operators so far, because Elinvar does not reach their device. The first of a process is
/// said on the standard error too. On the CPU there are none, nor on NVIDIA's GPUs with the feature `cuda`.
pub fn fallbacks() -> u64 {
    FALLBACKS.load(Ordering::Relaxed)
}

pub(crate) fn count(name: &str, device: &Device) {
    FALLBACKS.fetch_add(1, Ordering::Relaxed);
    SAID.call_once(|| {
        eprintln!(
            "elinvar-candle: {name} on {:?} runs on Candle's own operators, and so do later calls there: Elinvar's are for tensors on the CPU, \
             and with the feature `cuda` on NVIDIA's GPUs (elinvar_candle::fallbacks() counts such calls)",
            device.location()
        );
    });
}
