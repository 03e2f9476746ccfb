//! Every instruction on values of a type, and what each must give: computed one value at a time, integers in i128, floats in f32.

#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod cooperation;
pub(crate) mod random;
pub(crate) mod scalar;

use elinvar_atlas::{Binary, Compare, Constant, Ternary, Unary, is_floating, is_signed};
use elinvar_core::DType;
use elinvar_math as math;

/// How many values of a type there are; operands are all pairs.
pub(crate) const VALUES: usize = 16;
/// Threads.
pub(crate) const THREADS: usize = VALUES * VALUES;

/// A program of all instructions on a type, its operands and its results.
pub(crate) struct Table {
    pub(crate) text: String,
    pub(crate) a: Vec<u8>,
    pub(crate) b: Vec<u8>,
    pub(crate) c: Vec<u8>,
    /// Of each output buffer its name, its type and its contents.
    pub(crate) outputs: Vec<(String, DType, Vec<u8>)>,
    /// What each stretch of [`THREADS`] results of an output is of.
    pub(crate) instructions: Vec<Vec<String>>,
}

/// Some of which lie beside and between those of narrower types.
const DOUBLES: [f64; VALUES] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    f64::INFINITY,
    f64::NAN,
    f64::MAX,
    f64::MIN_POSITIVE,
    1.0 + f64::EPSILON,
    1.000_488_281_250_000_2,
    1.003_906_25 - f64::EPSILON,
    65_519.999_999_999_99,
    -3.402_823_567_797_336_6e38,
    -1.844_674_407_370_955_2e19,
    0.1,
];

pub(crate) fn values(dtype: DType) -> Vec<u64> {
    let floats = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.25e4, 1.0e-6, 130.7, -0.017, 7.0, -2.0e9];
    let (low, high) = range(dtype);
    let integers = [0, 1, low, high, low + 1, high - 1, 2, 3, 7, 100, 31, 33, high / 2 + 1, high / 3, 63, low / 2 + 5];
    match dtype {
        DType::Bool => (0..VALUES as u64).map(|i| i & 1).collect(),
        DType::F64 => DOUBLES.iter().map(|v| Constant::f64(*v).bits).collect(),
        _ if dtype.is_float() => floats.iter().map(|v| Constant::float(dtype, *v).bits).collect(),
        _ => integers.iter().map(|v| wrap(dtype, *v)).collect(),
    }
}

