//! The example programs compute what Rust does, on every device with the same bits.

use elinvar::atlas::{self, Constant, LaunchConfig};

use super::{Given, buffer, cpu, devices, elements, floats, run_on, scalar, zeros};

/// The buffers after a launch of an example; all devices must agree on every bit.
pub(crate) fn run(text: &str, launch: LaunchConfig, given: &[(&str, Given)]) -> Vec<Vec<u8>> {
    let program = atlas::parse(text).unwrap();
    let expected = run_on(&cpu(), &program, &launch, given);
    for device in devices() {
        assert!(expected == run_on(&device, &program, &launch, given), "{} differs on {}", program.name, device.properties().name);
    }
    expected
}

/// The text of an example.
macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../../examples/", $name, ".atlas"))
    };
}

fn close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() <= tolerance * expected.abs().max(1.0), "{index}: {found}, {expected} expected");
    }
}

#[test]
fn saxpy() {
    let (x, y) = (floats(1000), floats(1000));
    let given = [("x", buffer(&x)), ("y", buffer(&y)), ("a", Given::Scalar(Constant::f32(1.5))), ("n", scalar(1000))];
    let found = run(example!("saxpy"), LaunchConfig::linear(1000, 128), &given);
    assert!(elements::<f32>(&found[1]).iter().zip(x.iter().zip(&y)).all(|(found, (x, y))| *found == x.mul_add(1.5, *y)));
}

#[test]
fn histogram() {
    let data: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
    let given = [("data", buffer(&data)), ("counts", zeros::<u32>(256)), ("n", scalar(5000))];
    let found = run(example!("histogram"), LaunchConfig::new([4, 1, 1], [256, 1, 1]), &given);
    let mut expected = [0u32; 256];
    data.iter().for_each(|value| expected[usize::from(*value)] += 1);
    assert_eq!(elements::<u32>(&found[1]), expected);
}

#[test]
fn block_sum() {
    let x = floats(1000);
    let found = run(example!("block_sum"), LaunchConfig::linear(1000, 256), &[("x", buffer(&x)), ("sums", zeros::<f32>(4))]);
    let expected: Vec<f64> = x.chunks(256).map(|block| block.iter().map(|v| f64::from(*v)).sum()).collect();
    close(&elements::<f32>(&found[1]), &expected, 1e-5);
}

#[test]
fn row_sum() {
    // Rows of whole rounds of four words, of some words more, and of fewer.
    for words in [1024u32, 1500, 3] {
        let columns = 4 * words as usize;
        let x = floats(3 * columns);
        let given = [("x", buffer(&x)), ("y", zeros::<f32>(3)), ("words", scalar(words))];
        let found = run(example!("row_sum"), LaunchConfig::new([3, 1, 1], [256, 1, 1]), &given);
        let expected: Vec<f64> = x.chunks(columns).map(|row| row.iter().map(|v| f64::from(*v)).sum()).collect();
        close(&elements::<f32>(&found[1]), &expected, 1e-3);
    }
}

