//! The container: a list of functions, and sections that it refers to.

use elinvar_core::{Error, Result};

use crate::bitstream::Parsed;

const MAGIC: &[u8] = b"MTLB";
/// Where the header ends, at least.
const HEADER: usize = 88;

/// The functions of a file's Metal libraries.
#[derive(Clone, Debug)]
pub struct Library<'a> {
    name: String,
    functions: Vec<Function<'a>>,
    libraries: usize,
}

/// A compiled function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// The name that the host asks for.
    pub name: &'a str,
    /// What it is compiled for.
    pub kind: FunctionKind,
    /// Version of the intermediate representation: major, minor.
    pub air_version: [u16; 2],
    /// Version of Metal Shading Language: major, minor.
    pub language_version: [u16; 2],
    /// The constants that a pipeline is made with.
    pub constants: Vec<FunctionConstant<'a>>,
    /// LLVM bitcode.
    pub bitcode: &'a [u8],
    /// The library that it is in.
    pub library: &'a [u8],
}

/// What a function is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// Of a render pipeline: vertices.
    Vertex,
    /// Of a render pipeline: fragments.
    Fragment,
    /// A compute kernel.
    Kernel,
    /// Called by others.
    Visible,
    /// Declared in this library and defined in another.
    External,
    /// Of ray tracing.
    Intersection,
    /// Of a render pipeline: meshes.
    Mesh,
    /// Of a render pipeline: objects.
    Object,
    /// A number that this reader has no name for.
    Other(u8),
}

impl FunctionKind {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Vertex,
            1 => Self::Fragment,
            2 => Self::Kernel,
            4 => Self::Visible,
            5 => Self::External,
            6 => Self::Intersection,
            7 => Self::Mesh,
            8 => Self::Object,
            other => Self::Other(other),
        }
    }

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vertex => "vertex",
            Self::Fragment => "fragment",
            Self::Kernel => "kernel",
            Self::Visible => "visible",
            Self::External => "external",
            Self::Intersection => "intersection",
            Self::Mesh => "mesh",
            Self::Object => "object",
            Self::Other(_) => "other",
        }
    }
}

/// A constant whose value is given when a pipeline is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionConstant<'a> {
    /// The variable's name.
    pub name: &'a str,
    /// The index in `[[function_constant(index)]]`.
    pub index: u16,
    /// The type.
    pub kind: ConstantType,
}

/// The type of a function constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the type of the same name")]
pub enum ConstantType {
    Float,
    Half,
    Int,
    Uint,
    Short,
    Ushort,
    Char,
    Uchar,
    Bool,
    Long,
    Ulong,
    /// Another one, by its number in Metal's `MTLDataType`: vectors, mostly.
    Other(u8),
}

impl ConstantType {
    fn of(number: u8) -> Self {
        match number {
            3 => Self::Float,
            16 => Self::Half,
            29 => Self::Int,
            33 => Self::Uint,
            37 => Self::Short,
            41 => Self::Ushort,
            45 => Self::Char,
            49 => Self::Uchar,
            53 => Self::Bool,
            81 => Self::Long,
            85 => Self::Ulong,
            other => Self::Other(other),
        }
    }

    /// The name in Metal Shading Language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Half => "half",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Short => "short",
            Self::Ushort => "ushort",
            Self::Char => "char",
            Self::Uchar => "uchar",
            Self::Bool => "bool",
            Self::Long => "long",
            Self::Ulong => "ulong",
            Self::Other(_) => "other",
        }
    }
}

