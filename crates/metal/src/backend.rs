use std::{
    borrow::Cow,
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use elinvar_core::{
    Activity, Backend, CommandList, Completion, DType, DeviceKind, DeviceProperties, Error, HostMemory, InFlight, KernelSource, MemoryInfo, Metal,
    MetalCode, MetalFile, Pipeline, ProfileEvent, ProfileLog, RawBuffer, Reading, Relief, Result, Signal, Storage,
};

use crate::{
    api::{Api, LibrarySource, StorageMode},
    capture,
    compile::Pipelines,
    encode::Encoder,
    error_flag::ErrorFlags,
    hazards::Hazards,
    memory::{Memory, check_working_set},
    residency::Residency,
    staging::Staging,
    submission::{Batch, BatchLimits, Pending, Timed, done},
};

/// Heads the text of strict kernels: Metal's math mode *safe* still contracts a product and a sum of one expression.
/// Each of the three spellings is one that some version of the compiler reads.
pub(crate) const STRICT: &str = "#pragma METAL fp contract(off)\n#pragma clang fp contract(off)\n#pragma STDC FP_CONTRACT OFF\n";

/// The Metal backend over one implementation of Metal's objects.
pub struct MetalBackend<A: Api> {
    /// Ends before what it captures goes.
    _capture: Option<A::Capture>,
    pub(crate) api: Arc<A>,
    properties: DeviceProperties,
    texts: HashMap<String, String>,
    limits: BatchLimits,
    pipelines: Pipelines<A>,
    encoder: Encoder<A>,
    residency: Arc<Residency<A>>,
    pressure: OnceLock<A::PressureWatch>,
    in_flight: Mutex<InFlight<Signal>>,
    lost: Arc<OnceLock<Error>>,
    /// The list that was checked last: what is replayed does not change.
    checked: AtomicU64,
    profile: Arc<ProfileLog>,
}

impl<A: Api> MetalBackend<A> {
    /// The backend of a device.
    pub fn new(api: A, kind: DeviceKind) -> Self {
        let info = api.info();
        let (pipelines, encoder) = (Pipelines::new(&info), Encoder::new(&info));
        let properties = DeviceProperties {
            kind,
            name: info.name,
            compute_units: info.compute_units,
            simd_width: 32,
            max_threads_per_threadgroup: info.max_threads,
            threadgroup_memory: info.threadgroup_memory,
            max_buffer_bytes: info.max_buffer_bytes,
            unified_memory: info.unified_memory,
            dtypes: DType::ALL,
            features: None,
        };
        let api = Arc::new(api);
        Self {
            residency: Residency::new(api.clone()),
            api,
            properties,
            texts: HashMap::new(),
            limits: BatchLimits::default(),
            pipelines,
            encoder,
            pressure: OnceLock::new(),
            in_flight: Mutex::default(),
            lost: Arc::default(),
            checked: AtomicU64::default(),
            profile: Arc::default(),
            _capture: None,
        }
    }

    /// The same with other texts for some files of the kernels, by name: for work on kernels without a rebuild, and for mutation tests.
    pub fn with_texts(self, texts: HashMap<String, String>) -> Self {
        Self { texts, ..self }
    }

    /// The same with other limits to what one command buffer holds.
    pub fn with_batch_limits(self, limits: BatchLimits) -> Self {
        Self { limits, ..self }
    }

    /// The same with kernels' machine code kept in `folder` (none means the user's cache folder), to be found by the next start.
    /// Where the folder cannot be made, every start compiles.
    pub fn with_archives(self, folder: Option<&Path>) -> Self {
        Self { pipelines: self.pipelines.with_archives(folder), ..self }
    }

    /// The same with all that the device does from now on captured for Xcode, if `ELINVAR_METAL_CAPTURE` names a file in the environment given.
    ///
    /// # Errors
    /// Captures are not allowed (`MTL_CAPTURE_ENABLED=1` allows them), or the file cannot be made.
    pub fn with_capture(self, environment: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let begin = |file: PathBuf| self.api.scope(|| self.api.capture(&file));
        let capture = capture::file(&environment)?.map(begin).transpose()?;
        Ok(Self { _capture: capture, ..self })
    }

    /// Metal's objects.
    pub fn api(&self) -> &A {
        &self.api
    }

    /// Where memory of a storage lies.
    fn mode(&self, storage: Storage) -> StorageMode {
        match storage {
            Storage::Automatic if self.properties.unified_memory => StorageMode::Shared,
            Storage::Shared => StorageMode::Shared,
            Storage::Automatic | Storage::Private => StorageMode::Private,
        }
    }

    pub(crate) fn text_of(&self, file: &MetalFile) -> &str {
        self.texts.get(file.name).map_or(file.text, String::as_str)
    }

    fn buffer(&self, bytes: usize, mode: StorageMode, label: &str) -> Result<A::Buffer> {
        check_working_set(bytes, self.api.memory())?;
        self.api.scope(|| self.api.buffer(bytes, mode, label))
    }

    /// Fills memory that nothing in flight uses.
    fn fill(&self, buffer: &A::Buffer, mode: StorageMode, offset: usize, bytes: &[u8]) -> Result<()> {
        match mode {
            StorageMode::Shared => self.api.write(buffer, offset, bytes),
            StorageMode::Private => self.staging().write((buffer, offset), bytes),
        }
    }

    fn staging(&self) -> Staging<'_, A> {
        Staging { api: &self.api, encoder: &self.encoder, pipelines: &self.pipelines, profile: &self.profile }
    }

    fn in_flight(&self) -> MutexGuard<'_, InFlight<Signal>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a list into as many command buffers as it takes, and commits each as soon as it is full.
    fn encode(&self, list: &CommandList, rejections: &mut Option<ErrorFlags<A>>, pending: &Arc<Pending>) -> Result<()> {
        let (mut commands, label, is_timed) = (list.commands(), list.to_string(), self.profile.is_on());
        let limits = if is_timed { BatchLimits::PROFILED } else { self.limits };
        while let Some(first) = commands.first() {
            let mut encoded = self.api.command_buffer(&label)?;
            let (mut batch, mut hazards, mut taken) = (Batch::default(), Hazards::default(), 0);
            for command in commands {
                if batch.is_full(command, limits) {
                    break;
                }
                if hazards.add(command) {
                    self.api.barrier(&mut encoded);
                }
                self.encoder.encode(&self.api, &self.pipelines, &mut encoded, command, rejections.as_mut())?;
                taken += 1;
            }
            commands = &commands[taken..];
            pending.begin();
            let submitted = pending.clone();
            let timed = is_timed.then(|| Timed { activity: first.activity(), bytes: first.bytes(), list: Some(list.id()) });
            self.api.commit(encoded, done(&self.profile, timed, move |result| submitted.end(result)));
        }
        Ok(())
    }
}