fn range(dtype: DType) -> (i128, i128) {
    let width = 8 * dtype.size() as u32;
    if is_signed(dtype) { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

/// The low bits of an integer.
fn wrap(dtype: DType, value: i128) -> u64 {
    value.rem_euclid(1i128 << (8 * dtype.size())) as u64
}

fn integer(dtype: DType, bits: u64) -> i128 {
    Constant { dtype, bits }.as_integer()
}

pub(crate) fn float(dtype: DType, bits: u64) -> f32 {
    Constant { dtype, bits }.as_f32()
}

pub(crate) fn unary(op: Unary, dtype: DType, a: u64) -> Option<u64> {
    if dtype == DType::Bool {
        return (op == Unary::Not).then_some(1 - a);
    }
    if dtype.is_integer() {
        let x = integer(dtype, a);
        let value = match op {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Not => -1 - x,
            Unary::Sign => x.signum(),
            Unary::Square => x.wrapping_mul(x),
            Unary::Relu => x.max(0),
            Unary::Popcount => (0..64).map(|bit| i128::from(a >> bit & 1)).sum(),
            _ => return None,
        };
        return Some(wrap(dtype, value));
    }
    if dtype == DType::F64 {
        let x = f64::from_bits(a);
        let value = match op {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Trunc => x.trunc(),
            Unary::Round => x.round_ties_even(),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Reciprocal => x.recip(),
            Unary::Square => x * x,
            Unary::Sign => [x, x.signum()][usize::from(x != 0.0)],
            Unary::Relu => [x, 0.0][usize::from(x < 0.0)],
            _ => return None,
        };
        return Some(Constant::f64(value).bits);
    }
    let x = float(dtype, a);
    let value = match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Not | Unary::Popcount => return None,
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Trunc => x.trunc(),
        Unary::Round => x.round_ties_even(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Exp => math::exp(x),
        Unary::Exp2 => math::exp2(x),
        Unary::Log => math::log(x),
        Unary::Log2 => math::log2(x),
        Unary::Reciprocal => x.recip(),
        Unary::Square => x * x,
        Unary::Sign => [x, x.signum()][usize::from(x != 0.0)],
        Unary::Relu => [x, 0.0][usize::from(x < 0.0)],
        Unary::Log10 => math::log2(x) * std::f32::consts::LOG10_2,
        Unary::Log1p => math::log1p(x),
        Unary::Softplus => math::softplus(x),
        Unary::Mish => math::mish(x),
        Unary::Softsign => x / (1.0 + x.abs()),
        Unary::Selu => math::selu(x),
        Unary::HardSwish if x.is_nan() => x,
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Sin => math::sin(x),
        Unary::Cos => math::cos(x),
        Unary::Tan => math::tan(x),
        Unary::Tanh => math::tanh(x),
        Unary::Sigmoid => math::sigmoid(x),
        Unary::Silu => math::silu(x),
        Unary::Erf => math::erf(x),
        Unary::Gelu => math::gelu(x),
        Unary::GeluTanh => math::gelu_tanh(x),
    };
    Some(Constant::float(dtype, value).bits)
}

pub(crate) fn binary(op: Binary, dtype: DType, a: u64, b: u64) -> Option<u64> {
    let bitwise = match op {
        Binary::And => Some(a & b),
        Binary::Or => Some(a | b),
        Binary::Xor => Some(a ^ b),
        _ => None,
    };
    if bitwise.is_some() || dtype == DType::Bool {
        return bitwise.filter(|_| !is_floating(dtype));
    }
    if dtype == DType::F64 {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let value = match op {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Rem => (-(x / y).trunc()).mul_add(y, x),
            Binary::Min | Binary::Max if x.is_nan() || y.is_nan() => f64::NAN,
            Binary::Min => [y, x][usize::from(x < y)],
            Binary::Max => [y, x][usize::from(x > y)],
            Binary::LeakyRelu => [x, x * y][usize::from(x < 0.0)],
            _ => return None,
        };
        return Some(Constant::f64(value).bits);
    }
    if dtype.is_float() {
        let (x, y) = (float(dtype, a), float(dtype, b));
        let extreme = |first: bool| {
            if x.is_nan() || y.is_nan() {
                f32::NAN
            } else if first {
                x
            } else {
                y
            }
        };
        let value = match op {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Rem => (-(x / y).trunc()).mul_add(y, x),
            Binary::Min => extreme(x < y),
            Binary::Max => extreme(x > y),
            Binary::Pow => math::pow(x, y),
            Binary::LeakyRelu => [x, x * y][usize::from(x < 0.0)],
            Binary::Elu => math::elu(x, y),
            Binary::HardSigmoid => math::hard_sigmoid(x, y),
            _ => return None,
        };
        return Some(Constant::float(dtype, value).bits);
    }
    let (x, y) = (integer(dtype, a), integer(dtype, b));
    let count = y.rem_euclid(8 * dtype.size() as i128) as u32;
    let value = match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x.wrapping_mul(y),
        Binary::Div => x.checked_div(y).unwrap_or(0),
        Binary::Rem => x.checked_rem(y).unwrap_or(x),
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::Shl => x << count,
        Binary::Shr => x >> count,
        _ => return None,
    };
    Some(wrap(dtype, value))
}

pub(crate) fn ternary(op: Ternary, dtype: DType, a: u64, b: u64, c: u64) -> Option<u64> {
    if dtype.is_float() {
        let (x, y, z) = (float(dtype, a), float(dtype, b), float(dtype, c));
        let value = if op == Ternary::Fma { x.mul_add(y, z) } else { x * y + z };
        return Some(Constant::float(dtype, value).bits);
    }
    if dtype == DType::F64 {
        let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        return Some(Constant::f64(if op == Ternary::Fma { x.mul_add(y, z) } else { x * y + z }).bits);
    }
    let product = integer(DType::U64, a).wrapping_mul(integer(DType::U64, b));
    (op == Ternary::Mad && dtype.is_integer()).then(|| wrap(dtype, product.wrapping_add(integer(DType::U64, c))))
}

pub(crate) fn compare(op: Compare, dtype: DType, a: u64, b: u64) -> Option<bool> {
    let value = |bits| Constant { dtype, bits }.as_f64();
    let order = if is_floating(dtype) {
        value(a).partial_cmp(&value(b))
    } else if dtype == DType::Bool {
        matches!(op, Compare::Eq | Compare::Ne).then_some(a.cmp(&b))
    } else {
        Some(integer(dtype, a).cmp(&integer(dtype, b)))
    };
    if order.is_none() && !is_floating(dtype) {
        return None;
    }
    Some(match op {
        Compare::Eq => order.is_some_and(|o| o.is_eq()),
        Compare::Ne => order.is_none_or(|o| o.is_ne()),
        Compare::Lt => order.is_some_and(|o| o.is_lt()),
        Compare::Le => order.is_some_and(|o| o.is_le()),
        Compare::Gt => order.is_some_and(|o| o.is_gt()),
        Compare::Ge => order.is_some_and(|o| o.is_ge()),
    })
}

/// An integer rounded once, to nearest even, to a float of `digits` binary digits.
fn round_integer(value: i128, digits: u32) -> f64 {
    let magnitude = value.unsigned_abs();
    let drop = (128 - magnitude.leading_zeros()).saturating_sub(digits);
    let (kept, rest, half) = (magnitude >> drop, magnitude & ((1 << drop) - 1), (1u128 << drop) >> 1);
    let up = drop > 0 && (rest > half || rest == half && kept & 1 == 1);
    let rounded = ((kept + u128::from(up)) << drop) as f64;
    if value < 0 { -rounded } else { rounded }
}

/// A number rounded once, to nearest even, to so many binary digits and to a multiple of 2 to the power `least`.
fn round_double(x: f64, digits: i32, least: i32) -> f64 {
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi((exponent + 1 - digits).max(least));
    if x.is_finite() { (x / unit).round_ties_even() * unit } else { x }
}

pub(crate) fn convert(from: DType, to: DType, a: u64) -> u64 {
    if from == to {
        return a;
    }
    if to == DType::Bool {
        return u64::from(if is_floating(from) { Constant { dtype: from, bits: a }.as_f64() != 0.0 } else { a != 0 });
    }
    match (is_floating(from), is_floating(to)) {
        (true, true) => {
            let x = Constant { dtype: from, bits: a }.as_f64();
            match to {
                DType::F64 => Constant::f64(x).bits,
                DType::F16 => Constant::float(to, round_double(x, 11, -24) as f32).bits,
                DType::BF16 => Constant::float(to, round_double(x, 8, -133) as f32).bits,
                _ => Constant::float(to, x as f32).bits,
            }
        }
        (true, false) => {
            let (low, high) = range(to);
            let x = Constant { dtype: from, bits: a }.as_f64();
            let value = if x.is_nan() { 0 } else { (x.trunc().clamp(-1e30, 1e30) as i128).clamp(low, high) };
            wrap(to, value)
        }
        (false, true) => {
            let value = if from == DType::Bool { i128::from(a) } else { integer(from, a) };
            let digits = match to {
                DType::F16 => 11,
                DType::BF16 => 8,
                DType::F64 => 53,
                _ => 24,
            };
            let value = round_integer(value, digits);
            if to == DType::F64 { Constant::f64(value).bits } else { Constant::float(to, value as f32).bits }
        }
        (false, false) => wrap(to, if from == DType::Bool { i128::from(a) } else { integer(from, a) }),
    }
}

fn put(bytes: &mut Vec<u8>, dtype: DType, bits: u64) {
    bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
}

/// The table of a type, converted to each of `types`. With `divergent`, threads of odd number take another path, which gives them their first operand or true instead.
pub(crate) fn table(dtype: DType, types: &[DType], divergent: bool) -> Table {
    let all = values(dtype);
    let operands = |i: usize| (all[i / VALUES], all[i % VALUES], all[(i / VALUES + 3 * i) % VALUES]);
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..THREADS {
        let (x, y, z) = operands(i);
        put(&mut a, dtype, x);
        put(&mut b, dtype, y);
        put(&mut c, dtype, z);
    }
    let mut table = Table { text: String::new(), a, b, c, outputs: Vec::new(), instructions: Vec::new() };
    let mut statements = String::new();
    let mut add = |output: &str, result: DType, instruction: String, value: &dyn Fn(usize) -> u64| {
        let place = table.outputs.iter().position(|(name, ..)| name == output).unwrap_or_else(|| {
            table.outputs.push((output.to_owned(), result, Vec::new()));
            table.instructions.push(Vec::new());
            table.outputs.len() - 1
        });
        let at = table.instructions[place].len() * THREADS;
        let name = format!("r_{output}");
        if divergent {
            let other = if result == dtype { "x" } else { "one" };
            let other = if result == dtype { other.to_owned() } else { format!("{other}_{output}") };
            statements += &format!("  if odd\n    {name} = move {other}\n  else\n    {name}: {result} = {instruction}\n  end\n");
        } else {
            statements += &format!("  {name}: {result} = {instruction}\n");
        }
        statements += &format!("  at = add i {at}\n  store {output}[at] {name}\n");
        for i in 0..THREADS {
            let one = if is_floating(result) { Constant::float(result, 1.0).bits } else { 1 };
            let other = if result == dtype { operands(i).0 } else { one };
            put(&mut table.outputs[place].2, result, if divergent && i % 2 == 1 { other } else { value(i) });
        }
        table.instructions[place].push(instruction);
    };
    for &op in Unary::ALL {
        if unary(op, dtype, all[0]).is_some() {
            add("same", dtype, format!("{} x", op.name()), &|i| unary(op, dtype, operands(i).0).unwrap_or(0));
        }
    }
    for &op in Binary::ALL {
        if binary(op, dtype, all[0], all[1]).is_some() {
            add("same", dtype, format!("{} x y", op.name()), &|i| binary(op, dtype, operands(i).0, operands(i).1).unwrap_or(0));
        }
    }
    for &op in Ternary::ALL {
        if ternary(op, dtype, 0, 0, 0).is_some() {
            let value = |i: usize| {
                let (a, b, c) = operands(i);
                ternary(op, dtype, a, b, c).unwrap_or(0)
            };
            add("same", dtype, format!("{} x y z", op.name()), &value);
        }
    }
    add("same", dtype, "select small x y".to_owned(), &|i| if i < 100 { operands(i).0 } else { operands(i).1 });
    for &op in Compare::ALL {
        if compare(op, dtype, all[0], all[1]).is_some() {
            let output = if dtype == DType::Bool { "same" } else { "truth" };
            add(output, DType::Bool, format!("{} x y", op.name()), &|i| u64::from(compare(op, dtype, operands(i).0, operands(i).1).unwrap_or(false)));
        }
    }
    for &to in types.iter().filter(|to| **to != dtype) {
        add(&format!("to_{to}"), to, "convert x".to_owned(), &|i| convert(dtype, to, operands(i).0));
    }
    let header: String = table.outputs.iter().map(|(name, dtype, _)| format!("buffer {name}: write {dtype}\n")).collect();
    let ones: String = table
        .outputs
        .iter()
        .filter(|(_, result, _)| divergent && *result != dtype)
        .map(|(name, result, _)| {
            let one = match result {
                DType::Bool => "true",
                d if is_floating(*d) => "1.0",
                _ => "1",
            };
            format!("  one_{name}: {result} = move {one}\n")
        })
        .collect();
    table.text = format!(
        "atlas 1\nprogram table\nbuffer a: read {dtype}\nbuffer b: read {dtype}\nbuffer c: read {dtype}\n{header}kernel\n  i = position.x\n  \
         x = load a[i]\n  y = load b[i]\n  z = load c[i]\n  small = lt i 100\n  bit = and i 1\n  odd = ne bit 0\n{ones}{statements}end\n"
    );
    table
}

/// The first result that differs; NaNs are alike.
pub(crate) fn difference(table: &Table, output: usize, found: &[u8]) -> Option<String> {
    let (name, dtype, expected) = &table.outputs[output];
    let size = dtype.size();
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let is_nan = |bits: u64| is_floating(*dtype) && Constant { dtype: *dtype, bits }.as_f64().is_nan();
    let place = found.chunks(size).zip(expected.chunks(size)).position(|(f, e)| f != e && !(is_nan(bits(f)) && is_nan(bits(e))))?;
    let value = |bytes: &[u8]| bits(&bytes[place * size..][..size]);
    let operand = |bytes: &[u8]| {
        let size = bytes.len() / THREADS;
        bits(&bytes[place % THREADS * size..][..size])
    };
    let (instruction, thread) = (&table.instructions[output][place / THREADS], place % THREADS);
    Some(format!(
        "{name}, '{instruction}' of {:#x} {:#x} {:#x} in thread {thread} is {:#x}, not {:#x}",
        operand(&table.a),
        operand(&table.b),
        operand(&table.c),
        value(found),
        value(expected)
    ))
}