#[test]
fn prefix_sum() {
    let x: Vec<u32> = (0..600).map(|i| i * i).collect();
    let found = run(example!("prefix_sum"), LaunchConfig::linear(600, 256), &[("x", buffer(&x)), ("sums", zeros::<u32>(600))]);
    let sums = |block: &[u32]| {
        block
            .iter()
            .scan(0u32, |sum, v| {
                Some({
                    *sum += v;
                    *sum
                })
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(elements::<u32>(&found[1]), x.chunks(256).flat_map(sums).collect::<Vec<_>>());
}

#[test]
fn transpose() {
    let (rows, columns) = (37usize, 50usize);
    let x = floats(rows * columns);
    let given = [("x", buffer(&x)), ("y", zeros::<f32>(rows * columns)), ("rows", scalar(37)), ("columns", scalar(50))];
    let found = run(example!("transpose"), LaunchConfig::new([4, 3, 1], [16, 16, 1]), &given);
    let y = elements::<f32>(&found[1]);
    assert!((0..rows * columns).all(|i| y[i % columns * rows + i / columns] == x[i]));
}

#[test]
fn matmul() {
    let (m, n, k) = (33usize, 20usize, 45usize);
    let (a, b) = (floats(m * k), floats(k * n));
    let given = [("a", buffer(&a)), ("b", buffer(&b)), ("c", zeros::<f32>(m * n)), ("m", scalar(33)), ("n", scalar(20)), ("k", scalar(45))];
    let found = run(example!("matmul"), LaunchConfig::new([2, 3, 1], [16, 16, 1]), &given);
    let element = |i: usize| (0..k).fold(0f32, |sum, l| a[i / n * k + l].mul_add(b[l * n + i % n], sum));
    assert_eq!(elements::<f32>(&found[2]), (0..m * n).map(element).collect::<Vec<_>>());
}

#[test]
fn softmax() {
    let x = floats(3 * 700);
    let given = [("x", buffer(&x)), ("y", zeros::<f32>(3 * 700)), ("n", scalar(700))];
    let found = run(example!("softmax"), LaunchConfig::new([3, 1, 1], [256, 1, 1]), &given);
    let row = |row: &[f32]| {
        let exponentials: Vec<f64> = row.iter().map(|v| f64::from(*v).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        exponentials.into_iter().map(move |e| e / sum).collect::<Vec<_>>()
    };
    close(&elements::<f32>(&found[1]), &x.chunks(700).flat_map(row).collect::<Vec<_>>(), 1e-7);
}

#[test]
fn mandelbrot() {
    let given = [("counts", zeros::<u32>(48 * 30)), ("width", scalar(48)), ("height", scalar(30))];
    let found = run(example!("mandelbrot"), LaunchConfig::new([3, 2, 1], [16, 16, 1]), &given);
    let point = |i: usize| {
        let (cr, ci) = ((i % 48) as f32 / 48.0 * 3.5 - 2.5, (i / 48) as f32 / 30.0 * 2.0 - 1.0);
        let (mut zr, mut zi) = (0f32, 0f32);
        (0..256u32)
            .find(|_| {
                let (rr, ii, product) = (zr * zr, zi * zi, zr * zi);
                (zr, zi) = (rr - ii + cr, product + product + ci);
                rr + ii > 4.0
            })
            .unwrap_or(256)
    };
    assert_eq!(elements::<u32>(&found[0]), (0..48 * 30).map(point).collect::<Vec<_>>());
}

#[test]
fn life() {
    let (width, height) = (40usize, 30usize);
    let cells: Vec<u8> = (0..width * height).map(|i| u8::from(i * i % 7 < 3)).collect();
    let given = [("cells", buffer(&cells)), ("next", zeros::<u8>(width * height)), ("width", scalar(40)), ("height", scalar(30))];
    let found = run(example!("life"), LaunchConfig::new([3, 4, 1], [16, 8, 1]), &given);
    let next = |i: usize| {
        let at = |dx: usize, dy: usize| cells[(i / width + height + dy - 1) % height * width + (i % width + width + dx - 1) % width];
        let neighbours: u8 = (0..9).filter(|n| *n != 4).map(|n| at(n % 3, n / 3)).sum();
        u8::from(neighbours == 3 || neighbours == 2 && cells[i] == 1)
    };
    assert_eq!(found[1], (0..width * height).map(next).collect::<Vec<_>>());
}

#[test]
fn nbody() {
    let n = 300usize;
    let bodies = floats(4 * n);
    let given =
        [("bodies", buffer(&bodies)), ("acceleration", zeros::<f32>(3 * n)), ("n", scalar(300)), ("softening", Given::Scalar(Constant::f32(0.1)))];
    let found = run(example!("nbody"), LaunchConfig::linear(300, 256), &given);
    let body = |i: usize| std::array::from_fn::<f64, 4, _>(|axis| f64::from(bodies[4 * i + axis]));
    let expected: Vec<f64> = (0..n)
        .flat_map(|i| {
            let mut sum = [0f64; 3];
            for other in (0..n).map(body) {
                let distance: [f64; 3] = std::array::from_fn(|axis| other[axis] - body(i)[axis]);
                let square = distance.iter().map(|d| d * d).sum::<f64>() + f64::from(0.1f32);
                (0..3).for_each(|axis| sum[axis] += other[3] * square.powf(-1.5) * distance[axis]);
            }
            sum
        })
        .collect();
    close(&elements::<f32>(&found[1]), &expected, 1e-3);
}