impl<'a> Library<'a> {
    /// Reads a library, or all that lie in another file such as a shared library; `name` is what messages call the file.
    ///
    /// # Errors
    /// No library is in the file, or it contradicts itself.
    pub fn read(name: &str, file: &'a [u8]) -> Result<Self> {
        let mut library = Self { name: name.to_owned(), functions: Vec::new(), libraries: 0 };
        if is_library(file) {
            library.add(file).map_err(|found| invalid(name, found))?;
            return Ok(library);
        }
        let mut at = 0;
        while let Some(found) = file.get(at..).and_then(position) {
            at += found + MAGIC.len();
            // The four letters may stand anywhere: only what begins with a sound header is a library.
            let Some(container) = file.get(at - MAGIC.len()..).and_then(whole) else { continue };
            library.add(container).map_err(|found| invalid(name, found))?;
            at += container.len() - MAGIC.len();
        }
        if library.libraries == 0 {
            return Err(Error::invalid_data(format!("{name} holds no Metal library: no `MTLB` is in it")));
        }
        Ok(library)
    }

    /// How many libraries the file holds.
    pub fn libraries(&self) -> usize {
        self.libraries
    }

    /// The functions in order.
    pub fn functions(&self) -> &[Function<'a>] {
        &self.functions
    }

    /// The function of that name.
    ///
    /// # Errors
    /// There is none: the message names similar ones.
    pub fn function(&self, name: &str) -> Result<&Function<'a>> {
        self.functions.iter().find(|function| function.name == name).ok_or_else(|| {
            let mut similar: Vec<_> = self.functions.iter().map(|function| (common_prefix(function.name, name), function.name)).collect();
            similar.sort_by(|a, b| b.cmp(a));
            let shown: Vec<_> = similar.into_iter().take(3).map(|(_, name)| name).collect();
            let similar = if shown.is_empty() {
                "it has none".to_owned()
            } else {
                format!("of its {}, the nearest are {}", self.functions.len(), shown.join(", "))
            };
            Error::invalid_argument(format!("{} has no function `{name}`: {similar}", self.name))
        })
    }

    fn add(&mut self, container: &'a [u8]) -> Parsed<()> {
        let sections = Sections::read(container)?;
        let mut list = sections.functions;
        let count = u32::from_le_bytes(take(&mut list)?);
        for _ in 0..count {
            let length = u32::from_le_bytes(take(&mut list)?) as usize;
            let entry = length.checked_sub(4).and_then(|length| list.split_at_checked(length)).ok_or("the list of functions is not complete")?;
            list = entry.1;
            self.functions.push(function(entry.0, &sections)?);
        }
        self.libraries += 1;
        Ok(())
    }
}

fn invalid(name: &str, found: &str) -> Error {
    Error::invalid_data(format!("{name} is no sound Metal library: {found}"))
}

fn is_library(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// Whether a file is a Metal library, or an application or shared library of Apple's systems, which may hold some.
pub fn is_compiled(file: &[u8]) -> bool {
    const MACH_O: [u32; 6] = [0xfeed_face, 0xcefa_edfe, 0xfeed_facf, 0xcffa_edfe, 0xcafe_babe, 0xbeba_feca];
    let magic = file.first_chunk().map(|magic| u32::from_be_bytes(*magic));
    is_library(file) || magic.is_some_and(|magic| MACH_O.contains(&magic))
}

fn position(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC.len()).position(|window| window == MAGIC)
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// The library that begins here, if its header is sound.
fn whole(bytes: &[u8]) -> Option<&[u8]> {
    let size = usize::try_from(word(bytes, 16)?).ok()?;
    let container = bytes.get(..size)?;
    Sections::read(container).is_ok().then_some(container)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Parsed<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk().ok_or("a list is not complete")?;
    *bytes = rest;
    Ok(*taken)
}

fn range(start: u64, bytes: u64) -> Option<std::ops::Range<usize>> {
    Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(bytes)?).ok()?)
}

struct Sections<'a> {
    library: &'a [u8],
    functions: &'a [u8],
    public: &'a [u8],
    bitcode: &'a [u8],
}

