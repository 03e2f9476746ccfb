//! What the checks found.

use std::{fmt, ops::AddAssign};

use elinvar_msl::Location;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $shown:literal;)*) => {
        /// The kinds of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingKind { $($(#[$doc])* $name,)* }

        impl FindingKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name reports use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $shown,)* }
            }
        }
    };
}

kinds! {
    /// A read beyond a buffer, a binding's range, or threadgroup memory.
    OutOfBoundsRead = "out-of-bounds-read";
    /// A write beyond a buffer, a binding's range, or threadgroup memory.
    OutOfBoundsWrite = "out-of-bounds-write";
    /// An access through a pointer to nothing the dispatch was given.
    InvalidPointer = "invalid-pointer";
    /// A write to constant memory, or through a buffer the kernel declares read-only.
    WriteToConstant = "write-to-constant";
    /// Two accesses that nothing orders, one of them a write.
    DataRace = "data-race";
    /// A read of device or threadgroup memory that nothing wrote.
    UninitialisedRead = "uninitialised-read";
    /// An access at an address its type does not allow.
    MisalignedAccess = "misaligned-access";
    /// An index beyond an array of known size.
    ArrayBounds = "array-bounds";
    /// A shift by a negative amount, or by the type's width or more.
    ShiftOverflow = "shift-overflow";
    /// An integer division by zero, or one whose quotient does not fit.
    IntegerDivision = "integer-division";
    /// A barrier that not all threads reach, or two different ones at once.
    DivergentBarrier = "divergent-barrier";
    /// A simdgroup operation that not all lanes of the simdgroup take part in.
    DivergentSimd = "divergent-simd";
    /// More threadgroup memory than a device has.
    ThreadgroupMemory = "threadgroup-memory";
    /// A threadgroup that ran longer than the limit.
    TimeLimit = "time-limit";
    /// A thread's stack overflowed, which unbounded recursion or huge arrays do.
    StackOverflow = "stack-overflow";
    /// A fault of the processor, in a kernel compiled without checks.
    Fault = "fault";
    /// Bytes of an output that the dispatch did not write.
    UnwrittenOutput = "unwritten-output";
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The earlier of two accesses that race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAccess {
    /// Where it is in the source, if that is known.
    pub at: Option<Location>,
    /// The kernel, which may be another dispatch's.
    pub kernel: String,
    /// The thread in its threadgroup.
    pub thread: [u32; 3],
    /// The threadgroup in the grid.
    pub threadgroup: [u32; 3],
}

/// One thing found. Equal findings of many threads are one, with a count; the ids are of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The kernel's name.
    pub kernel: String,
    /// Where it is in the source, if that is known.
    pub at: Option<Location>,
    /// The thread in its threadgroup.
    pub thread: [u32; 3],
    /// The threadgroup in the grid.
    pub threadgroup: [u32; 3],
    /// The buffer or threadgroup variable.
    pub buffer: Option<String>,
    /// Byte offset in it.
    pub offset: Option<i64>,
    /// What happened, in words.
    pub message: String,
    /// The other access of a race.
    pub other: Option<OtherAccess>,
    /// How often it was met.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} ", shown(&self.at), self.kind, self.message)?;
        write!(f, "[kernel `{}`, thread {}, threadgroup {}", self.kernel, id(self.thread), id(self.threadgroup))?;
        if let Some(other) = &self.other {
            write!(f, "; with {} by thread {} of threadgroup {}", shown(&other.at), id(other.thread), id(other.threadgroup))?;
            if other.kernel != self.kernel {
                write!(f, " of kernel `{}`", other.kernel)?;
            }
        }
        if self.count > 1 {
            write!(f, "; {} times", self.count)?;
        }
        f.write_str("]")
    }
}

fn shown(at: &Option<Location>) -> String {
    at.as_ref().map_or_else(|| "unknown line".to_owned(), Location::to_string)
}

fn id([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

/// What a dispatch did with a buffer it may write (checked dispatches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferUse {
    /// The dispatch's place among the command buffer's dispatches.
    pub dispatch: usize,
    /// The index it was bound to.
    pub index: u32,
    /// Whether any byte was read.
    pub read: bool,
    /// Whether any byte was written.
    pub written: bool,
}

/// Reads and writes of one kind of memory, each of a thread's counted on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Loads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Stores.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
    }
}

/// What checked dispatches asked of a GPU. Accesses are those of the compiled text: what the optimiser dropped or joined is not counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Buffers, without the bytes that a dispatch brings itself.
    pub device: Traffic,
    /// Threadgroup memory.
    pub threadgroup: Traffic,
    /// Products of simdgroup matrices, 8 · 8 · 8 multiply-adds each.
    pub matrix_products: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.threadgroup += other.threadgroup;
        self.matrix_products += other.matrix_products;
    }
}

/// What a command buffer did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Everything found, in order of dispatch and line.
    pub findings: Vec<Finding>,
    /// GPU threads run.
    pub threads: u64,
    /// Switches from one GPU thread to another at barriers and simdgroup operations.
    pub switches: u64,
    /// Memory traffic and matrix products of checked dispatches.
    pub counters: Counters,
    /// The uses of buffers that checked dispatches may write.
    pub uses: Vec<BufferUse>,
    /// Whether a dispatch was stopped before its end, after too many findings or too much time; later commands were not executed.
    pub stopped: bool,
}
