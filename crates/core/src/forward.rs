/// Methods of [`Backend`](crate::Backend) as those of a field that is another backend: for a backend that differs from it in a few, as tests need.
///
/// ```
/// use elinvar_core::{Backend, CommandList, Completion, Error, NullBackend, Result, forward};
///
/// struct Broken {
///     null: NullBackend,
/// }
///
/// impl Backend for Broken {
///     forward!(null: properties memory allocate write read compile);
///
///     fn submit(&self, _: &std::sync::Arc<CommandList>) -> Result<Completion> {
///         Err(Error::device_lost("on purpose"))
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($to:tt: $($method:ident)*) => {
        $($crate::forward!(@$method $to);)*
    };
    (@properties $to:tt) => {
        fn properties(&self) -> &$crate::DeviceProperties {
            self.$to.properties()
        }
    };
    (@memory $to:tt) => {
        fn memory(&self) -> $crate::MemoryInfo {
            self.$to.memory()
        }
    };
    (@allocate $to:tt) => {
        fn allocate(&self, bytes: usize, storage: $crate::Storage) -> $crate::Result<$crate::RawBuffer> {
            self.$to.allocate(bytes, storage)
        }
    };
    (@adopt $to:tt) => {
        fn adopt(&self, memory: $crate::HostMemory) -> $crate::Result<$crate::RawBuffer> {
            self.$to.adopt(memory)
        }
    };
    (@write $to:tt) => {
        fn write(&self, buffer: &$crate::RawBuffer, offset: usize, bytes: &[u8]) -> $crate::Result<()> {
            self.$to.write(buffer, offset, bytes)
        }
    };
    (@read $to:tt) => {
        fn read(&self, buffer: &$crate::RawBuffer, offset: usize, bytes: &mut [u8]) -> $crate::Result<()> {
            self.$to.read(buffer, offset, bytes)
        }
    };
    (@compile $to:tt) => {
        fn compile(&self, kernel: &::std::sync::Arc<$crate::KernelSource>) -> $crate::Result<$crate::Pipeline> {
            self.$to.compile(kernel)
        }
    };
    (@submit $to:tt) => {
        fn submit(&self, commands: &::std::sync::Arc<$crate::CommandList>) -> $crate::Result<$crate::Completion> {
            self.$to.submit(commands)
        }
    };
}
