//! The Metal device over the simulator as the seam sees it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::{collections::HashMap, sync::Arc};

use elinvar_core::{CommandList, DType, Device, DeviceKind, ListBuilder};
use elinvar_kernels::{Operator, TensorInfo, encode, softmax::Softmax};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions};

fn device(texts: &[(&str, String)]) -> Device {
    let texts: HashMap<_, _> = texts.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    let simulated = Simulated::new(SimulatorOptions::default()).unwrap();
    Device::new(MetalBackend::new(simulated, DeviceKind::MetalSim).with_texts(texts))
}

/// A list that computes the softmax of a row of zeros, and where its result goes.
fn softmax(device: &Device, n: usize) -> elinvar_core::Result<(Arc<CommandList>, elinvar_core::Buffer)> {
    let (operator, info) = (Softmax { axis: -1, log: false }, TensorInfo::new(DType::F32, &[1, n])?);
    let plan = operator.plan(&[Some(info)], &[info], device.properties())?;
    let (x, y) = (device.allocate(4 * n)?, device.allocate(4 * n)?);
    device.write(&x, 0, &vec![0; 4 * n])?;
    let mut list = ListBuilder::new();
    encode(&plan, &[Some(x.bind(0, 4 * n)?)], &[y.bind(0, 4 * n)?], device, &mut list, |bytes| device.allocate(bytes))?;
    Ok((list.finish(), y))
}

fn source(file: &str) -> String {
    std::fs::read_to_string(format!("{}/../kernels/src/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn lists_run_in_order_and_are_waited_for_by_reads() {
    let device = device(&[]);
    let (list, y) = softmax(&device, 64).unwrap();
    for _ in 0..10 {
        device.submit(&list).unwrap();
    }
    let mut bytes = [0; 256];
    device.read(&y, 0, &mut bytes).unwrap();
    assert!(bytes.as_chunks().0.iter().all(|y| f32::from_ne_bytes(*y) == 1.0 / 64.0), "{bytes:?}");
}

#[test]
fn a_reading_has_what_was_there_between_two_lists() {
    let device = device(&[]);
    let buffer = device.allocate(8).unwrap();
    let fill = |value: u8| {
        let mut list = ListBuilder::new();
        list.fill(buffer.bind(0, 8).unwrap(), value).unwrap();
        device.submit(&list.finish()).unwrap()
    };
    let readings: Vec<_> = (1..20u8)
        .map(|value| {
            fill(value);
            device.read_later(&buffer, 4, 2).unwrap()
        })
        .collect();
    fill(99);
    for (reading, value) in readings.into_iter().zip(1..) {
        assert_eq!(reading.wait().unwrap(), [value; 2]);
    }
    assert!(device.read_later(&buffer, 7, 2).is_err());
}

#[test]
fn a_device_may_be_dropped_while_a_list_runs() {
    for _ in 0..5 {
        let device = device(&[]);
        let (list, _) = softmax(&device, 64).unwrap();
        let completion = device.submit(&list).unwrap();
        drop((device, list));
        completion.wait().unwrap();
    }
}

#[test]
fn a_finding_is_told_once_by_whoever_waits_first() {
    const FILE: &str = "softmax/row.metal";
    let broken = source(FILE).replacen("to.store(", "if (t.index > 0) to.store(", 1);
    assert_ne!(broken, source(FILE));
    let device = device(&[(FILE, broken)]);
    let (list, y) = softmax(&device, 64).unwrap();
    let error = device.submit(&list).unwrap().wait().unwrap_err().to_string();
    assert!(error.contains("unwritten-output") && error.contains("`y`"), "{error}");
    device.read(&y, 0, &mut [0; 4]).unwrap();
    device.submit(&list).unwrap();
    assert!(device.read(&y, 0, &mut [0; 4]).unwrap_err().to_string().contains("unwritten-output"));
}

#[test]
fn a_text_that_does_not_compile_is_told_with_its_line() {
    const FILE: &str = "softmax/softmax.metal";
    let line = source(FILE).lines().position(|l| l.contains("[[kernel]]")).unwrap() + 1;
    let device = device(&[(FILE, source(FILE).replacen("[[kernel]] void", "[[kernel]] vojd", 1))]);
    let error = softmax(&device, 64).unwrap_err();
    assert!(error.is_compile_failed() && error.to_string().contains(&format!("{FILE}:{line}")), "{error}");
}
