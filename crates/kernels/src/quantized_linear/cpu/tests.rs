//! Every level's products are, bit for bit, those of the definition.

use super::{super::oracle::random_rows, *};
use crate::{
    conformance::case::HostTensor,
    quantized::{format::with_blocks, packed::Places},
    simd::{Level, level, limit},
};

const LENGTHS: [usize; 8] = [0, 1, 7, 8, 9, 18, 80, 144];

/// Values of every kind, of which some chunks are not finite, others far too small, and others as large as can be.
fn values(m: usize, k: usize) -> Vec<f32> {
    let random = HostTensor::random(DType::F32, &[m, k], -1.0, 1.0, (m * 31 + k) as u64).to_f64();
    let mut values: Vec<_> = random.into_iter().map(|value| value as f32).collect();
    for (index, chunk) in values.chunks_exact_mut(CHUNK).enumerate() {
        match index % 23 {
            3 => chunk.fill(1.0),
            5 => chunk.fill(-f32::MAX),
            7 => chunk.iter_mut().for_each(|value| *value *= 1e-40),
            11 => chunk.fill(0.0),
            13 => chunk[index % CHUNK] = 1e30,
            17 if index % 5 == 0 => chunk[3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][index % 3],
            _ => {}
        }
    }
    values
}

fn bits(products: &[[f32; COLUMNS]], columns: usize) -> Vec<u32> {
    products.iter().flat_map(|products| &products[..columns]).map(|value| if value.is_nan() { f32::NAN } else { *value }.to_bits()).collect()
}

/// The products of `m` rows of x with weights of `columns` rows, as they are and with all fields alike, are those of the definition; fast ones come near them.
fn check(format: Format, [m, chunks, columns]: [usize; 3], x: &[f32]) {
    let (row_bytes, random) = (format.packed_row_bytes(CHUNK * chunks).unwrap(), random_rows(format, columns, CHUNK * chunks, 7));
    let subscales = with_blocks!(format, F => Places::of::<F>(chunks)).unwrap().subscales;
    for fill in [None, Some(0xff), Some(0x80), Some(0x7f), Some(0)] {
        let mut weights = random.bytes().to_vec();
        for row in weights.chunks_exact_mut(row_bytes.max(1)) {
            fill.into_iter().for_each(|byte| row[..subscales].fill(byte));
        }
        let products = |product: Product| {
            let mut products = vec![[0.0; COLUMNS]; m];
            product.multiply(&product.rows(x, [m, chunks]), [row_bytes, columns], &weights, &mut products);
            products
        };
        let name = format!("{format}, {m} rows of {chunks} chunks, {columns} columns, fields {fill:?}, {:?}", level());
        let expected = products(Product::portable(format));
        assert_eq!(bits(&products(Product::new(format, m, Precision::Strict)), columns), bits(&expected, columns), "{name}");
        assert!(fill.is_some() || chunks == 0 || expected.as_flattened().iter().any(|value| *value != 0.0));
        let fast = products(Product::new(format, m, Precision::Fast));
        for column in 0..columns {
            let mut decoded = vec![0.0; CHUNK * chunks];
            format.decode_packed(&weights[row_bytes * column..][..row_bytes], &mut decoded).unwrap();
            let sizes: Vec<_> = decoded.chunks(CHUNK).map(|w| w.iter().map(|w| f64::from(w.abs())).sum::<f64>()).collect();
            for (row, (fast, expected)) in fast.iter().zip(&expected).enumerate() {
                let (fast, expected) = (f64::from(fast[column]), f64::from(expected[column]));
                // An element of x is at most 1/254 of the largest of its chunk off, and 1/65534 in what is expected, where tiny chunks are nothing.
                let largest = x[CHUNK * chunks * row..][..CHUNK * chunks].chunks(CHUNK).map(|x| x.iter().fold(0.0f32, |most, x| most.max(x.abs())));
                let off = largest.clone().map(|most| if most < 1e-33 { 1e-33 } else { most / 250.0 });
                let bound: f64 = off.zip(&sizes).map(|(off, size)| f64::from(off) * size).sum();
                // Fast, the sum of a chunk's elements may leave the range of f32.
                let is_beyond = largest.into_iter().any(|most| most > f32::MAX / CHUNK as f32);
                let is_near = (fast - expected).abs() <= bound || (fast.is_nan() && expected.is_nan()) || is_beyond;
                assert!(is_near, "{name}, [{row}, {column}]: {fast}, not {expected} within {bound}");
            }
        }
    }
}

#[test]
fn every_level_has_the_definitions_bits() {
    let best = level();
    for most in [Level::Avx2, Level::Avx512].into_iter().filter(|&most| most <= best) {
        limit(most);
        for m in [1, 3, 8, 9, 64, 130] {
            for chunks in LENGTHS.into_iter().filter(|chunks| m < 64 || *chunks < 19) {
                let x = values(m, CHUNK * chunks);
                for &format in Format::ALL {
                    if !(CHUNK * chunks).is_multiple_of(format.weights()) {
                        continue;
                    }
                    let columns = [1, COLUMNS, 9][(m + chunks) % 3];
                    check(format, [m, chunks, columns], &x);
                }
            }
        }
    }
    limit(Level::Avx512);
}
