use super::*;

struct Files(&'static [(&'static str, &'static str)]);

impl Includes for Files {
    fn open(&self, name: &str, _quoted: bool, _from: &str) -> Option<Included> {
        self.0.iter().find(|(file, _)| *file == name).map(|(file, text)| Included::File((*file).to_owned(), (*text).to_owned()))
    }

    fn searched(&self) -> String {
        "the test".to_owned()
    }
}

const FILES: Files = Files(&[
    ("twice.h", "twice\n"),
    ("once.h", "#pragma once\nonce\n"),
    ("guarded.h", "#ifndef GUARD\n#define GUARD\nguarded\n#endif\n"),
    ("itself.h", "#include \"itself.h\"\n#include \"itself.h\"\n"),
    ("open.h", "#if 1\n"),
    ("comment.h", "\n/* for ever\n"),
    ("half.h", "F(1,\n"),
]);

fn result(text: &str) -> Result<String> {
    preprocess("k.metal", text, &[], &FILES)
}

/// What is left, without line markers, in one line.
fn expanded(text: &str) -> String {
    let whole = result(text).unwrap();
    whole.lines().filter(|line| !line.starts_with("# ")).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn rejected(text: &str) -> String {
    result(text).unwrap_err().to_string()
}

#[test]
fn arguments_are_expanded_before_they_are_put_in_and_their_macro_never_in_itself() {
    let macros = "#define n 3\n#define f(a) f(n * (a))\n#undef n\n#define n 2\n#define g f\n#define z z[0]\n#define h g(~\n\
                  #define m(a) a(w)\n#define w 0,1\n#define t(a) a\n";
    assert_eq!(expanded(&format!("{macros}f(y+1) + f(f(z)) % t(t(g)(0) + t)(1);")), "f(2 * (y+1)) + f(2 * (f(2 * (z[0])))) % f(2 * (0)) + t(1);");
    assert_eq!(expanded(&format!("{macros}h 5) & m\n(f)^m(m);")), "f(2 * (~ 5)) & f(2 * (0,1)) ^m(0,1);");
    assert_eq!(expanded("#define A B\n#define B A\nA B"), "A B");
    // The name came from within, its parenthesis from outside.
    assert_eq!(expanded("#define f(a) a*g\n#define g(a) f(a)\nf(2)(9)"), "2*9*g");
    // What was met while its macro was being expanded is left for good, also as an argument later.
    assert_eq!(expanded("#define id(x) x\n#define one(x) id(two)(x)\n#define two(x) id(x)\none(42)"), "42");
    assert_eq!(expanded("#define id(x) x\n#define f() id(f)\nid(f()())"), "f()");
}

#[test]
fn quoting_and_joining_take_arguments_as_written() {
    let macros = "#define str(s) # s\n#define xstr(s) str(s)\n#define join(a, b) a ## b\n#define xjoin(a, b) join(a, b)\n\
                  #define file(n) vers ## n\n#define HIGHLOW \"up\"\n#define LOW LOW \", down\"\n";
    let text = |text: &str| expanded(&format!("{macros}{text}"));
    assert_eq!(text("str(cmp(\"ab\\0d\", '\\4') // gone\n == /* too */ 0) str( @ ) str()"), "\"cmp(\\\"ab\\\\0d\\\", '\\\\4') == 0\" \"@\" \"\"");
    assert_eq!(text("xstr(file(2).h) str(file(2).h)"), "\"vers2.h\" \"file(2).h\"");
    assert_eq!(text("join(HIGH, LOW); xjoin(HIGH, LOW)"), "\"up\"; \"up\" \", down\"");
    assert_eq!(text("#define three(x,y,z) x ## y ## z\nthree(1,2,3) three(,4,5) three(6,,7) three(,,) three(,8,) ;"), "123 45 67 8 ;");
    assert_eq!(text("#define hashes # ## #\n#define show(a) str(a)\n#define both(c, d) show(c hashes d)\nboth(p, q)"), "\"p ## q\"");
    assert_eq!(text("join(+, +) join(0x, 1p) join(-, >) join(L, 'c')"), "++ 0x1p -> L'c'");
    assert!(rejected(&format!("{macros}\njoin(+, x)")).starts_with("k.metal:9: `##` makes `+x`"));
    assert!(rejected(&format!("{macros}join(/, /)")).contains("makes `//`"));
}

#[test]
fn arguments_for_an_ellipsis_may_be_missing() {
    assert_eq!(expanded("#define f(x, ...) g(x, ## __VA_ARGS__)\nf(1) f(1,) f(1,2,3)"), "g(1) g(1,) g(1,2,3)");
    assert_eq!(expanded("#define f(x...) g(1, ## x)\nf() f(2)"), "g(1) g(1,2)");
    assert_eq!(expanded("#define none\n#define f(x, ...) g(x __VA_OPT__(,) __VA_ARGS__)\nf(1) f(1,none) f(1,2,3)"), "g(1) g(1) g(1 , 2,3)");
    assert_eq!(expanded("#define f(x, ...) x ## __VA_OPT__(a ## b) y\nf(1) f(1,2)"), "1 y 1ab y");
    assert_eq!(expanded("#define s(...) #__VA_ARGS__\ns() s( a ,b )"), "\"\" \"a ,b\"");
    assert_eq!(expanded("#define e()\n#define one(x) [x]\ne() one() one(e()) one((1,2))"), "[] [] [(1,2)]");
}

#[test]
fn tokens_stay_separate() {
    assert_eq!(
        expanded("#define plus +\n#define minus -1\n#define e\n#define dot .\n-minus +plus+ +e+ a.e b dot.. x e y"),
        "- -1 + + + + + a. b . .. x y"
    );
    assert_eq!(expanded("#define open [\nopen[open open"), "[[[ [");
}

#[test]
fn lines_and_columns_are_the_authors() {
    let text = result("  int x;\n#define f(a) a +\n\nf(1,\n").unwrap_err();
    assert!(text.to_string().starts_with("k.metal:4: the arguments of the macro `f` do not end"), "{text}");
    let text = "#define f(a, b) a + b\n  x = f(1,\n        2) * /* here */ 3;\n#include \"twice.h\"\n\n\n\n\n\n\n\n\n\n\n  last\n";
    assert_eq!(
        result(text).unwrap(),
        "# 1 \"k.metal\"\n# 2 \"k.metal\"\n  x = 1 + 2\n           *            3;\n# 1 \"twice.h\"\ntwice\n# 15 \"k.metal\"\n  last\n"
    );
    assert_eq!(result("a \\\n  b\nc").unwrap(), "# 1 \"k.metal\"\n# 1 \"k.metal\"\na\n  b\nc\n");
    assert_eq!(result("#line 7 \"other\"\na\n# 3\nb").unwrap(), "# 1 \"k.metal\"\n# 7 \"other\"\na\n# 3 \"other\"\nb\n");
    assert_eq!(expanded("#define f(a) a __LINE__\n__LINE__ f(__LINE__\n) __LINE__ __FILE__ __COUNTER__ __COUNTER__"), "2 2 3 3 \"k.metal\" 0 1");
}

#[test]
fn pragmas_stay_in_their_place() {
    let text = result("#define N 4\n#define U _Pragma(\"unroll(N)\")\nvoid f() {\n  U for (;;)\n#pragma keep N\n;\n}\n").unwrap();
    assert_eq!(text, "# 1 \"k.metal\"\n# 3 \"k.metal\"\nvoid f() {\n#pragma unroll(4)\n# 4 \"k.metal\"\n    for (;;)\n#pragma keep N\n;\n}\n");
    assert_eq!(expanded("#define A 1\n#pragma push_macro(\"A\")\n#undef A\nA\n#pragma pop_macro(\"A\")\nA"), "A 1");
}

#[test]
fn conditions_choose() {
    let holds = |condition: &str| expanded(&format!("#define TWO 2\n#define f(x) x\n#if {condition}\nyes\n#else\nno\n#endif")) == "yes";
    for condition in [
        "1",
        "defined TWO && !defined(THREE)",
        "TWO == f(2)",
        "__METAL_VERSION__ >= 310",
        "-1 < 0",
        "!(-1 < 0u)",
        "(2 || 1 / 0)",
        "1 ? 2 : 1 / 0",
        "0x10 == 020 && 16 == 0b1'0000",
        "7 / 2 * 2 + 7 % 2 == 7",
        "1 << 4 >> 3 == 2",
        "(6 & 3 | 8 ^ 1) == 11",
        "~0 == -1",
        "'a' == 97 && '\\n' == 10 && '\\x41' == 'A'",
        "true and not false",
        "unknown == 0",
        "18446744073709551615u == -1",
        "-9223372036854775807 - 1 < 0",
        "__has_include(\"once.h\") && !__has_include(<absent>)",
        "!__has_builtin(__builtin_expect)",
        "defined __has_include",
        "1 ? 0 ? 0 : 1 : 0",
    ] {
        assert!(holds(condition), "{condition}");
    }
    for condition in ["0", "TWO > 2", "!TWO", "defined(f) == 0", "0 && 1 / 0", "2 - 1 - 1", "8 >> 2 << 1 == 1"] {
        assert!(!holds(condition), "{condition}");
    }
    let text = "#ifdef A\na\n#elif 0\nb /* \n#else */ it's\n#elif 1\n#if 0\nx\n#else\nc\n#endif\n#elif 1 / 0\nd\n#else\ne\n#endif\n";
    assert_eq!(expanded(text), "c");
    assert_eq!(expanded("#ifdef A\n#elifndef A\nyes\n#endif\n#if 0\n#nonsense \"\n#endif"), "yes");
    assert_eq!(expanded("#define f(a) [a]\nf(1\n#ifdef f\n2\n#else\n3\n#endif\n)"), "[1 2]");
}

#[test]
fn files_are_included_once_or_as_often_as_written() {
    assert_eq!(expanded("#include \"twice.h\"\n#include <twice.h>\n#define H \"once.h\"\n#include H\n#include H"), "twice twice once");
    assert_eq!(expanded("#include \"guarded.h\"\n#include \"guarded.h\"\n#import \"twice.h\"\n#import \"twice.h\""), "guarded twice");
}

#[test]
fn metals_own_headers_stay_where_they_stand_and_stay_once() {
    let text = preprocess("k.metal", "#include <metal_stdlib>\na\n#include <metal_stdlib>\n#include <simd/simd.h>\nb\n", &[], &MetalHeaders).unwrap();
    assert!(text.ends_with("\n#include <metal_stdlib>\na\n\n#include <simd/simd.h>\nb\n"), "{text}");
    assert_eq!(preprocess("k.metal", &text, &[], &MetalHeaders).unwrap(), text, "read again");
}

#[test]
fn rejections_say_where_and_why() {
    for (text, message) in [
        ("\n#if 1\n#if 0\n#endif\n", "k.metal:2: the condition does not end"),
        ("#include \"open.h\"\n", "open.h:1: the condition does not end"),
        ("#include \"comment.h\"\n", "comment.h:2: the comment does not end"),
        ("\n#include \"absent.h\"\n", "k.metal:2: cannot find \"absent.h\"; looked for it in: the test"),
        ("#include \"itself.h\"\n", "itself.h:1: files include each other deeper than 200"),
        ("#define F(a, b) a\n#include \"half.h\"\n2)", "half.h:1: the arguments of the macro `F` do not end"),
        ("#define F(a, b) a\nF(1)", "k.metal:2: the macro `F` takes 2 arguments, found 1"),
        ("#define F() a\nF(1)", "k.metal:2: the macro `F` takes 0 arguments, found 1"),
        ("#error no \"bfloat\" here\n", "k.metal:1: #error no \"bfloat\" here"),
        ("#else\n", "k.metal:1: `#else` without an `#if`"),
        ("#if 1\n#else\n#else\n#endif", "k.metal:3: `#else` after `#else`"),
        ("#if 1 +\n#endif", "k.metal:1: `#if` cannot be decided: it ends"),
        ("#if 1 / 0\n#endif", "division by zero"),
        ("#if f(1)\n#endif", "`f` is no macro with arguments"),
        ("#if 1.0\n#endif", "`1.0` is no integer"),
        ("#define 1\n", "`1` cannot be a macro's name"),
        ("#define defined\n", "`defined` cannot be a macro's name"),
        ("#define F(a, a) a\n", "`a` cannot be a macro's parameter"),
        ("#define F(a) #b\n", "`#` is not followed"),
        ("#define F ## a\n", "`##` stands at an end"),
        ("#define F(a) __VA_ARGS__\n", "do not end in `...`"),
        ("#nonsense\n", "k.metal:1: `#nonsense` is no directive"),
        ("#line x\n", "`#line` is not followed"),
    ] {
        let found = rejected(text);
        assert!(found.contains(message), "{text:?}: {found}");
    }
}

#[test]
fn hostile_texts_end() {
    let doubling: String = (0..60).map(|level| format!("#define A{} A{level} A{level}\n", level + 1)).collect();
    assert!(rejected(&format!("{doubling}A60")).contains("do they multiply"));
    let joining: String = (0..60).map(|level| format!("#define A{}(x) A{level}(x ## x)\n", level + 1)).collect();
    assert!(rejected(&format!("#define A0(x) x\n{joining}A60(aaaa)")).contains("do they multiply"));
    let chain: String = (0..5000).map(|level| format!("#define A{} A{level}\n", level + 1)).collect();
    assert!(rejected(&format!("{chain}A5000")).contains("in each other's replacements"));
    assert_eq!(expanded(&format!("{chain}A4000")), "A0");
    assert!(rejected(&format!("#define q(x) {}\nq({})", "#x ".repeat(100_000), "x".repeat(100_000))).contains("do they multiply"));
    assert!(rejected(&format!("#define p({}) 1", (0..5000).map(|at| format!("p{at},")).collect::<String>() + "q")).contains("parameters"));
    let nested = |count: usize, word: &str| word.repeat(count);
    assert!(rejected(&format!("#define f(x) x\n{}1{}", nested(10_000, "f("), nested(10_000, ")"))).contains("nest deeper"));
    assert!(rejected(&format!("#if {}1{}\n#endif", nested(10_000, "("), nested(10_000, ")"))).contains("nests deeper"));
    assert!(rejected(&format!("#if {}1\n#endif", nested(10_000, "- "))).contains("nests deeper"));
    assert!(rejected(&nested(10_000, "#if 1\n")).contains("does not end"));
    assert_eq!(expanded(&format!("#define f(x) x\n{}1{}", nested(100, "f("), nested(100, ")"))), "1");
}

/// Any bytes whatever are rejected or preprocessed, and what is preprocessed stays as it is.
#[test]
fn scrambled_texts_do_not_panic() {
    let pieces = [
        "#",
        "##",
        "\n",
        "\n#",
        " ",
        "define ",
        "F",
        "F(",
        "(",
        ")",
        ",",
        "...",
        "__VA_ARGS__",
        "__VA_OPT__(",
        "if ",
        "elif ",
        "else\n",
        "endif\n",
        "defined ",
        "1",
        "0x",
        "'",
        "\"",
        "\\",
        "\\\n",
        "/*",
        "*/",
        "//",
        "R\"(",
        ")\"",
        "é",
        "\u{0}",
        "include ",
        "\"once.h\"",
        "<",
        ">",
        "_Pragma(\"unroll(F)\")",
        "undef ",
        "line ",
        "+",
        ".",
        "%:",
        "?",
        ":",
        "__LINE__",
        "__has_include(",
        "pragma once\n",
        "\r\n",
        "L",
        "e+",
        "#define F(x, ...) x ## F #x __VA_ARGS__\n",
        "#define F F\n",
    ];
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..24 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        let _ = result(&text);
    }
}
