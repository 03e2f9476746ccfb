use std::{borrow::Cow, fmt::Write, sync::Arc};

use crate::{cache::CacheKey, dtype::DType, error::Error, key::KernelKey};

/// The version of Metal that texts are compiled as unless they ask for a later one, as `__METAL_VERSION__` has it: 3.1, the first with bfloat.
pub const METAL_VERSION: u32 = 310;

/// A piece of Metal Shading Language text and the name by which compilers' messages call it.
#[derive(Clone, Copy, Debug)]
pub struct MetalFile {
    /// The name, such as `softmax/softmax.metal`.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

/// A kernel's Metal form: a function template and where it is written.
///
/// A kernel is the instance of the template for `arguments`, then the key's data types, then the key's constants.
#[derive(Clone, Copy, Debug)]
pub struct MetalForm {
    /// Files in the order they are read. Together they need nothing but Metal's own headers.
    pub files: &'static [MetalFile],
    /// Name of the function template.
    pub function: &'static str,
    /// Its first template arguments, such as the function object of an elementwise kernel.
    pub arguments: &'static [&'static str],
    /// Whether the compiler may contract and reassociate: for kernels of fast precision alone.
    pub fast_math: bool,
    /// What is wrong with an input that the kernel rejects, if it can: see [`MetalForm::with_error_flag`].
    pub rejection: Option<&'static str>,
    /// Threadgroups in a row that run at once and read each other's memory: a cluster, of more than one on CUDA devices alone.
    pub cluster: u32,
    /// How many registers a thread is to do with, where the device's compiler takes a limit: with fewer, more threads run at once.
    pub registers: Option<u32>,
    /// The files of the same kernel where it delivers its result to the ranks of a group of CUDA devices, or takes a row that is delivered, if it can.
    pub delivering: Option<&'static [MetalFile]>,
}

impl MetalForm {
    /// A strict kernel whose template arguments all come from its key.
    pub const fn new(files: &'static [MetalFile], function: &'static str) -> Self {
        Self { files, function, arguments: &[], fast_math: false, rejection: None, cluster: 1, registers: None, delivering: None }
    }

    /// The same with leading template arguments.
    pub const fn with_arguments(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    /// The same, but the compiler may contract and reassociate.
    pub const fn with_fast_math(self) -> Self {
        Self { fast_math: true, ..self }
    }

    /// The same, but the kernel rejects some inputs, which then fail the submission; `why` says what is wrong with them.
    ///
    /// Its last buffer, after the parameter block, is a `device atomic_uint*` that is zero before the launch and that it raises to
    /// `2^32 - 1 - number`, by atomic maximum, for an element of that number that it rejects: the first one is reported.
    pub const fn with_error_flag(self, why: &'static str) -> Self {
        Self { rejection: Some(why), ..self }
    }

    /// The same in clusters of so many threadgroups, by which the grid is divisible.
    pub const fn in_clusters(self, cluster: u32) -> Self {
        Self { cluster, ..self }
    }

    /// The same, whose threads are to do with so many registers.
    pub const fn with_registers(self, registers: u32) -> Self {
        Self { registers: Some(registers), ..self }
    }

    /// The same, which delivers with these files in place of its own.
    pub const fn with_delivering(self, files: &'static [MetalFile]) -> Self {
        Self { delivering: Some(files), ..self }
    }

    /// The files as one text, which every instance shares; `text_of` gives a file's text.
    pub fn text<'a>(&self, text_of: impl Fn(&MetalFile) -> &'a str) -> String {
        let mut text = String::new();
        for file in self.files {
            let _ = writeln!(text, "#line 1 \"{}\"\n{}", file.name, text_of(file));
        }
        text
    }

    /// The line that instantiates the template for `key` under the key's name; it follows [`MetalForm::text`].
    pub fn instance(&self, key: &KernelKey) -> String {
        let function = self.specialization(key);
        format!("template [[host_name(\"{key}\")]] [[kernel]] decltype({function}) {function};\n")
    }

    fn specialization(&self, key: &KernelKey) -> String {
        let arguments = self.arguments.iter().map(|a| (*a).to_owned());
        let types = key.dtypes.iter().map(|d| metal_type(*d).to_owned());
        let constants = key.constants.iter().map(|(_, value)| value.to_string());
        let all: Vec<_> = arguments.chain(types).chain(constants).collect();
        format!("{}<{}>", self.function, all.join(", "))
    }
}

/// Where a kernel's Metal form comes from.
#[derive(Clone, Debug)]
pub enum Metal {
    /// The library.
    Form(MetalForm),
    /// A user.
    User(Arc<UserMetal>),
}

/// A user's Metal text or compiled library, and which of its kernels is meant.
#[derive(Clone, Debug)]
pub struct UserMetal {
    /// What messages call the text or library.
    pub name: String,
    /// What it is compiled from.
    pub code: MetalCode,
    /// The kernel's name for the host.
    pub kernel: String,
    /// Function constants by index.
    pub constants: Vec<(u32, ConstantValue)>,
    /// Whether the compiler may contract and reassociate.
    pub fast_math: bool,
    /// The version of Metal that a text is compiled as: see [`METAL_VERSION`].
    pub version: u32,
    /// The index in the argument table of each of the kernel's parameters.
    pub buffers: Vec<u32>,
    /// The index in the table of threadgroup memory of each argument of that kind.
    pub threadgroup: Vec<u32>,
    /// What the kernel may find wrong, by the number it reports, as in [`MetalForm::with_error_flag`]; empty for a kernel that rejects nothing.
    pub rejections: Vec<String>,
    /// How many registers a thread is to do with, where the device's compiler takes a limit: with fewer, more threads run at once.
    pub registers: Option<u32>,
}

