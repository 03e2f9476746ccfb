//! Metal's vocabulary: vectors, mathematics, integers, the language, simdgroup and atomic functions mean what Metal says.

use elinvar_sim::{Binding, Dispatch, Grid};

use crate::common::{buffer, library, queue, run, values};

/// Runs a kernel of `vocabulary.metal` and demands that none of its checks failed.
fn check(kernel: &str, threads: u32, arguments: &[(u32, Vec<u8>)], data: &[f32]) {
    for checked in [true, false] {
        let pipeline = library("vocabulary.metal", checked).pipeline(kernel, &[]).unwrap();
        let failures = buffer("failures", &[0u32; 64]);
        let mut dispatch = Dispatch::new(&pipeline, Grid::Threadgroups([1, 1, 1]), [threads, 1, 1]).with(Binding::new(0, &failures));
        if !data.is_empty() {
            dispatch = dispatch.with(Binding::new(1, &buffer("data", data)));
        }
        for (index, bytes) in arguments {
            dispatch = dispatch.with_bytes(*index, bytes.clone());
        }
        assert_eq!(run(&queue(), dispatch, 1).findings, []);
        let failed = values::<u32>(&failures);
        assert_eq!(failed[0], 0, "{kernel}: the checks in these lines failed: {:?}", &failed[1..=failed[0].min(63) as usize]);
    }
}

#[test]
fn vectors_have_components_swizzles_and_operators() {
    check("vectors", 1, &[], &[]);
    check("matrices", 1, &[], &[]);
}

#[test]
fn functions_of_numbers_give_their_values() {
    check("mathematics", 1, &[(1, 1f32.to_le_bytes().to_vec())], &[]);
    check("integers", 1, &[(1, 1u32.to_le_bytes().to_vec())], &[]);
}

#[test]
fn the_language_is_understood() {
    let size = [2f32.to_le_bytes(), 3f32.to_le_bytes()].concat();
    check("language", 1, &[(2, size)], &[3.0, 0.0, 0.0, 0.0]);
}

#[test]
fn lanes_exchange_values() {
    check("simdgroups", 32, &[], &[]);
    let data: Vec<f32> = (0..192).map(|i| if i < 64 { (i * 7 % 11) as f32 } else { 0.0 }).collect();
    check("fragments", 32, &[], &data);
}
