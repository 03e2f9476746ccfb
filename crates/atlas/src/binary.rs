//! The binary form: a magic number, a version, the program, a checksum. Numbers are little-endian, lists start with their length.

use elinvar_core::{Access, DType, Error, Result};

use crate::program::{
    Atomic, Binary, Bounds, Compare, Constant, Function, Header, Instruction, Memory, Operand, Parameter, Position, Program, Register, Scope, Shared,
    Shuffle, Ternary, Unary,
};

const MAGIC: &[u8; 4] = b"ATLS";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;
/// Bytes before the program.
const HEADER: usize = 8;
/// Bytes after it.
const CHECKSUM: usize = 8;

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Something with a binary form.
trait Coded: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(from: &mut Reader<'_>) -> Result<Self>;
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(|| damaged("it ends too soon"))?;
        self.bytes = rest;
        Ok(taken)
    }
}

fn damaged(what: &str) -> Error {
    Error::invalid_data(format!("the Atlas binary is damaged: {what}"))
}

/// The binary form of a program. Where instructions are written is not kept.
pub fn encode(program: &Program) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    VERSION.put(&mut out);
    program.name.put(&mut out);
    program.bounds.put(&mut out);
    program.block.put(&mut out);
    program.parameters.put(&mut out);
    program.shared.put(&mut out);
    program.functions.put(&mut out);
    program.kernel.put(&mut out);
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Reads the binary form.
///
/// # Errors
/// Something else, a version this build does not read, or damaged bytes.
pub fn decode(bytes: &[u8]) -> Result<Program> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return Err(Error::invalid_data("this is no Atlas binary: it does not start with 'ATLS'")) };
    let version = u32::get(&mut Reader { bytes: rest })?;
    if version != VERSION {
        return Err(Error::unsupported(format!("an Atlas binary of version {version}: this build reads version {VERSION}")));
    }
    let body = bytes.len().checked_sub(CHECKSUM).filter(|&end| end >= HEADER).ok_or_else(|| damaged("it ends too soon"))?;
    let (contents, sum) = bytes.split_at(body);
    if sum != checksum(contents).to_le_bytes() {
        return Err(damaged("its checksum does not match its contents"));
    }
    let mut from = Reader { bytes: &contents[HEADER..] };
    let from = &mut from;
    let program = Program {
        name: Coded::get(from)?,
        bounds: Coded::get(from)?,
        block: Coded::get(from)?,
        parameters: Coded::get(from)?,
        shared: Coded::get(from)?,
        functions: Coded::get(from)?,
        kernel: Coded::get(from)?,
        header: Header::default(),
    };
    if !from.bytes.is_empty() {
        return Err(damaged("something follows the program"));
    }
    Ok(program)
}

macro_rules! numbers {
    ($($type:ident),*) => {$(
        impl Coded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(from: &mut Reader<'_>) -> Result<Self> {
                let mut bytes = [0; size_of::<$type>()];
                bytes.copy_from_slice(from.take(size_of::<$type>())?);
                Ok($type::from_le_bytes(bytes))
            }
        }
    )*};
}
numbers!(u8, u32, u64);

/// One of a fixed list: its number in it.
macro_rules! listed {
    ($($type:ident $list:expr;)*) => {$(
        impl Coded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let place = $list.iter().position(|one| one == self).unwrap_or(usize::from(u8::MAX));
                (place as u8).put(out);
            }

            fn get(from: &mut Reader<'_>) -> Result<Self> {
                let place = usize::from(u8::get(from)?);
                $list.get(place).copied().ok_or_else(|| damaged(concat!("no such ", stringify!($type))))
            }
        }
    )*};
}
listed! {
    Position Position::ALL;
    Scope Scope::ALL;
    Shuffle Shuffle::ALL;
    Atomic Atomic::ALL;
    Bounds Bounds::ALL;
    DType DType::PROGRAMS;
    Access [Access::Read, Access::Write, Access::ReadWrite];
}