impl<'a> Sections<'a> {
    fn read(container: &'a [u8]) -> Parsed<Self> {
        let size = word(container, 16).filter(|_| container.len() >= HEADER).ok_or("its header is not complete")?;
        if size > container.len() as u64 {
            return Err("it is cut short");
        }
        let section = |at: usize| {
            let (start, bytes) = word(container, at).zip(word(container, at + 8))?;
            container.get(range(start, bytes)?)
        };
        // The size of the list does not count the number that it begins with.
        let functions = word(container, 24).and_then(|start| container.get(usize::try_from(start).ok()?..));
        let found = functions.zip(section(40)).zip(section(72));
        let ((functions, public), bitcode) = found.ok_or("a section lies beyond its end")?;
        Ok(Self { library: container, functions, public, bitcode })
    }
}

/// Tags of four letters with their bytes, up to `ENDT`.
fn tags(mut entry: &[u8]) -> impl Iterator<Item = Parsed<([u8; 4], &[u8])>> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let mut next = || {
            let tag: [u8; 4] = take(&mut entry)?;
            if &tag == b"ENDT" {
                return Ok(None);
            }
            let length = u16::from_le_bytes(take(&mut entry)?);
            let (bytes, rest) = entry.split_at_checked(length.into()).ok_or("a tag lies beyond its entry")?;
            entry = rest;
            Ok(Some((tag, bytes)))
        };
        let next = next().transpose();
        ended = !matches!(next, Some(Ok(_)));
        next
    })
}

fn function<'a>(entry: &'a [u8], sections: &Sections<'a>) -> Parsed<Function<'a>> {
    let (mut name, mut kind, mut versions, mut offsets, mut size) = (None, None, [0; 4], None, None);
    for tag in tags(entry) {
        let (tag, bytes) = tag?;
        match &tag {
            b"NAME" => name = Some(text(bytes)?),
            b"TYPE" => kind = bytes.first().copied(),
            b"VERS" => {
                for (version, bytes) in versions.iter_mut().zip(bytes.chunks_exact(2)) {
                    *version = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
            b"OFFT" => offsets = word(bytes, 0).zip(word(bytes, 16)),
            b"MDSZ" => size = word(bytes, 0),
            _ => {}
        }
    }
    let [air_major, air_minor, language_major, language_minor] = versions;
    let (public, start) = offsets.ok_or("a function has no offsets")?;
    let bitcode = size.and_then(|size| range(start, size)).and_then(|range| sections.bitcode.get(range));
    Ok(Function {
        name: name.ok_or("a function has no name")?,
        kind: FunctionKind::of(kind.ok_or("a function has no type")?),
        air_version: [air_major, air_minor],
        language_version: [language_major, language_minor],
        constants: usize::try_from(public).ok().and_then(|at| sections.public.get(at..)).map_or(Ok(Vec::new()), constants)?,
        bitcode: bitcode.ok_or("a function's bitcode lies beyond its section")?,
        library: sections.library,
    })
}

/// The function constants in a function's public metadata.
fn constants(mut public: &[u8]) -> Parsed<Vec<FunctionConstant<'_>>> {
    let mut constants = Vec::new();
    if public.is_empty() {
        return Ok(constants);
    }
    // The size, which some versions of the linker count without its own four bytes.
    let _: [u8; 4] = take(&mut public)?;
    for tag in tags(public) {
        let (tag, mut bytes) = tag?;
        if &tag != b"CNST" {
            continue;
        }
        for _ in 0..u16::from_le_bytes(take(&mut bytes)?) {
            let end = bytes.iter().position(|byte| *byte == 0).ok_or("a constant's name does not end")?;
            let (name, rest) = bytes.split_at(end + 1);
            bytes = rest;
            let [kind, low, high, _] = take(&mut bytes)?;
            constants.push(FunctionConstant { name: text(name)?, index: u16::from_le_bytes([low, high]), kind: ConstantType::of(kind) });
        }
    }
    Ok(constants)
}

fn text(bytes: &[u8]) -> Parsed<&str> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| "a name is not UTF-8")
}
