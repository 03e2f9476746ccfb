//! The text form: what is read, what is written, what is rejected and where.

use elinvar_atlas::{Binary, Builder, Limits, Position, format, parse, verify};
use elinvar_core::{Access, DType};

/// A kernel over `x: read f32`, `y: update f32`, `n: u32`, a shared array and a function.
fn program(kernel: &str) -> String {
    format!(
        "atlas 1\nprogram test\nbuffer x: read f32\nbuffer y: update f32\nscalar n: u32\nshared tile: f32[64]\n\
         function twice(a: f32) -> f32\n  b = add a a\n  return b\nend\nkernel\n{kernel}\nend\n"
    )
}

/// The message for a kernel that is rejected; its first line is line 12.
fn rejection(kernel: &str) -> String {
    let parsed = parse(&program(kernel)).and_then(|program| verify(program, &Limits::default()));
    parsed.expect_err(kernel).to_string()
}

#[test]
fn text_is_written_as_it_is_read() {
    let kernel = "  i = position.x\n  c = lt i n\n  if c\n    v = load x[i]\n    w: i16 = convert v\n    z: f32 = convert w\n    loop 10\n      z = add z 1.5\n      \
                  d = gt z 1e-7\n      while d\n      t = call twice z\n    end\n    store y[i] z\n  else\n    k: u64 = move 18446744073709551615\n    exit\n  end\n  \
                  h: f16 = exp 0.5\n  s = select c h inf\n  o = ne s nan\n";
    let first = parse(&program(kernel)).unwrap();
    verify(first.clone(), &Limits::default()).unwrap();
    let text = format(&first);
    assert!(text.contains(kernel), "{text}");
    assert_eq!(format(&parse(&text).unwrap()), text);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (kernel, told) in [
        ("  i = position.q", "line 12, column 7: 'position.q' is no instruction"),
        ("  i = position.x\n  j = add i 1.5", "line 13, column 13: '1.5' is no u32"),
        ("  i = position.x\n  j = add i 4294967296", "line 13, column 13: '4294967296' is no u32"),
        ("  j = add k 1", "line 12, column 11: 'k' is not known here"),
        ("  j = add 2 1", "line 12, column 7: no operand gives the type"),
        ("  v = load x[0]\n  v = position.x", "line 13, column 3: 'v' is f32, the value is u32"),
        ("  v = load x[0]\n  store x[0] v", "line 13, column 3: 'x' is declared 'read', and this writes to it"),
        ("  c = lt n 4\n  if c\n    v = load x[0]\n  end\n  store y[0] v", "line 16, column 3: 'v' is used here, but not every path"),
        ("  loop\n    v = load x[0]\n  end", "line 14, column 3: the loop that ends here is never left"),
        ("  break", "line 12, column 3: there is no loop around this"),
        ("  else", "line 12, column 3: 'else' without its 'if'"),
        ("  loop 3\n    break\n    barrier\n  end", "line 14, column 5: no thread comes here"),
        ("  i = position.x\n  c = lt i n\n  if c\n    barrier\n  end", "line 15, column 5: a barrier that not all threads of a block may reach"),
        ("  i = position.x\n  c = lt i n\n  if c\n    exit\n  end\n  s = group_add i", "line 17, column 3: a reduction over the block that not all"),
        ("  l = lane\n  loop\n    c = lt l n\n    while c\n    barrier\n    l = add l 1\n  end", "line 16, column 5: a barrier"),
        ("  s = simd_sub n", "'simd_sub' does not take u32"),
        ("  x = add n 1", "line 12, column 3: 'x' is a parameter"),
        ("  v = load tile[0.5]", "line 12, column 17: '0.5' is no u32"),
        ("  v = load n[0]", "line 12, column 12: 'n' is no buffer"),
        ("  v = call thrice 1.0", "line 12, column 12: 'thrice' is no function"),
        ("  c = lt n 1 extra", "line 12, column 14: 'extra' where the line should end"),
        ("  a = sqrt n", "line 12, column 3: 'sqrt' does not take u32"),
        ("  atomic_add y[0] 1.0", "line 12, column 3: atomics are for elements of i32 and u32"),
        ("  a = add n ☃", "line 12, column 13: '☃' is no part of the language"),
        ("  if true", "the text ends where 'end' is expected"),
    ] {
        let message = rejection(kernel);
        assert!(message.contains(told), "{kernel}\n{message}");
    }
    for (line, told) in [
        ("block 2048", "line 3, column 1: blocks of [2048, 1, 1] threads"),
        ("shared a: u8[0]", "line 3, column 8: no shared array is empty"),
        ("shared a: u8[]\nshared b: u16[4]\nshared c: f32[]", "line 5, column 8: a second shared array whose length a launch gives"),
        ("shared a: f32[40000]", "line 3, column 8: 160000 bytes of shared arrays"),
        ("bounds unchecked", "line 3, column 8: 'bounds unchecked' is for those who trust the program"),
        (
            "function f(a: f32) -> f32\nb = gt a 0\nif b\nc = neg a\nend\nreturn c\nend",
            "line 8, column 1: 'c' is returned, but not every path assigns it",
        ),
        (&format!("scalar {}: u32", "n".repeat(65)), "line 3, column 8: \"nnn"),
        ("buffer y: read f31", "line 3, column 16: unknown data type 'f31'"),
    ] {
        let text = format!("atlas 1\nprogram test\n{line}\nkernel\nend\n");
        let message = parse(&text).and_then(|program| verify(program, &Limits::default())).expect_err(line).to_string();
        assert!(message.contains(told), "{line}\n{message}");
    }
    // A name that is the first word of a statement could not be read again.
    let mut builder = Builder::new("test");
    builder.register("if", DType::F32);
    let message = verify(builder.finish(), &Limits::default()).unwrap_err().to_string();
    assert!(message.contains("'if' is a word of the language"), "{message}");
    let many: String = (0..25).map(|i| format!("scalar n{i}: u32\n")).collect();
    let message = parse(&format!("atlas 1\nprogram test\n{many}kernel\nend\n")).and_then(|program| verify(program, &Limits::default())).unwrap_err();
    assert!(message.to_string().contains("line 27, column 8: 25 parameters: 24 at most"), "{message}");
    let unchecked = parse("atlas 1\nprogram test\nbounds unchecked\nkernel\nend\n").unwrap();
    verify(unchecked, &Limits { unchecked: true, ..Limits::default() }).unwrap();
    assert!(parse("atlas 2\n").unwrap_err().to_string().contains("this build reads version 1"));
    assert!(parse("").unwrap_err().to_string().contains("'atlas 1'"));
}

