//! The Metal device over the simulator as the backend interface sees it.

use std::{collections::HashMap, sync::Arc};

use elinvar_core::{Buffer, CommandList, DType, Device, DeviceKind, HostMemory, ListBuilder, MemoryPressure, Storage};
use elinvar_kernels::{
    Operator, TensorInfo,
    conformance::{self, Placement},
    encode,
    softmax::Softmax,
};
use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions, SystemMemory};

fn device(texts: &[(&str, String)]) -> Device {
    device_with(SimulatorOptions::default(), texts)
}

fn device_with(options: SimulatorOptions, texts: &[(&str, String)]) -> Device {
    let texts: HashMap<_, _> = texts.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
    let simulated = Simulated::new(options).unwrap();
    Device::new(MetalBackend::new(simulated, DeviceKind::MetalSim).with_texts(texts))
}

/// A list that computes the softmax of a row of zeros, and where its result goes.
fn softmax(device: &Device, n: usize) -> elinvar_core::Result<(Arc<CommandList>, Buffer)> {
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

/// The first error among an operator's cases when a line of one of its files is another, on a device that checks no access.
fn first_error(operator: &str, file: &str, line: &str, other: &str) -> String {
    let text = source(file).replacen(line, other, 1);
    assert_ne!(text, source(file));
    let device = device_with(SimulatorOptions { checked: false, ..SimulatorOptions::default() }, &[(file, text)]);
    let cases = conformance::cases().into_iter().filter(|case| case.name().starts_with(operator));
    let mut errors = cases.filter_map(|case| conformance::run(&case, &device, Placement::Aligned).err());
    errors.next().unwrap_or_else(|| panic!("no case of {operator} reported anything")).to_string()
}

#[test]
fn cases_notice_writes_beside_outputs_and_beside_what_is_updated() {
    let store = "    store_block(y + first, block, elements_from(first, params.count));\n";
    let beside_output = first_error("Fill ", "fill/fill.metal", store, &format!("{store}    y[-1] = T(0);\n"));
    assert!(beside_output.contains("wrote outside"), "{beside_output}");
    let to = "    const uint width = uint(params.width);\n";
    let beside_cache = first_error("KvAppend", "kv_append/kv_append.metal", to, &format!("{to}    stored(cache)[-1] = 0;\n"));
    assert!(beside_cache.contains("wrote outside"), "{beside_cache}");
}

#[test]
fn a_finding_is_reported_once_to_the_first_that_waits() {
    const FILE: &str = "softmax/row.metal";
    let broken = source(FILE).replacen("share.store(", "if (v > 0) share.store(", 1);
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
fn a_text_that_does_not_compile_is_reported_with_its_line() {
    const FILE: &str = "softmax/softmax.metal";
    let line = source(FILE).lines().position(|l| l.contains("[[kernel]]")).unwrap() + 1;
    let device = device(&[(FILE, source(FILE).replacen("[[kernel]] void", "[[kernel]] vojd", 1))]);
    let error = softmax(&device, 64).unwrap_err();
    assert!(error.is_compile_failed() && error.to_string().contains(&format!("{FILE}:{line}")), "{error}");
}

#[test]
fn copies_and_fills_take_any_bytes() {
    let device = device(&[]);
    let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    device.write(&from, 0, &(0..64).collect::<Vec<u8>>()).unwrap();
    let mut list = ListBuilder::new();
    list.fill(to.bind(0, 64).unwrap(), 7).unwrap();
    list.copy(from.bind(5, 9).unwrap(), to.bind(2, 9).unwrap()).unwrap();
    list.fill(to.bind(9, 3).unwrap(), 200).unwrap();
    list.copy(from.bind(4, 8).unwrap(), to.bind(16, 8).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let (mut bytes, mut expected) = ([0; 64], [7u8; 64]);
    device.read(&to, 0, &mut bytes).unwrap();
    expected[2..11].copy_from_slice(&[5, 6, 7, 8, 9, 10, 11, 12, 13]);
    expected[9..12].fill(200);
    expected[16..24].copy_from_slice(&[4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(bytes, expected);
}

#[test]
fn adopted_memory_may_begin_anywhere() {
    let device = device(&[]);
    let owner: Arc<Vec<u8>> = Arc::new((0..=255).collect());
    let adopted = device.adopt(HostMemory::new(owner).slice(24..128).unwrap()).unwrap();
    let to = device.allocate(16).unwrap();
    let mut list = ListBuilder::new();
    list.copy(adopted.bind(4, 16).unwrap(), to.bind(0, 16).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let mut bytes = [0; 16];
    device.read(&to, 0, &mut bytes).unwrap();
    assert_eq!(bytes.to_vec(), (28..44).collect::<Vec<u8>>());
}

#[test]
fn memory_that_is_not_unified_is_reached_through_copies() {
    let options = SimulatorOptions { unified_memory: false, ..SimulatorOptions::default() };
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let (from, to) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    device.write(&from, 3, &(0..61).collect::<Vec<u8>>()).unwrap();
    let adopted = device.adopt(HostMemory::new(Arc::new((100..200).collect::<Vec<u8>>()))).unwrap();
    let mut list = ListBuilder::new();
    list.copy(from.bind(4, 32).unwrap(), to.bind(0, 32).unwrap()).unwrap();
    list.copy(adopted.bind(0, 32).unwrap(), to.bind(32, 32).unwrap()).unwrap();
    device.submit(&list.finish()).unwrap();
    let later = device.read_later(&to, 30, 4).unwrap();
    let mut bytes = [0; 62];
    device.read(&to, 1, &mut bytes).unwrap();
    assert_eq!(bytes.to_vec(), (2..33).chain(100..131).collect::<Vec<u8>>());
    assert_eq!(later.wait().unwrap(), [31, 32, 100, 101]);
    let (list, y) = softmax(&device, 64).unwrap();
    device.submit(&list).unwrap();
    let mut bytes = [0; 256];
    device.read(&y, 0, &mut bytes).unwrap();
    assert!(bytes.as_chunks().0.iter().all(|y| f32::from_ne_bytes(*y) == 1.0 / 64.0), "{bytes:?}");
}

#[test]
fn shared_or_private_memory_is_had_by_choice() {
    for unified_memory in [true, false] {
        let options = SimulatorOptions { unified_memory, ..SimulatorOptions::default() };
        let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
        for (storage, shared) in [(Storage::Automatic, unified_memory), (Storage::Shared, true), (Storage::Private, false)] {
            let buffer = device.allocate_in(64, storage).unwrap();
            assert_eq!(buffer.raw().is_shared(), shared, "{storage:?}");
            device.write(&buffer, 1, &[1, 2, 3]).unwrap();
            let mut seen = Vec::new();
            device.view(&buffer, 2, 2, &mut |bytes| seen = bytes.to_vec()).unwrap();
            assert_eq!(seen, [2u8, 3], "{storage:?}");
        }
        assert_eq!(device.pool_statistics().hits, 0, "memory of one kind is not taken for another");
    }
}

#[test]
fn memory_pressure_frees_unused_memory() {
    let system_memory = SystemMemory::default();
    let options = SimulatorOptions { system_memory: system_memory.clone(), ..SimulatorOptions::default() };
    let device = Device::new(MetalBackend::new(Simulated::new(options).unwrap(), DeviceKind::MetalSim));
    let (list, y) = softmax(&device, 64).unwrap();
    drop(device.allocate(1 << 20).unwrap());
    for pressure in [MemoryPressure::Warning, MemoryPressure::Critical] {
        let completion = device.submit(&list).unwrap();
        system_memory.raise(pressure);
        assert_eq!(device.pool_statistics().cached_bytes, 0, "{pressure:?}");
        completion.wait().unwrap();
        let mut bytes = [0; 256];
        device.read(&y, 0, &mut bytes).unwrap();
        assert!(bytes.as_chunks().0.iter().all(|y| f32::from_ne_bytes(*y) == 1.0 / 64.0), "{pressure:?}");
        drop(softmax(&device, 64).unwrap());
        assert!(device.pool_statistics().cached_bytes > 0);
    }
    drop((list, y, device));
    system_memory.raise(MemoryPressure::Critical);
}
