//! How many bytes a value of a built-in type takes in a buffer.

use crate::{module::Module, tokens::Tokens};

impl Module {
    /// The bytes that a value of the type takes in a buffer: for Metal's built-in types and for the text's own names of them; none for others.
    pub fn size_of(&self, type_name: &str) -> Option<usize> {
        let mut name = type_name.to_owned();
        // An alias may name an alias; one that names itself ends the search.
        for _ in 0..8 {
            if let Some(size) = built_in(&name) {
                return Some(size);
            }
            name = self.alias(&name)?;
        }
        None
    }

    /// What `typedef T name;` or `using name = T;` says.
    fn alias(&self, name: &str) -> Option<String> {
        let tokens = &self.tokens;
        (0..tokens.len()).find_map(|at| match tokens.text(at) {
            "using" if tokens.text(at + 1) == name && tokens.text(at + 2) == "=" => Some(tokens.join(at + 3, tokens.find(at, tokens.len(), &[";"]))),
            "typedef" => {
                let end = tokens.find(at, tokens.len(), &[";"]);
                (tokens.before(end) == name).then(|| tokens.join(at + 1, end - 1))
            }
            _ => None,
        })
    }
}

fn built_in(name: &str) -> Option<usize> {
    let name = name.trim().trim_start_matches("metal::");
    if let Some(size) = scalar(name) {
        return Some(size);
    }
    if name.ends_with('>') {
        return template(name);
    }
    if let Some(kind) = name.strip_prefix("atomic_") {
        return scalar(kind).map(|size| size.max(4));
    }
    if let Some((columns, rows)) = name.rsplit_once('x') {
        let (element, columns) = columns.split_at_checked(columns.len().checked_sub(1)?)?;
        return Some(count(columns)? * vector(element, count(rows)?, false)?);
    }
    let packed = name.strip_prefix("packed_");
    let name = packed.unwrap_or(name);
    let (element, lanes) = name.split_at_checked(name.len().checked_sub(1)?)?;
    vector(element, count(lanes)?, packed.is_some())
}

/// `vec<T, N>`, `packed_vec<T, N>`, `matrix<T, C, R>`, `atomic<T>`.
fn template(name: &str) -> Option<usize> {
    let tokens = Tokens::new(name);
    let arguments: Vec<String> = tokens.split(2, tokens.len() - 1).into_iter().map(|(start, end)| tokens.join(start, end)).collect();
    match (tokens.text(0), arguments.as_slice()) {
        ("vec", [element, lanes]) => vector(element, count(lanes)?, false),
        ("packed_vec", [element, lanes]) => vector(element, count(lanes)?, true),
        ("matrix", [element, columns, rows]) => Some(count(columns)? * vector(element, count(rows)?, false)?),
        ("atomic", [element]) => scalar(element).map(|size| size.max(4)),
        _ => None,
    }
}

fn count(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|count| (2..=4).contains(count))
}

/// A vector of three takes the room of four, unless it is packed.
fn vector(element: &str, lanes: usize, packed: bool) -> Option<usize> {
    let room = if lanes == 3 && !packed { 4 } else { lanes };
    scalar(element).map(|size| size * room)
}

fn scalar(name: &str) -> Option<usize> {
    Some(match name {
        "bool" | "char" | "signed char" | "uchar" | "unsigned char" | "int8_t" | "uint8_t" => 1,
        "short" | "ushort" | "unsigned short" | "int16_t" | "uint16_t" | "half" | "bfloat" => 2,
        "int" | "uint" | "unsigned" | "unsigned int" | "int32_t" | "uint32_t" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "int64_t" | "uint64_t" | "size_t" | "ptrdiff_t" | "intptr_t" | "uintptr_t" => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::Module;

    #[test]
    fn built_in_types_and_their_aliases_have_sizes() {
        let module =
            Module::read("typedef bfloat bfloat16_t; using index = uint; using loop = loop; typedef metal::vec<half, 3> row; struct S { int a; };")
                .unwrap();
        let sizes = [
            ("float", 4),
            ("uchar", 1),
            ("unsigned long", 8),
            ("half3", 8),
            ("packed_half3", 6),
            ("float4x3", 64),
            ("half2x2", 8),
            ("vec<float, 3>", 16),
            ("metal::packed_vec<uchar, 3>", 3),
            ("atomic_uint", 4),
            ("atomic<bool>", 4),
            ("bfloat16_t", 2),
            ("index", 4),
            ("row", 8),
            ("bfloat4", 8),
        ];
        for (name, size) in sizes {
            assert_eq!(module.size_of(name), Some(size), "{name}");
        }
        for name in ["S", "loop", "float5", "", "x", "float8x8", "é"] {
            assert_eq!(module.size_of(name), None, "{name}");
        }
    }
}
