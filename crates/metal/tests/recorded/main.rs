//! What the Metal device makes of command lists, over objects that only write it down.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod decoding;
mod memory;
mod pipelines;
mod recorder;
mod submissions;

use std::sync::Arc;

use elinvar_core::{
    Access, Binding, Buffer, CommandList, DType, Device, DeviceKind, Dispatch, Extent, Grid, KernelKey, KernelSource, ListBuilder, METAL_VERSION,
    Metal, MetalCode, Parameter, Pipeline, Result, UserMetal,
};
use elinvar_metal::{BatchLimits, MetalBackend};
use recorder::{Recorder, State};

pub(crate) fn open(limits: BatchLimits) -> (Device, Arc<State>) {
    let recorder = Recorder::default();
    let state = recorder.0.clone();
    (Device::new(MetalBackend::new(recorder, DeviceKind::Metal).with_batch_limits(limits)), state)
}

pub(crate) fn source(name: &str, accesses: &[Access]) -> Arc<KernelSource> {
    source_with(name, accesses, false)
}

/// A user's text in that version of Metal.
pub(crate) fn user_source(name: &str, text: &str, version: u32) -> Arc<KernelSource> {
    let mut source = (*source(name, &[Access::Write])).clone();
    if let Some(Metal::User(metal)) = &source.metal {
        source.metal = Some(Metal::User(Arc::new(UserMetal { code: MetalCode::Text(text.to_owned()), version, ..(**metal).clone() })));
    }
    Arc::new(source)
}

pub(crate) fn source_with(name: &str, accesses: &[Access], fast_math: bool) -> Arc<KernelSource> {
    let parameter = |(index, &access): (usize, &Access)| {
        let name = ["a", "b", "c", "d", "e", "f"][index].into();
        Parameter { name, access, dtype: DType::U8, optional: false, prefetched: false }
    };
    let text = UserMetal {
        name: "test.metal".into(),
        code: MetalCode::Text(format!("kernel void {name}() {{}}")),
        kernel: name.to_owned(),
        constants: Vec::new(),
        fast_math,
        version: METAL_VERSION,
        buffers: (0..accesses.len() as u32).collect(),
        threadgroup: Vec::new(),
        rejections: Vec::new(),
        registers: None,
    };
    let parameters = accesses.iter().enumerate().map(parameter).collect();
    let (key, metal) = (KernelKey::new(name.to_owned(), &[]), Some(Metal::User(Arc::new(text))));
    Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal, native: None })
}

pub(crate) fn dispatch(pipeline: &Pipeline, bindings: &[Binding], threads: u32) -> Dispatch {
    let bindings = bindings.iter().cloned().map(Some).collect();
    let (grid, threadgroup) = (Grid::Threadgroups([1, 1, 1]), Extent::linear(threads));
    Dispatch { pipeline: pipeline.clone(), bindings, params: [].into(), grid, threadgroup, threadgroup_memory: Vec::new(), work: Default::default() }
}

/// A list of launches `read → written`.
pub(crate) fn chain(device: &Device, ranges: &[(Binding, Binding)]) -> Result<Arc<CommandList>> {
    let pipeline = device.prepare(&source("step", &[Access::Read, Access::Write]))?;
    let mut list = ListBuilder::new();
    for (from, to) in ranges {
        list.dispatch(dispatch(&pipeline, &[from.clone(), to.clone()], 32), device.properties())?;
    }
    Ok(list.finish())
}

pub(crate) fn whole(buffer: &Buffer) -> Binding {
    buffer.bind(0, buffer.bytes()).unwrap()
}
