use elinvar_core::{DType, SplitMix64};
use half::bf16;

use super::{Format, encode_group};

fn written() -> impl Iterator<Item = Format> {
    let all = Format::ALL.iter().copied();
    all.filter(|format| !matches!(format, Format::Affine4Bf16 | Format::Affine8F16 | Format::Affine8Bf16))
}

/// Sums of four uniform numbers, of deviation 1 up to the block's own factor.
fn values(format: Format, blocks: usize) -> Vec<f32> {
    let uniform = |i: usize| (SplitMix64::nth(3, i as u64) >> 40) as f32 / (1 << 24) as f32 - 0.5;
    let factor = |i: usize| 1.0 + (i / format.weights() % 7) as f32;
    (0..blocks * format.weights()).map(|i| (0..4).map(|part| uniform(4 * i + part)).sum::<f32>() * 1.7 * factor(i)).collect()
}

fn encoded(format: Format, values: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let mut blocks = vec![0xff; format.row_bytes(values.len()).unwrap()];
    format.encode(values, importance, &mut blocks).unwrap();
    blocks
}

fn decoded(format: Format, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![f32::NAN; blocks.len() / format.bytes() * format.weights()];
    format.decode(blocks, &mut values).unwrap();
    values
}

fn error(x: &[f32], y: &[f32], importance: impl Fn(usize) -> f32) -> f32 {
    x.iter().zip(y).enumerate().map(|(i, (x, y))| importance(i) * (x - y) * (x - y)).sum()
}

/// Root mean square errors of values of deviation 1 that these formats reach, a little above what is measured.
fn bound(format: Format) -> f32 {
    match format {
        Format::Q4_0 => 0.09,
        Format::Q4_1 => 0.075,
        Format::Q5_0 => 0.045,
        Format::Q5_1 => 0.04,
        Format::Q8_0 => 0.006,
        Format::Q2K => 0.3,
        Format::Q3K => 0.17,
        Format::Q4K => 0.08,
        Format::Q5K => 0.04,
        Format::Q6K => 0.02,
        Format::Iq4Nl | Format::Iq4Xs => 0.085,
        Format::Mxfp4 => 0.14,
        Format::Affine4Bf16 | Format::Affine8F16 | Format::Affine8Bf16 => 0.0,
    }
}

#[test]
fn blocks_are_near_their_values() {
    for format in written() {
        let x = values(format, 28);
        let y = decoded(format, &encoded(format, &x, None));
        let relative = (error(&x, &y, |_| 1.0) / error(&x, &vec![0.0; x.len()], |_| 1.0)).sqrt();
        assert!((bound(format) / 1.5..bound(format)).contains(&relative), "{format}: {relative}");
    }
}

/// What a block holds exactly is found again, or something nearer to it than rounding of the scales.
#[test]
fn values_of_blocks_stay_what_they_are() {
    for format in written() {
        let x = decoded(format, &encoded(format, &values(format, 7), None));
        let y = decoded(format, &encoded(format, &x, None));
        let relative = (error(&x, &y, |_| 1.0) / error(&x, &vec![0.0; x.len()], |_| 1.0)).sqrt();
        assert!(relative < bound(format) / 3.0, "{format}: {relative}");
    }
}

#[test]
fn important_columns_have_smaller_errors() {
    for format in written() {
        let x = values(format, 14);
        let importance: Vec<_> = (0..x.len()).map(|i| if i % 5 == 0 { 40.0 } else { 0.5 }).collect();
        let weighted = |blocks: &[u8]| error(&x, &decoded(format, blocks), |i| importance[i]);
        let (with, without) = (weighted(&encoded(format, &x, Some(&importance))), weighted(&encoded(format, &x, None)));
        assert!(with < 0.99 * without, "{format}: {with} with, {without} without");
        // Equal importance is none, whatever its size; and columns that are never used do no harm.
        assert_eq!(encoded(format, &x, Some(&vec![1e-30; x.len()])), encoded(format, &x, None), "{format}");
        assert_eq!(encoded(format, &x, Some(&vec![0.0; x.len()])).len(), encoded(format, &x, None).len());
    }
}

#[test]
fn zeros_constants_and_extremes_are_encoded() {
    for format in written() {
        let n = format.weights();
        assert!(decoded(format, &encoded(format, &vec![0.0; n], None)).iter().all(|&y| y == 0.0), "{format}");
        for value in [1.0f32, -3.5, 1e-4, 6e4, -6e4] {
            let y = decoded(format, &encoded(format, &vec![value; n], None));
            let worst = y.iter().map(|y| ((y - value) / value).abs()).fold(0.0, f32::max);
            assert!(worst < 0.15, "{format}: {value} becomes {:?}", &y[..2]);
        }
        // Too small for any scale.
        let y = decoded(format, &encoded(format, &vec![1e-30; n], None));
        assert!(y.iter().all(|y| (0.0..1e-29).contains(y)), "{format}: {:?}", &y[..2]);
        // One value that is much greater than the others.
        let mut spike = vec![1e-3; n];
        spike[n / 2] = -1000.0;
        let y = decoded(format, &encoded(format, &spike, None));
        assert!((y[n / 2] + 1000.0).abs() < 50.0, "{format}: {}", y[n / 2]);
    }
}

