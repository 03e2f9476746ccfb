use std::sync::Arc;

use elinvar_core::{
    Buffer, CommandList, DType, Device, Dispatch, Extent, Grid, HostForm, HostKernel, KernelKey, KernelSource, ListBuilder, Parameter,
};

/// A list that runs `host` over one updated buffer.
pub(crate) fn list(device: &Device, operator: &'static str, host: HostKernel, buffer: &Buffer) -> Arc<CommandList> {
    let key = KernelKey::new(operator, &[DType::F32]);
    let source = Arc::new(KernelSource {
        key,
        parameters: vec![Parameter::update("x", DType::F32)],
        params_bytes: 0,
        host: Some(HostForm::Kernel(host)),
        metal: None,
        native: None,
    });
    let pipeline = device.pipeline(&source).unwrap();
    let one = Extent::linear(1);
    let bindings = vec![Some(buffer.bind(0, buffer.bytes()).unwrap())];
    let mut list = ListBuilder::new();
    let dispatch = Dispatch {
        pipeline,
        bindings,
        params: [].into(),
        grid: Grid::Threadgroups(one.0),
        threadgroup: one,
        threadgroup_memory: Vec::new(),
        work: Default::default(),
    };
    list.dispatch(dispatch, device.properties()).unwrap();
    list.finish()
}
