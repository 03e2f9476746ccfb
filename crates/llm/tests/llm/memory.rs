//! What hostile GGUF files and texts allocate, by an allocator that counts for each thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use elinvar::HostMemory;
use elinvar_llm::{Config, ModelFiles, Tokenizer, Weights, gguf::Gguf};

struct Counting;

thread_local! {
    /// Bytes in use, less those at the start, and the most there were.
    static USED: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends counts no longer.
    let _ = USED.try_with(|used| {
        let (now, most) = used.get();
        used.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is allocated at most while `body` runs.
fn peak(body: impl FnOnce()) -> usize {
    USED.set((0, 0));
    body();
    USED.get().1.unsigned_abs()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name)[..], &kind.to_le_bytes(), value].concat()
}

fn texts(name: &str, values: impl ExactSizeIterator<Item = String>) -> Vec<u8> {
    let mut bytes = [&8u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
    values.for_each(|value| bytes.extend(text(&value)));
    key(name, 9, &bytes)
}

/// A file of these keys, and of tensors with these names of one byte each.
fn file(keys: &[Vec<u8>], names: &[String]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((names.len() as u64).to_le_bytes());
    bytes.extend((keys.len() as u64).to_le_bytes());
    keys.iter().for_each(|key| bytes.extend(key));
    for (offset, name) in names.iter().enumerate() {
        bytes.extend(text(name));
        // No extents, i8.
        bytes.extend([0u32, 24].map(u32::to_le_bytes).as_flattened());
        bytes.extend((offset as u64).to_le_bytes());
    }
    bytes.resize(bytes.len() + names.len(), 0);
    bytes
}

/// Different names, as short as can be.
fn name(mut number: usize) -> String {
    let mut name = String::new();
    while name.is_empty() || number > 0 {
        name.push(char::from(b'!' + (number % 93) as u8));
        number /= 93;
    }
    name
}

fn model(name: &str) -> Vec<u8> {
    key("tokenizer.ggml.model", 8, &text(name))
}

fn scores(count: usize) -> Vec<u8> {
    let head = [&6u32.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
    key("tokenizer.ggml.scores", 9, &[head, vec![0; 4 * count]].concat())
}

#[track_caller]
fn check(what: &str, bytes: Vec<u8>) {
    let size = bytes.len();
    let file = HostMemory::new(Arc::new(bytes));
    let used = peak(|| {
        let Ok(file) = Gguf::parse("m.gguf", file) else { return };
        let files = ModelFiles::Gguf(Arc::new(file));
        let _ = Config::read(&files).and_then(|_| Weights::open(&files));
        let _ = Tokenizer::open(&files);
    });
    println!("{what}: {size} bytes, {used} allocated");
    assert!(used <= 4 * size + (16 << 20), "{what}: {size} bytes, {used} allocated");
}

#[test]
fn hostile_files_allocate_little() {
    // Counts that no file can hold.
    let mut huge = file(&[], &[]);
    huge[8..24].copy_from_slice(&[0x7f; 16]);
    check("counts", huge);
    check("keys", file(&(0..65_536).map(|number| key(&name(number), 0, &[0])).collect::<Vec<_>>(), &[]));
    let alignment = key("general.alignment", 4, &1u32.to_le_bytes());
    for (what, count) in [("tensors", 1 << 16), ("too many tensors", 1 << 18)] {
        check(what, file(std::slice::from_ref(&alignment), &(0..count).map(name).collect::<Vec<_>>()));
    }
    let tokens = |count: usize| texts("tokenizer.ggml.tokens", (0..count).map(name));
    check("many tokens", file(&[model("llama"), tokens(1 << 15), scores(1 << 15)], &[]));
    // Every split of every token is of two tokens.
    let chain = texts("tokenizer.ggml.tokens", (1..1025).map(|length| "a".repeat(length)));
    check("splits of tokens", file(&[model("llama"), chain, scores(1024)], &[]));
}

#[test]
fn hostile_texts_are_not_kept() {
    let shakespeare = ModelFiles::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shakespeare")).unwrap();
    let letters: Vec<_> = (b'a'..=b'z').map(|letter| char::from(letter).to_string()).collect();
    let tokens = texts("tokenizer.ggml.tokens", letters.into_iter());
    let bytes = file(&[model("llama"), tokens, scores(26)], &[]);
    let gguf = ModelFiles::Gguf(Arc::new(Gguf::parse("m.gguf", HostMemory::new(Arc::new(bytes))).unwrap()));
    for (what, files) in [("tokenizer.json", shakespeare), ("GGUF", gguf)] {
        let tokenizer = Tokenizer::open(&files).unwrap();
        let used = peak(|| {
            for number in 0..1600u64 {
                // Other letters each time, few of which are in one token.
                let word: String = (0..250).map(|place| char::from(b'a' + (number * (place * place + 7) % 8191 % 26) as u8)).collect();
                assert!(tokenizer.encode(&word).unwrap().len() > 60);
            }
        });
        println!("{what}: {used} bytes kept");
        assert!(used < 10 << 20, "{what}: {used} bytes kept");
    }
}
