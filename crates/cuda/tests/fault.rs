//! A fault of the GPU ends the device, and says which kernel it was. In a process of its own: nothing on the GPU works after it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;

use elinvar_core::{ListBuilder, MetalFile};

const WILD: &[MetalFile] = &[MetalFile {
    name: "wild.metal",
    text: "#include <metal_stdlib>\nusing namespace metal;\ntemplate <typename T>\n[[kernel]] void wild(device T* x [[buffer(0)]], uint i \
           [[thread_position_in_grid]]) {\n    x[(ulong(i) + 1) << 40] = 1;\n}\n",
}];

#[test]
fn every_later_call_reports_a_wild_access() {
    let Some(device) = common::device() else { return };
    let buffer = device.allocate(256).unwrap();
    let mut list = ListBuilder::new();
    list.dispatch(common::over(&device, &common::kernel("wild", WILD), &buffer), device.properties()).unwrap();
    let first = device.submit(&list.finish()).and_then(|done| done.wait()).unwrap_err();
    assert!(first.is_device_lost() && first.to_string().contains("wild_u32"), "{first}");
    for later in [device.read(&buffer, 0, &mut [0; 4]).unwrap_err(), device.allocate(1 << 20).map(|_| ()).unwrap_err()] {
        assert_eq!(later.to_string(), first.to_string());
    }
}
