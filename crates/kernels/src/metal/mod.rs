//! The Metal side of the library: text that several kernels share, and parameter blocks with one definition.

use elinvar_core::MetalFile;

/// Names a `.metal` file beside the source file that mentions it by its path under `src/`.
macro_rules! metal_file {
    ($name:literal) => {
        elinvar_core::MetalFile { name: $name, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $name)) }
    };
}

/// Declares a parameter block once: the Rust struct, and as `METAL` the same struct in Metal.
///
/// Fields are integers, f32, arrays of them, or other blocks, whose `METAL` must come first in the kernel's files.
macro_rules! params {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* pub $field:ident: $type:tt,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        $vis struct $name { $($(#[$field_doc])* $vis $field: $type,)* }

        impl $name {
            /// The same struct in Metal.
            $vis const METAL: elinvar_core::MetalFile = elinvar_core::MetalFile {
                name: concat!("struct ", stringify!($name)),
                text: concat!("struct ", stringify!($name), " {\n", $($crate::metal::field!($field: $type),)* "};\n"),
            };
        }
    };
}

/// A field of a parameter block in Metal.
macro_rules! field {
    ($field:ident: [$type:ident; $count:expr]) => {
        concat!("    ", stringify!($type), " ", stringify!($field), "[", stringify!($count), "];\n")
    };
    ($field:ident: $type:ident) => {
        concat!("    ", stringify!($type), " ", stringify!($field), ";\n")
    };
}

pub(crate) use {field, metal_file, params};

/// Data types, conversions and wide loads: the first file of every kernel.
pub(crate) const TYPES: MetalFile = metal_file!("metal/types.metal");

/// Waiting for the launches ahead, for kernels that may begin before those have ended: they call it themselves, after what they read early.
pub(crate) const LAUNCHES: MetalFile = metal_file!("metal/launches.metal");

/// Clusters of threadgroups, for kernels of a form [in clusters](elinvar_core::MetalForm::in_clusters).
pub(crate) const CLUSTERS: MetalFile = metal_file!("metal/clusters.metal");

/// `N` files, those of each part in order.
pub(crate) const fn joined<const N: usize>(parts: &[&[MetalFile]]) -> [MetalFile; N] {
    let mut files = [TYPES; N];
    let (mut part, mut count) = (0, 0);
    while part < parts.len() {
        let mut file = 0;
        while file < parts[part].len() {
            files[count] = parts[part][file];
            (file, count) = (file + 1, count + 1);
        }
        part += 1;
    }
    assert!(count == N, "there are more or fewer files");
    files
}

#[cfg(test)]
mod tests {
    use elinvar_core::MAX_RANK;

    params! {
        /// A block.
        struct Block {
            /// An extent.
            pub extent: u64,
            /// Steps.
            pub steps: [i64; MAX_RANK],
            /// A factor.
            pub factor: f32,
            /// A flag.
            pub flag: u32,
        }
    }

    #[test]
    fn a_block_has_the_same_fields_in_metal() {
        assert_eq!(Block::METAL.name, "struct Block");
        assert_eq!(Block::METAL.text, "struct Block {\n    u64 extent;\n    i64 steps[MAX_RANK];\n    f32 factor;\n    u32 flag;\n};\n");
        assert!(super::TYPES.text.contains(&format!("MAX_RANK = {MAX_RANK};")));
    }
}
