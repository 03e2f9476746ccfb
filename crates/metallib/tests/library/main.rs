//! Libraries written by the tests, read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod container;

use container::{Compiled, library};
use elinvar_metallib::{Access, Argument, ArgumentKind, ConstantType, Description, FunctionKind, Library, describe};

/// `scale.ll`, assembled.
const SCALE: &[u8] = include_bytes!("scale.bc");

fn scale() -> Vec<u8> {
    library(&[
        Compiled { name: "scale", bitcode: SCALE, constants: &[("doubled", 53, 3), ("count", 33, 260)] },
        Compiled { name: "other", bitcode: SCALE, constants: &[] },
    ])
}

fn message(file: &[u8]) -> String {
    Library::read("x.metallib", file).unwrap_err().to_string()
}

#[test]
fn functions_are_listed() {
    let file = scale();
    let library = Library::read("x.metallib", &file).unwrap();
    assert_eq!(library.functions().iter().map(|function| function.name).collect::<Vec<_>>(), ["scale", "other"]);
    let function = library.function("scale").unwrap();
    assert_eq!((function.kind, function.air_version, function.language_version), (FunctionKind::Kernel, [2, 6], [3, 1]));
    let constants: Vec<_> = function.constants.iter().map(|constant| (constant.name, constant.index, constant.kind)).collect();
    assert_eq!(constants, [("doubled", 3, ConstantType::Bool), ("count", 260, ConstantType::Uint)]);
    assert_eq!(function.bitcode, SCALE);
    assert_eq!(library.function("scala").unwrap_err().to_string(), "x.metallib has no function `scala`: of its 2, the nearest are scale, other");
}

fn argument(position: u32, name: &str, kind: ArgumentKind) -> Argument {
    Argument { position, name: name.to_owned(), type_name: "float".to_owned(), kind, conditional: false, unused: false }
}

fn buffer(index: u32, access: Access, constant: bool, needed: Option<u32>) -> ArgumentKind {
    ArgumentKind::Buffer { index, access, constant, size: 4, alignment: 4, needed }
}

#[test]
fn arguments_are_read_from_llvms_own_bitcode() {
    let file = scale();
    let library = Library::read("x.metallib", &file).unwrap();
    let expected = Description {
        arguments: vec![
            argument(0, "x", buffer(0, Access::Read, false, None)),
            argument(1, "y", buffer(1, Access::ReadWrite, false, None)),
            Argument { conditional: true, ..argument(2, "factor", buffer(4, Access::Read, true, Some(4))) },
            Argument { unused: true, ..argument(3, "shared", ArgumentKind::Threadgroup { index: 0 }) },
            Argument { type_name: "uint".to_owned(), ..argument(4, "i", ArgumentKind::Position("thread_position_in_grid".to_owned())) },
        ],
        compile_options: vec!["denorms_disable".to_owned(), "fast_math_disable".to_owned()],
        max_threads: Some(64),
        producer: Some("Elinvar test".to_owned()),
    };
    assert_eq!(describe(library.functions()[0].bitcode).unwrap(), expected);
}

#[test]
fn bitcode_is_read_without_and_within_a_wrapper() {
    // LLVM wraps what is for Apple's systems: magic, version, offset, size, processor.
    let word = |at: usize| u32::from_le_bytes(SCALE[at..at + 4].try_into().unwrap()) as usize;
    let plain = &SCALE[word(8)..word(8) + word(12)];
    assert!(SCALE.starts_with(&[0xde, 0xc0, 0x17, 0x0b]) && plain.starts_with(b"BC"));
    let kernels = [plain, SCALE].map(|bitcode| Compiled { name: "scale", bitcode, constants: &[] });
    let file = library(&kernels);
    let library = Library::read("x.metallib", &file).unwrap();
    let [plain, wrapped] = [0, 1].map(|at| describe(library.functions()[at].bitcode).unwrap());
    assert_eq!(plain, wrapped);
}

#[test]
fn libraries_are_found_in_other_files() {
    let inner = scale();
    let file = [b"\xcf\xfa\xed\xfe and the word MTLBuffer, ", &inner[..], b"MTLB", &inner[..], b"MTLB"].concat();
    let library = Library::read("app", &file).unwrap();
    assert_eq!((library.libraries(), library.functions().len()), (2, 4));
}

#[test]
fn what_is_no_library_is_an_error_of_one_line() {
    assert_eq!(message(b""), "x.metallib holds no Metal library: no `MTLB` is in it");
    assert_eq!(message(b"MTLB"), "x.metallib is no sound Metal library: its header is not complete");
    let file = scale();
    assert_eq!(message(&file[..file.len() - 1]), "x.metallib is no sound Metal library: it is cut short");
    let mut beyond = file.clone();
    beyond[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(message(&beyond), "x.metallib is no sound Metal library: a section lies beyond its end");
    let many = [&file[..88], &u32::MAX.to_le_bytes(), &file[92..]].concat();
    assert!(message(&many).starts_with("x.metallib is no sound Metal library: "), "{}", message(&many));
    let text = library(&[Compiled { name: "k", bitcode: b"no bitcode", constants: &[] }]);
    let library = Library::read("x.metallib", &text).unwrap();
    let error = describe(library.functions()[0].bitcode).unwrap_err().to_string();
    assert_eq!(error, "its bitcode is not sound: it is no LLVM bitcode");
}

/// Reads all that can be read.
fn read(file: &[u8]) {
    if let Ok(library) = Library::read("x.metallib", file) {
        for function in library.functions() {
            let _ = describe(function.bitcode);
        }
    }
}

#[test]
fn nothing_that_is_cut_ends_the_process() {
    let file = scale();
    (0..file.len()).for_each(|end| read(&file[..end]));
}

/// `ELINVAR_MUTATIONS` asks for more of them.
#[test]
fn nothing_that_is_mutated_ends_the_process() {
    let file = scale();
    let count = std::env::var("ELINVAR_MUTATIONS").map_or(20_000, |count| count.parse().expect("a number"));
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..count {
        let mut changed = file.clone();
        for _ in 0..1 + random() % 4 {
            let at = random() as usize % changed.len();
            changed[at] = random() as u8;
        }
        read(&changed);
    }
}
