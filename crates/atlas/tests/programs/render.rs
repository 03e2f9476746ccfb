//! Which neighbouring elements rendered programs take in one access.

use elinvar_atlas::{Limits, parse, render, verify};

/// The elements of each word that a program over `x: read` and `y: write` loads and stores.
fn words(bounds: &str, dtype: &str, statements: &str) -> (Vec<u32>, Vec<u32>) {
    let text = format!(
        "atlas 1\nprogram test\nbounds {bounds}\nbuffer x: read {dtype}\nbuffer y: write {dtype}\nkernel\n  p = position.x\n  i = mul p 8\n  \
         {statements}\nend\n"
    );
    let program = verify(parse(&text).unwrap(), &Limits { unchecked: true, ..Limits::default() }).unwrap();
    let rendered = render::metal(&program, true);
    let kernel = rendered.text.split("[[kernel]]").nth(1).unwrap().to_owned();
    let after = |word: &str| kernel.split(word).skip(1).map(|rest| rest.split(['>', ';']).next().unwrap().to_owned()).collect::<Vec<_>>();
    let loads: Vec<u32> = after("load_word<").iter().map(|count| count.parse().unwrap()).collect();
    let stores = after("store_word(").len();
    let declared: Vec<u32> = after("atlas::Word<").iter().map(|word| word.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(declared.len(), loads.len() + stores, "{kernel}");
    assert_eq!(rendered.is_aligned, !declared.is_empty());
    assert!(!render::metal(&program, false).text.split("[[kernel]]").nth(1).unwrap().contains("Word<"));
    let stored = kernel.lines().filter(|line| line.contains("atlas::Word<") && !line.contains("const"));
    let stored = stored.map(|line| line.split(['<', '>']).nth(1).unwrap().split(' ').nth(1).unwrap().parse().unwrap()).collect();
    (loads, stored)
}

/// Indices `i1` to `i7`.
const INDICES: &str = "i1 = add i 1\ni2 = add 2 i\ni3 = add i1 2\ni4 = add i 4\ni5 = add i 5\ni6 = add i 6\ni7 = add i 7\n";

#[test]
fn neighbours_next_to_each_other_are_a_word_of_16_bytes_at_most() {
    let loads = "a = load x[i]\nb = load x[i1]\nc = load x[i2]\nd = load x[i3]\ne = load x[i4]\nf = load x[i5]\n";
    let stores = "store y[i] a\nstore y[i1] b\nstore y[i2] c\n";
    for bounds in ["checked", "unchecked"] {
        assert_eq!(words(bounds, "f32", &format!("{INDICES}{loads}{stores}")), (vec![4, 2], vec![2]));
        assert_eq!(words(bounds, "u64", &format!("{INDICES}{loads}{stores}")), (vec![2, 2, 2], vec![2]));
        assert_eq!(words(bounds, "bf16", &format!("{INDICES}{loads}{stores}")), (vec![4, 2], vec![2]));
    }
    // Each element is told of.
    assert_eq!(words("trap", "f32", &format!("{INDICES}{loads}{stores}")), (vec![], vec![]));
}

#[test]
fn what_is_no_run_of_neighbours_is_not_a_word() {
    let not = |statements: &str| assert_eq!(words("checked", "u32", &format!("{INDICES}{statements}")), (vec![], vec![]), "{statements}");
    // Another order, a gap, the same element, something between.
    not("a = load x[i1]\nb = load x[i]\n");
    not("a = load x[i]\nb = load x[i2]\n");
    not("a = load x[i]\nb = load x[i]\n");
    not("a = load x[i]\nstore y[i] a\nb = load x[i1]\nstore y[i1] b\n");
    // The index has another value by now.
    not("i = add i 8\na = load x[i]\nb = load x[i1]\n");
    not("a = load x[i]\ni1 = mul i1 3\nb = load x[i1]\n");
    not("i = load x[i]\nb = load x[i]\n");
    // The second time around, `i` is not what `i1` was computed from.
    not("loop 2\na = load x[i]\nb = load x[i1]\ni = add i 8\nend\n");
    not("c = lt i 9\nif c\ni = add i 8\nend\na = load x[i]\nb = load x[i1]\n");
    not("a = load x[0]\nb = load x[1]\n");
}

#[test]
fn loads_into_registers_of_their_indices_are_told_apart() {
    // The second index is known before the first load takes its register.
    assert_eq!(words("checked", "u32", &format!("{INDICES}i = load x[i]\nb = load x[i1]\n")), (vec![2], vec![]));
    assert_eq!(words("checked", "u32", &format!("{INDICES}i1 = load x[i]\nb = load x[i1]\n")), (vec![], vec![]));
}

#[test]
fn a_function_may_be_longer_than_its_kernel() {
    let text = "atlas 1\nprogram test\nbuffer y: write f32\nfunction f(a: f32) -> f32\n  b = add a a\n  b = add b a\n  b = add b a\n  b = add b a\n  return b\nend\n\
                kernel\n  v: f32 = call f 1.0\n  store y[0] v\nend\n";
    let program = verify(parse(text).unwrap_or_else(|error| panic!("{error}")), &Limits::default()).unwrap();
    assert!(render::metal(&program, true).text.contains("inline float"));
}
