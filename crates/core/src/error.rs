use std::{error, fmt, sync::Arc};

/// The result of everything fallible in Elinvar.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the few kinds a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device (or the limit set for it) has too little memory.
    OutOfMemory,
    /// The device stopped working; buffers on it are gone.
    DeviceLost,
    /// No such device here.
    DeviceUnavailable,
    /// A kernel did not compile.
    CompileFailed,
    /// A command contradicts its buffers, its kernel's signature or the device's limits.
    InvalidLaunch,
    /// A shape, data type, attribute or value given by the caller does not fit.
    InvalidArgument,
    /// The request is sound but this device, data type or file version does not offer it.
    Unsupported,
    /// A file or a byte stream is damaged or contradicts itself.
    InvalidData,
    /// The operating system failed to read or write.
    Io,
    /// Elinvar contradicts itself: a fault of its own, to be reported.
    Internal,
}

/// An error: opaque, cheap to clone, with predicates for the kinds a caller may want to distinguish.
///
/// Its message is one line: what was asked, what was found, and what to do.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident, $is:ident;)*) => {
        impl Error {
            $(
                $(#[$doc])*
                pub fn $name(message: impl Into<String>) -> Self { Self::new(ErrorKind::$kind, message) }
                #[doc = concat!("Whether the kind is [`ErrorKind::", stringify!($kind), "`].")]
                pub fn $is(&self) -> bool { self.0.kind == ErrorKind::$kind }
            )*
        }
    };
}

constructors! {
    /// Too little memory.
    out_of_memory => OutOfMemory, is_out_of_memory;
    /// The device stopped working.
    device_lost => DeviceLost, is_device_lost;
    /// No such device here.
    device_unavailable => DeviceUnavailable, is_device_unavailable;
    /// A kernel did not compile.
    compile_failed => CompileFailed, is_compile_failed;
    /// A command that cannot be executed.
    invalid_launch => InvalidLaunch, is_invalid_launch;
    /// An argument that does not fit.
    invalid_argument => InvalidArgument, is_invalid_argument;
    /// Something this device or version does not offer.
    unsupported => Unsupported, is_unsupported;
    /// Damaged or contradictory data.
    invalid_data => InvalidData, is_invalid_data;
    /// A rejected read or write.
    io => Io, is_io;
    /// A contradiction in Elinvar itself.
    internal => Internal, is_internal;
}

impl Error {
    /// An error of `kind` with a one-line `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), source: None }))
    }

    /// The same with the error that caused it, shown after the message.
    pub fn with_source(kind: ErrorKind, message: impl Into<String>, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), source: Some(source.into()) }))
    }

    /// Puts `context` (a file, an operator, a tensor's name) before the message, keeping the kind.
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self::new(self.kind(), format!("{context}: {self}"))
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_keeps_the_kind_and_the_cause() {
        let io = std::io::Error::other("disk on fire");
        let error = Error::with_source(ErrorKind::Io, "cannot read weights", io).context("model.safetensors");
        assert!(error.is_io());
        assert_eq!(error.to_string(), "model.safetensors: cannot read weights: disk on fire");
    }
}
