//! Address spaces mixed up, as the compiler's errors tell under the prelude's stricter definitions of them.

use std::sync::Arc;

use super::Lint;
use crate::location::Location;

/// Reads the errors of a compilation with [`STRICT_DEFINES`](crate::simulator::STRICT_DEFINES), of a text that compiles without, and keeps those
/// that show a pointer or reference to one of Metal's address spaces where another is wanted. The others come from the definitions themselves.
pub fn address_space_misuse(diagnostics: &str) -> Vec<Lint> {
    let mut lints: Vec<Lint> = Vec::new();
    let mut lines = diagnostics.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((place, message)) = line.split_once(" error: ") else { continue };
        let mut notes = Vec::new();
        while let Some(next) = lines.next_if(|next| !next.contains(" error: ")) {
            notes.extend(next.split_once(" note: ").map(|(_, note)| note));
        }
        let (Some(location), Some((found, wanted))) = (location(place), spaces_in(message).or_else(|| spaces_of_candidates(&notes))) else {
            continue;
        };
        let message = format!("{found} memory is used where {wanted} memory is wanted: Metal's address spaces do not convert");
        let lint = Lint { location, rule: "address-space", message };
        if !lints.contains(&lint) {
            lints.push(lint);
        }
    }
    lints
}

/// `file:line:column:`.
pub(super) fn location(place: &str) -> Option<Location> {
    let mut parts = place.trim_end_matches(':').rsplitn(3, ':');
    let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Location { file: Arc::from(file), line: line.parse().ok()? })
}

/// Metal's name for an address space of clang's; none for the generic one and for that of program-scope tables.
fn metal_space(word: &str) -> Option<&'static str> {
    match word {
        "__private" => Some("thread"),
        "__local" => Some("threadgroup"),
        "__global" | "__global_device" => Some("device or constant"),
        _ => None,
    }
}

/// The spaces that the two types quoted in a message point to: what was found, what was wanted.
fn spaces_in(message: &str) -> Option<(&'static str, &'static str)> {
    let types: Vec<&str> = message.split('\'').skip(1).step_by(2).collect();
    let [wanted, found] = types.as_slice() else { return None };
    distinct(pointee(found)?, pointee(wanted)?)
}

/// What a pointer or reference type points to, or an object's own space.
fn pointee(quoted: &str) -> Option<&str> {
    let target = quoted.rfind(['*', '&']).map_or(quoted, |at| &quoted[..at]);
    target
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .rfind(|word| word.starts_with("__") && (metal_space(word).is_some() || matches!(*word, "__generic" | "__constant")))
}

fn distinct(found: &str, wanted: &str) -> Option<(&'static str, &'static str)> {
    let (metal_found, metal_wanted) = (metal_space(found)?, metal_space(wanted)?);
    match (found, wanted) {
        _ if found == wanted => None,
        // Only where the definitions are swapped do these two meet: `constant` is the narrow one there.
        ("__global", "__global_device") => Some(("device", "constant")),
        ("__global_device", "__global") => Some(("constant", "device")),
        _ => Some((metal_found, metal_wanted)),
    }
}

/// The spaces that the notes on candidates of a call name, if none of them names the generic space.
fn spaces_of_candidates(notes: &[&str]) -> Option<(&'static str, &'static str)> {
    if notes.iter().any(|note| note.contains("__generic") || note.contains("__constant")) {
        return None;
    }
    notes.iter().find_map(|note| {
        let spaces: Vec<&str> =
            note.split('\'').skip(1).step_by(2).filter(|word| metal_space(&format!("__{}", word.trim_start_matches("__"))).is_some()).collect();
        let full = |word: &str| format!("__{}", word.trim_start_matches("__"));
        match spaces.as_slice() {
            // clang names the object's space first here.
            [found, wanted] if note.contains("address space") => distinct(&full(found), &full(wanted)),
            _ => spaces_in(note),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::address_space_misuse;

    fn messages(text: &str) -> Vec<String> {
        address_space_misuse(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn conversions_between_metals_spaces_are_told() {
        let text = "a.metal:27:19: error: cannot initialize a variable of type '__private float *__private' with an rvalue of type '__local float *'\n   27 | thread float* d = &s[0];\n1 error generated.";
        assert_eq!(
            messages(text),
            ["a.metal:27: threadgroup memory is used where thread memory is wanted: Metal's address spaces do not convert [address-space]"]
        );
        let swapped = "a.metal:23:21: error: cannot initialize a variable of type 'const __global_device float *__private' with an lvalue of type '__global float *__private'";
        assert!(messages(swapped)[0].contains("device memory is used where constant memory is wanted"));
        let call = "a.metal:17:5: error: no matching function for call to 'helper_t'\na.metal:3:6: note: candidate function not viable: cannot bind reference in address space '__global_device' to object in address space '__private' in 1st argument";
        assert!(messages(call)[0].contains("device or constant memory is used where thread memory is wanted"), "{:?}", messages(call));
    }

    #[test]
    fn what_the_definitions_cause_themselves_is_left_out() {
        let text = "a.metal:3:39: error: binding reference of type '__private float' to value of type '__generic float' changes address space\n\
            a.metal:9:1: error: no matching function for call to 'tf'\na.metal:5:28: note: candidate function template not viable: cannot bind reference in address space '__generic' to object in address space '__private' in 2nd argument\n\
            a.metal:5:1: error: binding reference of type 'const __global_device int' to value of type 'const __constant int' changes address space";
        assert_eq!(messages(text), Vec::<String>::new());
    }
}
