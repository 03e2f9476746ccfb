//! Attribute lists: `[[kernel, host_name("x")]]`.

use crate::{kernel::Position, tokens::Tokens};

/// One attribute: its name and the tokens between its parentheses.
#[derive(Clone, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a str,
    /// The name's index.
    pub(crate) at: usize,
    /// The indices of the arguments; empty without parentheses.
    pub(crate) arguments: (usize, usize),
    /// Whether it has a namespace: `clang::always_inline`.
    pub(crate) scoped: bool,
}

/// The attributes of the list that starts at `index`.
pub(crate) fn attributes(tokens: &Tokens, index: usize) -> Vec<Attribute<'_>> {
    let end = tokens.after(index).saturating_sub(2);
    let read = |(start, end): (usize, usize)| {
        let mut at = start;
        while at + 2 < end && tokens.text(at + 1) == "::" {
            at += 2;
        }
        let open = at + 1;
        let arguments = if open < end && tokens.text(open) == "(" { (open + 1, tokens.partner(open)) } else { (open, open) };
        Attribute { name: tokens.text(at), at, arguments, scoped: at > start }
    };
    tokens.split(index + 2, end).into_iter().map(read).collect()
}

/// What an attribute may be called anywhere in a compute library; others are rejected by name.
const KNOWN: &[&str] = &[
    "kernel",
    "host_name",
    "buffer",
    "threadgroup",
    "function_constant",
    "max_total_threads_per_threadgroup",
    "id",
    "visible",
    "stitchable",
    "user",
    "required_threads_per_threadgroup",
    // C++.
    "maybe_unused",
    "nodiscard",
    "noreturn",
    "fallthrough",
    "likely",
    "unlikely",
    "deprecated",
    "no_unique_address",
    "carries_dependency",
];

impl Attribute<'_> {
    /// Whether the attribute is one that Metal or C++ has for compute code.
    pub(crate) fn is_known(&self) -> bool {
        self.scoped || KNOWN.contains(&self.name) || NOT_MODELLED.contains(&self.name) || Position::from_attribute(self.name).is_some()
    }

    /// Whether the attribute binds an argument of a kind that only buffers, threadgroup memory and positions are not.
    pub(crate) fn is_modelled(&self) -> bool {
        !NOT_MODELLED.contains(&self.name)
    }
}

/// The first attribute of the text that is not known, if there is one.
pub(crate) fn unknown(tokens: &Tokens) -> Option<Attribute<'_>> {
    let lists = (0..tokens.len()).filter(|&at| tokens.is_attribute(at));
    lists.flat_map(|at| attributes(tokens, at)).find(|attribute| tokens.is_identifier(attribute.at) && !attribute.is_known())
}

const NOT_MODELLED: &[&str] = &["texture", "sampler", "stage_in", "payload", "color", "imageblock_data", "raytracing"];
