//! The page.

use std::{fs, path::Path};

#[test]
fn the_page_needs_nothing_from_elsewhere_and_writes_text_alone() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("page/index.html")).unwrap();
    assert!(text.len() < 40 << 10, "{} bytes", text.len());
    let addresses = text.match_indices("://").map(|(at, _)| &text[at + 3..][..14]);
    assert!(addresses.clone().all(|address| address == "www.w3.org/200"), "{:?}", addresses.collect::<Vec<_>>());
    assert!(text.contains("default-src 'none'") && text.contains("connect-src 'self'"));
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "<link rel=\"stylesheet\"", "<script src"] {
        assert!(!text.contains(word), "{word}");
    }
}
