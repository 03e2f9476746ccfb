//! How many cores the GPU has: Metal does not report it, the registry of the system's devices does.

/// The cores of the Mac's GPU, if its driver publishes them.
#[cfg(target_os = "macos")]
pub(super) fn gpu_cores() -> Option<usize> {
    use std::ffi::{CStr, c_char, c_void};

    use objc2::rc::Retained;
    use objc2_foundation::{NSNumber, NSObject, NSString};

    #[link(name = "IOKit", kind = "framework")]
    unsafe extern "C" {
        fn IOServiceMatching(name: *const c_char) -> *mut c_void;
        fn IOServiceGetMatchingService(main_port: u32, matching: *mut c_void) -> u32;
        fn IORegistryEntryCreateCFProperty(entry: u32, key: *const NSString, allocator: *const c_void, options: u32) -> *mut NSObject;
        fn IOObjectRelease(object: u32) -> i32;
    }

    const DRIVER: &CStr = c"AGXAccelerator";
    let key = NSString::from_str("gpu-core-count");
    // SAFETY: the name ends with a zero, and what the first call makes the second one consumes (if there is none it finds nothing). Port 0 is the default one.
    // A string of Foundation is a CFString, as a CFProperty is an object of Foundation; it comes with a reference, which `Retained` takes over. The entry is released once.
    let property = unsafe {
        let matching = IOServiceMatching(DRIVER.as_ptr());
        if matching.is_null() {
            return None;
        }
        let entry = IOServiceGetMatchingService(0, matching);
        if entry == 0 {
            return None;
        }
        let property = Retained::from_raw(IORegistryEntryCreateCFProperty(entry, &*key, std::ptr::null(), 0));
        IOObjectRelease(entry);
        property?
    };
    let cores = property.downcast::<NSNumber>().ok()?.as_usize();
    (cores > 0).then_some(cores)
}

/// Other systems keep their registry to themselves.
#[cfg(not(target_os = "macos"))]
pub(super) fn gpu_cores() -> Option<usize> {
    None
}
