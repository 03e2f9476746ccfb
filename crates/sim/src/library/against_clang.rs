//! The preprocessor against clang's: the same tokens, each in the same line of the same file.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use elinvar_msl::simulator;

use super::*;
use crate::toolchain::Toolchain;

const FLAGS: &[&str] = &["-E", "-x", "c++", "-std=c++17", "-undef", "-nostdinc", "-w"];
const DEFINES: &[&str] = &["__METAL__=1", "__METAL_VERSION__=310", "__METAL_MACOS__=1", "__HAVE_BFLOAT__=1"];
const OPERATORS: &[&str] = &[
    "...", "<<=", ">>=", "->*", "##", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "&=", "|=",
    "^=",
];

/// Where the standard is hard to follow, and where it leaves the choice to compilers.
const HARD: &str = r##"
#define x 3
#define f(a) f(x * (a))
#undef x
#define x 2
#define g f
#define z z[0]
#define h g(~
#define m(a) a(w)
#define w 0,1
#define t(a) a
#define p() int
#define q(x) x
#define r(x,y) x ## y
#define str(x) # x
f(y+1) + f(f(z)) % t(t(g)(0) + t)(1); g(x+(3,4)-w) | h 5) & m (f)^m(m);
p() i[q()] = { q(1), r(2,3), r(4,), r(,5), r(,) }; char c[2][6] = { str(hello), str() };
#undef f
#undef h
#define nil(x) x
#define later(arg) nil(again)(arg)
#define again(arg) nil(arg)
#define two(a) a*three
#define three(a) two(a)
later(42) two(2)(9) nil(two)(nil)(1)
#define gnu(f, ...) f(1, ## __VA_ARGS__)
#define all(...) g(1, ## __VA_ARGS__) # __VA_ARGS__
#define opt(a, ...) a __VA_OPT__(x ## x a) ## __VA_OPT__(b) end
#define none
gnu(k) gnu(k,) gnu(k,1,2) all() all(none) all( 1 ,  2) opt(1) opt(1,2) opt(1,none)
#define line __LINE__
#define both(a, b) a line b
both(__LINE__, line) __COUNTER__ __COUNTER__ __INCLUDE_LEVEL__ __FILE__
#define minus -1
#define dot .
-minus +minus -none- 1 minus x dot dot. a/none/b L none"s" 0x1p none+3 r(<,<)<
#if 1 ? 0 ? 0 : 1 : 0 && -1 > 0u && (2 || 1 / 0) && 'a' == 97 && (1 << 4 >> 3) == 2 && defined x && !defined(y)
one
#elif 1 / 0
other
#endif
#define counts(x) counts_(x)
#define counts_(x) <x>
counts(
#ifdef none
  1
#else
  2 "
#endif
)
#pragma kept in   place
#line 7 "elsewhere"
it's __LINE__ R"(raw " string)" 1'000u .5e-3f 0xE+1 %: <: @
"##;

#[derive(Debug, PartialEq)]
struct Word<'a> {
    file: &'a str,
    line: usize,
    text: &'a str,
}

/// A lexer that shares nothing with the preprocessor's.
fn words(text: &str) -> Vec<Word<'_>> {
    let (mut words, mut file, mut line) = (Vec::new(), "", 0);
    // Headers of Metal's stay where they stand, where clang has read empty files.
    for whole in text.lines().map(|line| if line.starts_with("#include") { "" } else { line }) {
        if let Some((number, name)) = whole.strip_prefix("# ").and_then(|marker| marker.split_once(' ')) {
            line = number.parse().unwrap();
            file = name.split('"').nth(1).unwrap();
            continue;
        }
        let mut rest = whole.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if word(first) {
                rest.find(|c| !word(c)).unwrap_or(rest.len())
            } else if first == '"' {
                rest[1..].find('"').map_or(rest.len(), |end| end + 2)
            } else {
                OPERATORS.iter().find(|operator| rest.starts_with(**operator)).map_or(first.len_utf8(), |operator| operator.len())
            };
            words.push(Word { file, line, text: &rest[..length] });
            rest = rest[length..].trim_start();
        }
        line += 1;
    }
    words
}

/// What clang makes of the text, which finds Metal's headers in `headers`.
fn clang(name: &str, text: &str, headers: &Path) -> String {
    let mut command = Toolchain::find().unwrap().compiler();
    command.args(FLAGS).args(DEFINES.iter().map(|define| format!("-D{define}"))).arg(format!("-isystem{}", headers.display())).arg("-");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("# 1 \"{name}\"\n{text}").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn kernels(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            kernels(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "metal") {
            found.push(path);
        }
    }
}

#[test]
fn texts_are_preprocessed_as_clang_does() {
    let headers = std::env::temp_dir().join(format!("elinvar-headers-{}", std::process::id()));
    for name in simulator::SYSTEM_HEADERS {
        let path = headers.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let mut files = Vec::new();
    kernels(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    let files = files.iter().map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap()));
    let texts: Vec<(String, String)> = files.chain([("hard".to_owned(), HARD.to_owned())]).collect();
    assert!(texts.len() > 50, "{}", texts.len());
    texts.par_iter().for_each(|(name, text)| {
        let (expected, found) = (clang(name, text, &headers), preprocess(&Source::new(name, text), &CompileOptions::default()).unwrap());
        let (expected, found) = (words(&expected), words(&found));
        let differs = (0..expected.len().max(found.len())).find(|&at| expected.get(at) != found.get(at));
        assert_eq!(differs.map(|at| (expected.get(at), found.get(at))), None, "{name}");
    });
    fs::remove_dir_all(&headers).unwrap();
}