/// What kernels are compiled from.
#[derive(Clone, Debug)]
pub enum MetalCode {
    /// A text, preprocessed.
    Text(String),
    /// A library that Apple's compiler has made.
    Library(CompiledMetal),
}

/// The bytes of a file that Metal libraries are in, which clones share.
#[derive(Clone, Debug)]
pub struct CompiledMetal {
    bytes: Arc<[u8]>,
    key: CacheKey,
}

impl CompiledMetal {
    /// Of a file's bytes.
    pub fn new(bytes: Arc<[u8]>) -> Self {
        let key = CacheKey::of([&*bytes]);
        Self { bytes, key }
    }

    /// The file.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The hash of its content.
    pub fn key(&self) -> &CacheKey {
        &self.key
    }
}

/// The value of a function constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConstantValue {
    /// For `bool`.
    Bool(bool),
    /// For signed integers.
    Int(i64),
    /// For unsigned integers.
    Uint(u64),
    /// For floating-point types.
    Float(f32),
}

impl Metal {
    /// The library's form, if it is one.
    pub fn form(&self) -> Option<&MetalForm> {
        match self {
            Metal::Form(form) => Some(form),
            Metal::User(_) => None,
        }
    }

    /// The code that has the kernel of `key`; `text_of` gives the text of a file of the library.
    pub fn code<'a>(&'a self, key: &KernelKey, text_of: impl Fn(&MetalFile) -> &'a str) -> Cow<'a, MetalCode> {
        match self {
            Metal::Form(form) => Cow::Owned(MetalCode::Text(form.text(text_of) + &form.instance(key))),
            Metal::User(user) => Cow::Borrowed(&user.code),
        }
    }

    /// The kernel's name for the host.
    pub fn kernel(&self, key: &KernelKey) -> String {
        match self {
            Metal::Form(_) => key.to_string(),
            Metal::User(user) => user.kernel.clone(),
        }
    }

    /// Function constants by index.
    pub fn constants(&self) -> &[(u32, ConstantValue)] {
        match self {
            Metal::Form(_) => &[],
            Metal::User(user) => &user.constants,
        }
    }

    /// Whether the compiler may contract and reassociate.
    pub fn fast_math(&self) -> bool {
        match self {
            Metal::Form(form) => form.fast_math,
            Metal::User(user) => user.fast_math,
        }
    }

    /// The version of Metal that the text is compiled as.
    pub fn version(&self) -> u32 {
        match self {
            Metal::Form(_) => METAL_VERSION,
            Metal::User(user) => user.version,
        }
    }

    /// How many registers a thread is to do with, if not as many as the device's compiler likes.
    pub fn registers(&self) -> Option<u32> {
        match self {
            Metal::Form(form) => form.registers,
            Metal::User(user) => user.registers,
        }
    }

    /// Whether the kernel may reject what it is given: see [`MetalForm::with_error_flag`].
    pub fn rejects(&self) -> bool {
        match self {
            Metal::Form(form) => form.rejection.is_some(),
            Metal::User(user) => !user.rejections.is_empty(),
        }
    }

    /// What a launch fails with whose kernel has raised its word to `word`.
    pub fn rejected(&self, word: u32) -> Error {
        match self {
            Metal::Form(form) => rejection(form.rejection.unwrap_or_default(), word),
            Metal::User(user) => Error::invalid_launch(user.rejections.get(!word as usize).map_or("the kernel rejects it", |message| message)),
        }
    }

    /// The index in the argument table of the kernel's parameter of this number.
    pub fn buffer_index(&self, parameter: usize) -> usize {
        match self {
            Metal::Form(_) => parameter,
            Metal::User(user) => user.buffers.get(parameter).map_or(parameter, |&index| index as usize),
        }
    }

    /// The index in the table of threadgroup memory of the argument of this number.
    pub fn threadgroup_index(&self, argument: usize) -> usize {
        match self {
            Metal::Form(_) => argument,
            Metal::User(user) => user.threadgroup.get(argument).map_or(argument, |&index| index as usize),
        }
    }
}

/// Bytes of the word by which a launch reports what it rejects.
pub const ERROR_FLAG_BYTES: usize = size_of::<u32>();

/// What a launch of a library's kernel fails with that has raised its error flag to `word`; `why` says what is wrong with the input.
pub fn rejection(why: &str, word: u32) -> Error {
    Error::invalid_argument(format!("{why} (number {})", !word))
}

/// The Metal type of a data type's elements.
pub const fn metal_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "half",
        DType::BF16 => "bfloat",
        DType::I8 => "char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long",
        DType::U8 => "uchar",
        DType::U16 => "ushort",
        DType::U32 => "uint",
        DType::U64 => "ulong",
        DType::Bool => "bool",
        // Metal has none: devices of Metal reject programs that use it.
        DType::F64 => "double",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_named_by_its_key() {
        const FILES: &[MetalFile] = &[MetalFile { name: "a.metal", text: "A" }, MetalFile { name: "b.metal", text: "B\n" }];
        let form = MetalForm::new(FILES, "each").with_arguments(&["Exp"]);
        let key = KernelKey::new("exp", &[DType::BF16, DType::I64]).with("wide", 4u32);
        assert_eq!(
            form.instance(&key),
            "template [[host_name(\"exp_bf16_i64_wide4\")]] [[kernel]] decltype(each<Exp, bfloat, long, 4>) each<Exp, bfloat, long, 4>;\n"
        );
        assert_eq!(form.text(|f| f.text), "#line 1 \"a.metal\"\nA\n#line 1 \"b.metal\"\nB\n\n");
    }
}
