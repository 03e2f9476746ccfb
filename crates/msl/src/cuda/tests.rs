use crate::{Module, cuda::CudaEntry};

fn lowered(text: &str, entries: &[CudaEntry<'_>]) -> String {
    Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap().lower_for_cuda(entries).unwrap().text
}

/// The lowered text without its entry points, every run of white space as one blank.
fn words(text: &str) -> String {
    let text = lowered(text, &[]);
    let body = text.split_once("# 1 \"k.metal\"\n").unwrap().1.split_once("\n# 1 \"elinvar-entries\"").unwrap().0;
    body.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn address_spaces_go() {
    assert_eq!(words("float f(device const float* p, thread float& x, constant P& q);"), "float f( const float* p, float& x, const P& q);");
}
