//! Explicit instantiations of kernels: `template [[host_name("x")]] [[kernel]] void f<float>(…);` and its other spellings.

use crate::{attributes::attributes, tokens::Tokens};

/// An explicit instantiation of a function.
#[derive(Clone, Debug)]
pub(crate) struct Instantiation {
    pub(crate) is_kernel: bool,
    pub(crate) host_name: Option<String>,
    /// The index of the function's unqualified name.
    pub(crate) name: usize,
    /// The indices of the function's name as written: its namespaces, its template arguments.
    pub(crate) id: (usize, usize),
    /// The indices between the angle brackets, if there are any.
    pub(crate) arguments: Option<(usize, usize)>,
    /// The indices between the parentheses, if the instantiation repeats the parameters.
    pub(crate) parameters: Option<(usize, usize)>,
}

/// Reads the explicit instantiation at `start`, whose first token is `template` and whose second is not `<`.
/// None for one of a class.
pub(crate) fn instantiation(tokens: &Tokens, start: usize) -> Option<Instantiation> {
    let end = tokens.find(start, tokens.len(), &[";"]);
    let (mut is_kernel, mut host_name) = (false, None);
    let mut attribute_starts = Vec::new();
    let mut at = start + 1;
    while at < end {
        if tokens.is_attribute(at) {
            for attribute in attributes(tokens, at) {
                is_kernel |= attribute.name == "kernel";
                if attribute.name == "host_name" {
                    host_name = Some(tokens.string(attribute.arguments.0));
                }
            }
            attribute_starts.push(at);
            at = tokens.after(at);
            continue;
        }
        is_kernel |= tokens.text(at) == "kernel";
        at = if tokens.text(at) == "(" { tokens.after(at) } else { at + 1 };
    }
    if matches!(tokens.text(start + 1), "struct" | "class" | "union") {
        return None;
    }
    let last = attribute_starts.last().copied().filter(|&at| tokens.after(at) == end).unwrap_or(end);
    let (id_end, parameters) =
        if tokens.before(last) == ")" { (tokens.partner(last - 1), Some((tokens.partner(last - 1) + 1, last - 1))) } else { (last, None) };
    let (name, arguments) = match tokens.before(id_end) {
        ">" => {
            let open = tokens.angle_start(id_end)?;
            (open.checked_sub(1)?, Some((open + 1, id_end - 1)))
        }
        _ => (id_end.checked_sub(1)?, None),
    };
    let mut id_start = name;
    while tokens.before(id_start) == "::" && id_start >= 2 {
        id_start -= if tokens.is_identifier(id_start - 2) { 2 } else { 1 };
    }
    Some(Instantiation { is_kernel: is_kernel || host_name.is_some(), host_name, name, id: (id_start, id_end), arguments, parameters })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> (bool, Option<String>, String, Option<String>, Option<String>) {
        let tokens = Tokens::new(source);
        let found = instantiation(&tokens, 0).unwrap();
        let join = |range: Option<(usize, usize)>| range.map(|(start, end)| tokens.join(start, end));
        (found.is_kernel, found.host_name, tokens.join(found.id.0, found.id.1), join(found.arguments), join(found.parameters))
    }

    #[test]
    fn every_spelling_is_read() {
        let full = read("template [[host_name(\"x\")]] [[kernel]] void a::f<float, (N + 1)>(device float* p [[buffer(0)]]);");
        assert_eq!(full.4.as_deref(), Some("device float* p[[buffer(0)]]"));
        for source in [
            "template [[host_name(\"x\")]] [[kernel]] decltype(a::f<float, (N + 1)>) a::f<float, (N + 1)>;",
            "template [[kernel, host_name(\"\" \"x\")]] decltype(a::f<float, (N + 1)>) a::f<float, (N + 1)>;",
            "template [[host_name(\"x\")]] kernel kernel_type a::f<float, (N + 1)>;",
        ] {
            let found = read(source);
            assert_eq!((found.0, found.1.as_deref(), found.2.as_str(), found.4), (true, Some("x"), "a::f<float, (N+1)>", None), "{source}");
            assert_eq!(found.3.as_deref(), Some("float, (N+1)"));
        }
    }

    #[test]
    fn deduced_arguments_and_helpers_are_read() {
        let deduced = read("template [[host_name(\"x\")]] kernel void f(device half* p);");
        assert_eq!((deduced.2.as_str(), deduced.3), ("f", None));
        assert!(!read("template float helper<float>(float);").0);
    }
}