/// A function: its name.
macro_rules! functions {
    ($($type:ident),*) => {$(
        impl Coded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.name().to_owned().put(out);
            }

            fn get(from: &mut Reader<'_>) -> Result<Self> {
                let name = String::get(from)?;
                $type::of_name(&name).ok_or_else(|| damaged(&format!("there is no function '{name}'")))
            }
        }
    )*};
}
functions!(Unary, Binary, Ternary, Compare);

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let count = u32::get(from)? as usize;
        // Every item takes a byte or more: a length that lies reserves nothing.
        if count > from.bytes.len() {
            return Err(damaged("a list is longer than the rest of it"));
        }
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl Coded for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        let length = u32::get(from)? as usize;
        let text = std::str::from_utf8(from.take(length)?).map_err(|_| damaged("a name is no UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => 0u8.put(out),
            Some(value) => {
                1u8.put(out);
                value.put(out);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        match u8::get(from)? {
            0 => Ok(None),
            1 => T::get(from).map(Some),
            _ => Err(damaged("no such choice")),
        }
    }
}

impl Coded for [u32; 3] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|n| n.put(out));
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        Ok([Coded::get(from)?, Coded::get(from)?, Coded::get(from)?])
    }
}

impl Coded for (u32, u32) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self> {
        Ok((Coded::get(from)?, Coded::get(from)?))
    }
}

/// A struct: its fields in order.
macro_rules! structs {
    ($($type:ident { $($field:ident),* } $({ $($default:ident),* })?;)*) => {$(
        impl Coded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(from: &mut Reader<'_>) -> Result<Self> {
                Ok(Self { $($field: Coded::get(from)?,)* $($($default: Default::default(),)*)? })
            }
        }
    )*};
}
structs! {
    Register { name, dtype };
    Constant { dtype, bits };
    Parameter { name, dtype, access };
    Shared { name, dtype, length };
    Function { name, registers, parameters, result, body, arguments } { locations };
}

/// An enum: the number of the variant, then its fields in order.
macro_rules! enums {
    ($($type:ident { $($number:literal $variant:ident $(($value:ident))? $({ $($field:ident),* })?;)* })*) => {$(
        impl Coded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $(($value))? $({ $($field),* })? => {
                        u8::put(&$number, out);
                        $($value.put(out);)?
                        $($($field.put(out);)*)?
                    })*
                }
            }

            fn get(from: &mut Reader<'_>) -> Result<Self> {
                match u8::get(from)? {
                    $($number => {
                        $(let $value = Coded::get(from)?;)?
                        $($(let $field = Coded::get(from)?;)*)?
                        Ok($type::$variant $(($value))? $({ $($field),* })?)
                    })*
                    _ => Err(damaged(concat!("no such ", stringify!($type)))),
                }
            }
        }
    )*};
}
enums! {
    Operand {
        0 Register(value);
        1 Parameter(value);
        2 Constant(value);
    }
    Memory {
        0 Buffer(value);
        1 Shared(value);
    }
    Instruction {
        0 Unary { op, to, a };
        1 Binary { op, to, a, b };
        2 Ternary { op, to, a, b, c };
        3 Compare { op, to, a, b };
        4 Select { to, condition, a, b };
        5 Convert { to, a };
        6 Move { to, a };
        7 Position { to, position };
        8 Load { to, memory, index };
        9 Store { memory, index, value };
        10 Atomic { op, to, memory, index, value };
        11 CompareExchange { to, memory, index, expected, value };
        12 Reduce { scope, op, to, a };
        13 Shuffle { kind, to, a, by };
        14 Barrier;
        15 Call { function, to, arguments };
        16 If { condition };
        17 Else;
        18 Loop { bound };
        19 While { condition };
        20 Break;
        21 Continue;
        22 End;
        23 Exit;
        24 Fence;
    }
}
