//! Tensors whose elements are quantised in blocks. They are tensors of bytes; operators that read one have its [`Format`] as an attribute.

pub(crate) mod cached;
mod encode;
pub(crate) mod format;
pub(crate) mod packed;
#[cfg(test)]
mod tests;

use elinvar_core::MetalFile;
pub use encode::encode_group;
pub use format::{CHUNK, Format};

/// The layouts of [`Format`] in Metal: a struct for each, by the variant's name.
pub(crate) const METAL: MetalFile = crate::metal::metal_file!("quantized/formats.metal");

/// After them in CUDA C++, where they are a namespace: its end, and the format's struct as FORMAT.
pub(crate) const fn cuda(format: Format) -> MetalFile {
    macro_rules! of_formats {
        ($($format:ident),*) => {
            match format {
                $(Format::$format => concat!("}\n#undef device\n#undef thread\ntypedef formats::", stringify!($format), " FORMAT;\n"),)*
            }
        };
    }
    let text = of_formats!(Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Iq4Xs, Mxfp4, Affine4Bf16, Affine8F16, Affine8Bf16);
    MetalFile { name: "quantized/format", text }
}

impl Format {
    /// The name of its struct in Metal, as a template's argument.
    pub(crate) const fn object(self) -> &'static [&'static str] {
        match self {
            Format::Q4_0 => &["Q4_0"],
            Format::Q4_1 => &["Q4_1"],
            Format::Q5_0 => &["Q5_0"],
            Format::Q5_1 => &["Q5_1"],
            Format::Q8_0 => &["Q8_0"],
            Format::Q2K => &["Q2K"],
            Format::Q3K => &["Q3K"],
            Format::Q4K => &["Q4K"],
            Format::Q5K => &["Q5K"],
            Format::Q6K => &["Q6K"],
            Format::Iq4Nl => &["Iq4Nl"],
            Format::Iq4Xs => &["Iq4Xs"],
            Format::Mxfp4 => &["Mxfp4"],
            Format::Affine4Bf16 => &["Affine4Bf16"],
            Format::Affine8F16 => &["Affine8F16"],
            Format::Affine8Bf16 => &["Affine8Bf16"],
        }
    }
}