#[test]
fn what_no_block_can_hold_is_rejected() {
    for format in written() {
        let mut blocks = vec![0; format.bytes()];
        let mut message = |x: &[f32], importance: Option<&[f32]>| {
            let message = format.encode(x, importance, &mut blocks).unwrap_err().to_string();
            assert!(message.contains(format.name()) || message.contains("importance"), "{message}");
            message
        };
        let with = |at: usize, value: f32| (0..format.weights()).map(|i| if i == at { value } else { 1.0 }).collect::<Vec<_>>();
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(message(&with(7, value), None).contains(&format!("value 7 is {value}")));
        }
        assert!(message(&with(0, 1.0)[1..], None).contains(&format!("expected {} bytes", format.bytes())));
        assert!(message(&with(0, 1.0), Some(&[1.0])).contains("an importance for 1 of"));
        assert!(message(&with(0, 1.0), Some(&with(3, -1.0))).contains("the importance of column 3 is -1"));
        assert!(message(&with(0, 1.0), Some(&with(3, f32::NAN))).contains("the importance of column 3 is NaN"));
        if format != Format::Mxfp4 {
            assert!(message(&with(2, 1e9), None).contains("beyond 65504, the greatest f16"));
            assert!(message(&vec![f32::MAX; format.weights()], None).contains("beyond 65504"));
        }
    }
    let mut block = [0; 17];
    Format::Mxfp4.encode(&[f32::MAX; 32], None, &mut block).unwrap();
    assert!(decoded(Format::Mxfp4, &block).iter().all(|y| *y > 2e38 && y.is_finite()));
}

#[test]
fn formats_of_mlx_are_not_written() {
    let message = Format::Affine8Bf16.encode(&[1.0; 32], None, &mut [0; 36]).unwrap_err().to_string();
    assert_eq!(message, "AFFINE8_BF16: the format is read and not written");
}

/// Between the ends of the group, with numbers of bf16 that are not chosen with care.
fn plainly(x: &[f32], bits: u32) -> f32 {
    let [low, high] = [f32::min, f32::max].map(|of| x.iter().copied().reduce(of).unwrap());
    let [scale, offset] = [(high - low) / ((1 << bits) - 1) as f32, low].map(|number| bf16::from_f32(number).to_f32());
    let near = |x: &f32| scale * ((x - offset) / scale).round_ties_even().clamp(0.0, ((1 << bits) - 1) as f32) + offset;
    error(x, &x.iter().map(near).collect::<Vec<_>>(), |_| 1.0)
}

#[test]
fn groups_are_nearer_than_between_their_ends() {
    for (size, bits) in [32, 64, 128].into_iter().flat_map(|size| [2, 3, 4, 5, 6, 8].map(|bits| (size, bits))) {
        let (mut found, mut plain) = (0.0, 0.0);
        for x in values(Format::Q2K, 7).chunks(size) {
            let mut integers = vec![0; size];
            let [scale, offset] = encode_group(x, bits, DType::BF16, &mut integers).unwrap();
            assert_eq!([scale, offset].map(|number| bf16::from_f32(number).to_f32()), [scale, offset]);
            assert!(integers.iter().all(|q| u32::from(*q) < 1 << bits));
            let y: Vec<_> = integers.iter().map(|q| scale * f32::from(*q) + offset).collect();
            (found, plain) = (found + error(x, &y, |_| 1.0), plain + plainly(x, bits));
        }
        assert!(found < 0.97 * plain, "{bits} bits in groups of {size}: {found}, {plain} between the ends");
    }
    let mut integers = [9; 32];
    assert_eq!(encode_group(&[-3.5; 32], 4, DType::F16, &mut integers).unwrap(), [0.0, -3.5]);
    assert_eq!(encode_group(&[0.0; 32], 4, DType::F32, &mut integers).unwrap(), [0.0; 2]);
    for (value, dtype, bits, expected) in [
        (f32::NAN, DType::BF16, 4, "value 31 is NaN"),
        (1e9, DType::F16, 4, "beyond 65504, the greatest f16"),
        (1.0, DType::I32, 4, "scales of i32: f32, f16 or bf16 expected"),
        (1.0, DType::F32, 9, "32 values for 32 integers of 9 bits"),
    ] {
        let message = encode_group(&[vec![0.0; 31], vec![value]].concat(), bits, dtype, &mut integers).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
