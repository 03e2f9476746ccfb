use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elinvar_core::{
    Access, Backend, Binding, Command, CommandList, Completion, DType, DeviceKind, DeviceMemory, DeviceProperties, Dispatch, Error, InFlight,
    KernelSource, MemoryInfo, Metal, Pipeline, RawBuffer, Reading, Result, Signal, Storage,
};

use crate::{
    api::{Api, Bound, Launch, LibrarySource},
    refusal::{self, Refusals},
};

/// The Metal backend over one implementation of Metal's objects.
pub struct MetalBackend<A: Api> {
    api: Arc<A>,
    properties: DeviceProperties,
    texts: HashMap<String, String>,
    in_flight: Mutex<InFlight>,
}

struct Memory<A: Api> {
    buffer: A::Buffer,
    bytes: usize,
}

impl<A: Api> DeviceMemory for Memory<A> {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<A: Api> MetalBackend<A> {
    /// The backend of a device.
    pub fn new(api: A, kind: DeviceKind) -> Self {
        let facts = api.facts();
        let properties = DeviceProperties {
            kind,
            name: facts.name,
            compute_units: facts.compute_units,
            simd_width: 32,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: facts.threadgroup_memory,
            max_buffer_bytes: facts.max_buffer_bytes,
            unified_memory: facts.unified_memory,
            dtypes: DType::ALL,
            compute_capability: None,
            matrix_library: false,
        };
        Self { api: Arc::new(api), properties, texts: HashMap::new(), in_flight: Mutex::default() }
    }

    /// The same with other texts for some files of the kernels, by name: for work on kernels without a rebuild, and for mutation tests.
    pub fn with_texts(self, texts: HashMap<String, String>) -> Self {
        Self { texts, ..self }
    }

    /// Metal's objects.
    pub fn api(&self) -> &A {
        &self.api
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode(&self, commands: &mut A::CommandBuffer, command: &Command, refusals: Option<&mut Refusals<A>>) -> Result<()> {
        match command {
            Command::Dispatch(dispatch) => {
                self.encode_dispatch(commands, dispatch, refusals).map_err(|e| e.context(&dispatch.pipeline.source().key))?
            }
            Command::Copy(copy) => {
                let (from, to) = (buffer::<A>(&copy.source)?, buffer::<A>(&copy.destination)?);
                self.api.copy(commands, (from, copy.source.offset()), (to, copy.destination.offset()), copy.source.bytes())?;
            }
            Command::Fill(fill) => {
                let to = &fill.destination;
                self.api.fill(commands, (buffer::<A>(to)?, to.offset()), to.bytes(), fill.value)?;
            }
        }
        Ok(())
    }

    fn encode_dispatch(&self, commands: &mut A::CommandBuffer, dispatch: &Dispatch, refusals: Option<&mut Refusals<A>>) -> Result<()> {
        let source = dispatch.pipeline.source();
        let metal = metal_of(source)?;
        let pipeline: &A::Pipeline = dispatch.pipeline.state().ok_or_else(|| Error::invalid_launch("the kernel was prepared by another device"))?;
        let mut buffers = Vec::with_capacity(dispatch.bindings.len());
        for (index, (binding, parameter)) in dispatch.bindings.iter().zip(&source.parameters).enumerate() {
            if let Some(binding) = binding {
                buffers.push(Bound {
                    index: metal.buffer_index(index),
                    buffer: buffer::<A>(binding)?,
                    offset: binding.offset(),
                    bytes: binding.bytes(),
                    written: parameter.access.writes(),
                    output: parameter.access == Access::Write,
                });
            }
        }
        if let Some(refusals) = refusals.filter(|_| refusal::why(&dispatch.pipeline).is_some()) {
            buffers.push(refusals.bind(dispatch.bindings.len() + usize::from(!dispatch.params.is_empty())));
        }
        let bytes = (!dispatch.params.is_empty()).then_some((dispatch.bindings.len(), dispatch.params.as_slice()));
        let threadgroup_memory = dispatch.threadgroup_memory.iter().enumerate().map(|(i, &bytes)| (metal.threadgroup_index(i), bytes)).collect();
        let (grid, threadgroup) = (dispatch.grid, dispatch.threadgroup);
        self.api.launch(commands, &Launch { pipeline, buffers, bytes, threadgroup_memory, grid, threadgroup })
    }
}

fn metal_of(kernel: &KernelSource) -> Result<&Metal> {
    kernel.metal.as_ref().ok_or_else(|| Error::unsupported(format!("{} has no Metal text", kernel.key)))
}

fn buffer<A: Api>(binding: &Binding) -> Result<&A::Buffer> {
    Ok(&binding.buffer().raw().downcast::<Memory<A>>()?.buffer)
}

impl<A: Api> Backend for MetalBackend<A> {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> MemoryInfo {
        self.api.memory()
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        Ok(RawBuffer::new(Memory::<A> { buffer: self.api.buffer(bytes)?, bytes }))
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.in_flight().settle()?;
        self.api.write(&buffer.downcast::<Memory<A>>()?.buffer, offset, bytes)
    }

    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.in_flight().settle()?;
        self.api.read(&buffer.downcast::<Memory<A>>()?.buffer, offset, bytes)
    }

    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        // What is submitted next may write the range: a copy keeps it as it is.
        let (api, copy, signal) = (self.api.clone(), self.api.buffer(bytes)?, Signal::new());
        let mut encoded = self.api.command_buffer()?;
        self.api.copy(&mut encoded, (&buffer.downcast::<Memory<A>>()?.buffer, offset), (&copy, 0), bytes)?;
        self.in_flight().push(signal.clone());
        let told = signal.clone();
        self.api.commit(encoded, Box::new(move |result| told.complete(result)));
        Ok(Reading::new(Completion::new(signal), move || {
            let mut read = vec![0; bytes];
            api.read(&copy, 0, &mut read)?;
            Ok(read)
        }))
    }

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        let metal = metal_of(kernel)?;
        let name = metal.kernel(&kernel.key);
        let text = metal.text(&kernel.key, |file| self.texts.get(file.name).map_or(file.text, String::as_str));
        let library = self.api.library(LibrarySource { name: &name, text: &text, fast_math: metal.fast_math() })?;
        let pipeline = self.api.pipeline(&library, &name, metal.constants())?;
        Ok(Pipeline::new(kernel.clone(), Arc::new(pipeline)))
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        let mut encoded = self.api.command_buffer()?;
        let mut refusals = Refusals::new(&*self.api, commands)?;
        commands.commands().iter().try_for_each(|command| self.encode(&mut encoded, command, refusals.as_mut()))?;
        let signal = Signal::new();
        self.in_flight().push(signal.clone());
        let (list, told, api) = (commands.clone(), signal.clone(), self.api.clone());
        self.api.commit(
            encoded,
            Box::new(move |result| {
                let result = result.and_then(|()| refusals.map_or(Ok(()), |r| r.check(&api)));
                // The list's buffers go back to the pool, and the device's objects are let go, before anyone learns that it is done.
                drop((list, api));
                told.complete(result);
            }),
        );
        Ok(Completion::new(signal))
    }
}
