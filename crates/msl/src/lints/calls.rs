//! Recursion.

use std::collections::{HashMap, HashSet};

use super::Findings;
use crate::{functions::functions, simulator::PRELUDE, tokens::Tokens};

type Body = (usize, usize);

/// Finds functions that reach themselves. Names with several definitions, templates, and names that the standard library overloads are left out:
/// which function such a call means is not told by tokens.
pub(super) fn calls(findings: &mut Findings<'_>) {
    let tokens = &findings.module.tokens;
    let mut bodies: HashMap<&str, Vec<(usize, Option<Body>)>> = HashMap::new();
    for function in functions(findings.module) {
        if function.body.is_some() {
            let body = if function.template.is_some() { None } else { function.body };
            bodies.entry(tokens.text(function.name)).or_default().push((function.name, body));
        }
    }
    let known: HashMap<&str, (usize, Body)> = bodies
        .into_iter()
        .filter_map(|(name, bodies)| match bodies.as_slice() {
            [(at, Some(body))] if tokens.is_identifier(*at) => Some((name, (*at, *body))),
            _ => None,
        })
        .collect();
    let graph: HashMap<&str, Vec<(&str, usize)>> = known.iter().map(|(&name, &(_, body))| (name, called(tokens, body, &known))).collect();
    let mut names: Vec<&&str> = graph.keys().collect();
    names.sort_by_key(|name| known[**name].0);
    let library = std::cell::OnceCell::new();
    for name in names {
        if let Some(path) = path_back(&graph, name)
            && !library.get_or_init(library_names).contains(*name)
        {
            let shown = if path.len() > 1 {
                format!("{name} calls itself through {}", path[..path.len() - 1].join(", "))
            } else {
                format!("{name} calls itself")
            };
            findings.add("recursion", known[*name].0, format!("{shown}: Metal has no recursion, use a loop"));
        }
    }
}

fn called<'a>(tokens: &'a Tokens, (start, end): Body, known: &HashMap<&'a str, (usize, Body)>) -> Vec<(&'a str, usize)> {
    let is_call = |&at: &usize| tokens.text(at + 1) == "(" && !matches!(tokens.before(at), "." | "->" | "::") && known.contains_key(tokens.text(at));
    (start..end).filter(is_call).map(|at| (tokens.text(at), at)).collect()
}

/// The calls that lead from `name` back to it, the last being `name`.
fn path_back<'a>(graph: &HashMap<&'a str, Vec<(&'a str, usize)>>, name: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = HashSet::new();
    let mut open = vec![vec![name]];
    while let Some(path) = open.pop() {
        for &(next, _) in path.last().and_then(|last| graph.get(last)).into_iter().flatten() {
            let longer = || path.iter().copied().chain([next]).collect::<Vec<_>>();
            if next == name {
                return Some(longer()[1..].to_vec());
            }
            if seen.insert(next) {
                open.push(longer());
            }
        }
    }
    None
}

/// The names of functions that the prelude declares, by itself or through its macros.
fn library_names() -> HashSet<String> {
    let mut names = HashSet::new();
    for (_, text) in PRELUDE {
        let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
        let tokens = Tokens::new(&code.join("\n"));
        let declares = |&at: &usize| {
            let by_macro = tokens.before(at) == "(" && at >= 2 && tokens.text(at - 2).starts_with("ELV_");
            let by_type =
                tokens.text(at + 1) == "(" && (tokens.before(at) == ">" || tokens.is_identifier(at.wrapping_sub(1)) && tokens.before(at) != "return");
            tokens.is_identifier(at) && (by_macro || by_type)
        };
        names.extend((0..tokens.len()).filter(declares).map(|at| tokens.text(at).to_owned()));
    }
    names
}
