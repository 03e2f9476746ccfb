//! What functions compute with: one number, or a packet of them.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// One f32 or several: each operation is that of f32 on each.
pub trait Real: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self> {
    /// A truth value for each number.
    type Mask: Copy;
    /// A 32-bit integer for each number.
    type Int: Copy;

    /// The same number everywhere.
    fn of(value: f32) -> Self;

    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;

    /// The magnitude.
    fn abs(self) -> Self;

    /// The magnitude with the sign of another number.
    fn copysign(self, sign: Self) -> Self;

    /// `low` where the number is below it; NaN stays NaN.
    fn at_least(self, low: f32) -> Self;

    /// `high` where the number is above it; NaN stays NaN.
    fn at_most(self, high: f32) -> Self;

    /// Where the number is below `bound`.
    fn is_below(self, bound: f32) -> Self::Mask;

    /// Whether any number is below `bound`.
    fn any_below(self, bound: f32) -> bool;

    /// `yes` where the mask is set, else `no`.
    fn choose(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// The numbers' bits.
    fn bits(self) -> Self::Int;

    /// The numbers of these bits.
    fn from_bits(bits: Self::Int) -> Self;

    /// The sum with a constant, which wraps.
    fn plus(a: Self::Int, b: i32) -> Self::Int;

    /// The difference, which wraps.
    fn minus(a: Self::Int, b: Self::Int) -> Self::Int;

    /// Half of it, rounded down.
    fn halved(a: Self::Int) -> Self::Int;

    /// The larger of it and a constant.
    fn larger(a: Self::Int, low: i32) -> Self::Int;

    /// Its low bits as the exponents of floats.
    fn exponents(a: Self::Int) -> Self::Int;
}

impl Real for f32 {
    type Mask = bool;
    type Int = i32;

    #[inline(always)]
    fn of(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        f32::abs(self)
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        f32::copysign(self, sign)
    }

    #[inline(always)]
    fn at_least(self, low: f32) -> Self {
        if self < low { low } else { self }
    }

    #[inline(always)]
    fn at_most(self, high: f32) -> Self {
        if self > high { high } else { self }
    }

    #[inline(always)]
    fn is_below(self, bound: f32) -> bool {
        self < bound
    }

    #[inline(always)]
    fn any_below(self, bound: f32) -> bool {
        self < bound
    }

    #[inline(always)]
    fn choose(mask: bool, yes: Self, no: Self) -> Self {
        if mask { yes } else { no }
    }

    #[inline(always)]
    fn bits(self) -> i32 {
        self.to_bits() as i32
    }

    #[inline(always)]
    fn from_bits(bits: i32) -> Self {
        f32::from_bits(bits as u32)
    }

    #[inline(always)]
    fn plus(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn minus(a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }

    #[inline(always)]
    fn halved(a: i32) -> i32 {
        a >> 1
    }

    #[inline(always)]
    fn larger(a: i32, low: i32) -> i32 {
        if a < low { low } else { a }
    }

    #[inline(always)]
    fn exponents(a: i32) -> i32 {
        a << 23
    }
}
