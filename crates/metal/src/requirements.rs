//! What the kernels need of a device.

use elinvar_core::{Error, Result};

use crate::api::DeviceInfo;

/// The family of the M1: simdgroup reductions and matrices, simdgroups of 32 threads.
const MIN_FAMILY: u32 = 7;

/// Rejects a device that lacks what the kernels need: GPUs of Intel Macs, whichever vendor's, virtual ones, and Apple's before the M1.
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code, reason = "for Apple's devices; tested everywhere"))]
pub(crate) fn check(info: &DeviceInfo) -> Result<()> {
    let lacks = match info.family {
        Some(family) if family >= MIN_FAMILY => return Ok(()),
        Some(family) => format!("is of Metal's family Apple {family} (an older GPU, or a virtual machine's)"),
        None => "is of none of Metal's Apple families (a GPU of an Intel Mac)".to_owned(),
    };
    let name = &info.name;
    Err(Error::device_unavailable(format!("'{name}' {lacks}; kernels need Apple {MIN_FAMILY}, an M1 or later: use `--device cpu`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_before_the_m1_are_rejected_by_name() {
        let info = |family| DeviceInfo {
            name: "Some GPU".into(),
            system: String::new(),
            family,
            compute_units: 1,
            assumed: None,
            threadgroup_memory: 0,
            max_threads: 0,
            max_buffer_bytes: 0,
            unified_memory: false,
        };
        assert!(check(&info(Some(7))).is_ok() && check(&info(Some(10))).is_ok());
        for family in [None, Some(6)] {
            let error = check(&info(family)).unwrap_err();
            assert!(error.is_device_unavailable() && error.to_string().contains("'Some GPU'") && error.to_string().contains("M1"), "{error}");
        }
    }
}