impl<A: Api> Backend for MetalBackend<A> {
    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn memory(&self) -> MemoryInfo {
        self.api.memory()
    }

    fn allocate(&self, bytes: usize, storage: Storage) -> Result<RawBuffer> {
        let mode = self.mode(storage);
        Ok(RawBuffer::new(Memory::<A>::new(self.buffer(bytes, mode, "memory")?, bytes, mode)))
    }

    fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
        let (bytes, mode) = (memory.bytes().len(), self.mode(Storage::Automatic));
        check_working_set(bytes, self.api.memory())?;
        if mode == StorageMode::Shared
            && let Some((buffer, start)) = self.api.scope(|| self.api.adopt(memory.clone()))?
        {
            return Ok(RawBuffer::new(Memory::adopted(buffer, start, bytes, mode, &self.residency)));
        }
        // Pages that the system does not share, such as a program's own constants, are copied.
        let buffer = self.buffer(bytes, mode, "copied memory")?;
        self.fill(&buffer, mode, 0, memory.bytes())?;
        Ok(RawBuffer::new(Memory::adopted(buffer, 0, bytes, mode, &self.residency)))
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let memory = buffer.downcast::<Memory<A>>()?;
        let mut in_flight = self.in_flight();
        in_flight.wait();
        self.fill(&memory.buffer, memory.mode, memory.start + offset, bytes)
    }

    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let memory = buffer.downcast::<Memory<A>>()?;
        let mut in_flight = self.in_flight();
        in_flight.settle()?;
        match memory.mode {
            StorageMode::Shared => self.api.read(&memory.buffer, memory.start + offset, bytes),
            StorageMode::Private => self.staging().read((&memory.buffer, memory.start + offset), bytes),
        }
    }

    fn view(&self, buffer: &RawBuffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let memory = buffer.downcast::<Memory<A>>()?;
        let mut in_flight = self.in_flight();
        in_flight.settle()?;
        match memory.mode {
            StorageMode::Shared => self.api.view(&memory.buffer, memory.start + offset, bytes, see),
            StorageMode::Private => {
                let mut copy = vec![0; bytes];
                self.staging().read((&memory.buffer, memory.start + offset), &mut copy)?;
                see(&copy);
                Ok(())
            }
        }
    }

    fn view_mut(&self, buffer: &RawBuffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let memory = buffer.downcast::<Memory<A>>()?;
        let mut in_flight = self.in_flight();
        in_flight.settle()?;
        match memory.mode {
            StorageMode::Shared => self.api.view_mut(&memory.buffer, memory.start + offset, bytes, change),
            StorageMode::Private => {
                let (mut copy, range) = (vec![0; bytes], (&memory.buffer, memory.start + offset));
                self.staging().read(range, &mut copy)?;
                change(&mut copy);
                self.staging().write(range, &copy)
            }
        }
    }

    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        let memory = buffer.downcast::<Memory<A>>()?;
        self.api.scope(|| {
            // What is submitted next may write the range: a copy keeps it as it is.
            let (api, copy, signal) = (self.api.clone(), self.api.buffer(bytes, StorageMode::Shared, "read later")?, Signal::new());
            let mut in_flight = self.in_flight();
            let mut encoded = api.command_buffer("read later")?;
            let from = (&memory.buffer, memory.start + offset);
            self.encoder.copy(&api, &self.pipelines, &mut encoded, from, (&copy, 0), bytes)?;
            in_flight.push(signal.clone());
            let completed = signal.clone();
            let timed = Timed { activity: Activity::Read, bytes: bytes as u64, list: None };
            api.commit(encoded, done(&self.profile, Some(timed), move |result| completed.complete(result)));
            Ok(Reading::new(Completion::new(signal), move || {
                let mut read = vec![0; bytes];
                api.read(&copy, 0, &mut read)?;
                Ok(read)
            }))
        })
    }

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        let metal = kernel.metal.as_ref().ok_or_else(|| Error::unsupported(format!("{} has no Metal text", kernel.key)))?;
        let name = metal.kernel(&kernel.key);
        let code = match metal.code(&kernel.key, |file| self.text_of(file)) {
            Cow::Owned(MetalCode::Text(text)) if !metal.fast_math() => Cow::Owned(MetalCode::Text(STRICT.to_owned() + &text)),
            Cow::Borrowed(MetalCode::Text(text)) if !metal.fast_math() => Cow::Owned(MetalCode::Text(STRICT.to_owned() + text)),
            code => code,
        };
        let called = match metal {
            Metal::Form(_) => &name,
            Metal::User(user) => &user.name,
        };
        let source = LibrarySource { name: called, code: &code, fast_math: metal.fast_math(), version: metal.version() };
        let compiled = self.api.scope(|| self.pipelines.get(&self.api, source, &name, metal.constants()))?;
        let info = compiled.info;
        Ok(Pipeline::new(kernel.clone(), compiled).with_info(info))
    }

    fn on_memory_pressure(&self, relieve: Relief) {
        self.pressure.get_or_init(|| self.api.scope(|| self.api.watch_pressure(relieve)));
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        self.api.scope(|| {
            if self.checked.load(Relaxed) != commands.id() {
                commands.commands().iter().try_for_each(|command| self.encoder.check(&self.api, command))?;
                self.checked.store(commands.id(), Relaxed);
            }
            self.residency.settle();
            let mut rejections = ErrorFlags::new(&*self.api, commands)?;
            let (signal, pending) = (Signal::new(), Arc::<Pending>::default());
            // Held to the end: what is submitted at the same time comes before or after, not between.
            let mut in_flight = self.in_flight();
            in_flight.push(signal.clone());
            let encoded = self.encode(commands, &mut rejections, &pending);
            let (list, completed, api, lost) = (commands.clone(), signal.clone(), self.api.clone(), self.lost.clone());
            pending.close(Box::new(move |result| {
                let result = result.and_then(|()| rejections.map_or(Ok(()), |r| r.check(&api)));
                if let Err(error) = result.as_ref().map_err(Error::clone)
                    && error.is_device_lost()
                {
                    let _ = lost.set(error);
                }
                // The list's buffers go back to the pool, and the device's objects are released, before the completion is reported.
                drop((list, api));
                completed.complete(result);
            }));
            encoded.map(|()| Completion::new(signal))
        })
    }

    /// Each command has a command buffer of its own meanwhile.
    fn start_profile(&self) -> Result<()> {
        let mut in_flight = self.in_flight();
        in_flight.wait();
        self.profile.start();
        Ok(())
    }

    fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        let mut in_flight = self.in_flight();
        in_flight.wait();
        Ok(self.profile.end())
    }
}