#[test]
fn built_programs_are_those_of_the_text() {
    let mut b = Builder::new("test");
    let y = b.buffer("y", DType::F32, Access::ReadWrite);
    let square = b.function("square", &[("a", DType::F32)], |b, given| b.binary(Binary::Mul, given[0], given[0]));
    let i = b.position(Position::GlobalX);
    let v = b.load(y, i);
    let w = b.call(square, &[v]);
    b.store(y, i, w);
    let program = verify(b.finish(), &Limits::default()).unwrap().program().clone();
    let text = "function square(a: f32) -> f32\n  r1 = mul a a\n  return r1\nend\n\nkernel\n  r0 = position.x\n  r1 = load y[r0]\n  r2 = call square r1\n  \
        store y[r0] r2\nend\n";
    assert_eq!(format(&program), format!("atlas 1\nprogram test\nbounds checked\nbuffer y: update f32\n\n{text}"));
}

#[test]
fn uniform_conditions_allow_barriers() {
    for kernel in [
        "  c = lt n 4\n  if c\n    barrier\n  end",
        "  b = block.x\n  loop 8\n    c = lt b n\n    while c\n    barrier\n    b = add b 1\n  end",
        "  v = load x[0]\n  c = lt v 0.5\n  if c\n    s = group_add v\n  end",
        "  g = simdgroup\n  c = lt g n\n  if c\n    s = simd_add g\n  end",
        "  barrier\n  i = position.x\n  c = lt i n\n  if c\n    exit\n  end",
    ] {
        verify(parse(&program(kernel)).unwrap(), &Limits::default()).expect(kernel);
    }
}

#[test]
fn hostile_text_is_rejected_quickly() {
    let deep = "if true\n".repeat(200_000);
    assert!(rejection(&deep).contains("the text ends"));
    let balanced = "if true\n".repeat(1000) + &"end\n".repeat(1000);
    assert!(rejection(&balanced).contains("64 deep at most"));
    let mut doubling = String::from("atlas 1\nprogram p\nfunction f0(a: f32) -> f32\nb = add a a\nreturn b\nend\n");
    for i in 1..64 {
        doubling += &format!("function f{i}(a: f32) -> f32\nb = call f{0} a\nc = call f{0} b\nreturn c\nend\n", i - 1);
    }
    let message = parse(&(doubling + "kernel\nend\n")).and_then(|p| verify(p, &Limits::default())).unwrap_err().to_string();
    assert!(message.contains("too large with its calls"), "{message}");
    let many: String = (0..5000).map(|i| format!("r{i} = position.x\n")).collect();
    assert!(rejection(&many).contains("registers"));
    assert!(rejection(&"i = position.x\n".repeat(70_000)).contains("too large"));
}
