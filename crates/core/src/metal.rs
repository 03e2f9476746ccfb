use std::fmt::Write;

use crate::{DType, KernelKey};

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
    /// What is wrong with an input that the kernel refuses, if it can: see [`MetalForm::with_refusal`].
    pub refusal: Option<&'static str>,
}

impl MetalForm {
    /// A strict kernel whose template arguments all come from its key.
    pub const fn new(files: &'static [MetalFile], function: &'static str) -> Self {
        Self { files, function, arguments: &[], fast_math: false, refusal: None }
    }

    /// The same with leading template arguments.
    pub const fn with_arguments(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    /// The same, but the compiler may contract and reassociate.
    pub const fn with_fast_math(self) -> Self {
        Self { fast_math: true, ..self }
    }

    /// The same, but the kernel refuses some inputs, which then fail the submission; `why` says what is wrong with them.
    ///
    /// Its last buffer, after the parameter block, is a `device atomic_uint*` that is zero before the launch and that it raises to
    /// `2^32 - 1 - number`, by atomic maximum, for an element of that number that it refuses: the first one is told.
    pub const fn with_refusal(self, why: &'static str) -> Self {
        Self { refusal: Some(why), ..self }
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
        let types = key.dtypes.iter().map(|d| type_name(*d).to_owned());
        let constants = key.constants.iter().map(|(_, value)| value.to_string());
        let all: Vec<_> = arguments.chain(types).chain(constants).collect();
        format!("{}<{}>", self.function, all.join(", "))
    }
}

/// The Metal type of a data type's elements.
fn type_name(dtype: DType) -> &'static str {
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
