//! Integers wrap; division is total; shifts take their count modulo the width.

use std::marker::PhantomData;

use super::{One, Op1, Op2, Op3, Three, Two, map1, map2, map3};
use crate::program::{Binary, Compare, Ternary, Unary};

pub(super) trait Integer: bytemuck::Pod + Ord {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shl(self, other: Self) -> Self;
    fn shr(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn popcount(self) -> Self;
}

macro_rules! integers {
    ($($type:ident, |$x:ident| $abs:expr;)*) => {$(
        impl Integer for $type {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn div(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn rem(self, other: Self) -> Self { if other == 0 { self } else { self.wrapping_rem(other) } }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn shl(self, other: Self) -> Self { self << (other & ($type::BITS - 1) as $type) }
            #[inline(always)]
            fn shr(self, other: Self) -> Self { self >> (other & ($type::BITS - 1) as $type) }
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self { let $x = self; $abs }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn popcount(self) -> Self { self.count_ones() as $type }
        }
    )*};
}
integers! {
    i8, |x| x.wrapping_abs();
    i16, |x| x.wrapping_abs();
    i32, |x| x.wrapping_abs();
    i64, |x| x.wrapping_abs();
    u8, |x| x;
    u16, |x| x;
    u32, |x| x;
    u64, |x| x;
}

macro_rules! integer_operations {
    ($($trait:ident { $($name:ident |$($x:ident),+| $body:expr;)* })*) => {$($(
        struct $name<T>(PhantomData<T>);
        impl<T: Integer> $trait for $name<T> {
            type A = T;
            type R = T;
            #[inline(always)]
            fn at($($x: T),+) -> T { $body }
        }
    )*)*};
}
integer_operations! {
    Op1 {
        Neg |a| a.neg();
        Abs |a| Integer::abs(a);
        Not |a| Integer::not(a);
        Popcount |a| a.popcount();
    }
    Op2 {
        Add |a, b| a.add(b);
        Sub |a, b| a.sub(b);
        Mul |a, b| a.mul(b);
        Div |a, b| a.div(b);
        Rem |a, b| a.rem(b);
        Min |a, b| if b < a { b } else { a };
        Max |a, b| if b > a { b } else { a };
        And |a, b| a.and(b);
        Or |a, b| a.or(b);
        Xor |a, b| a.xor(b);
        Shl |a, b| a.shl(b);
        Shr |a, b| a.shr(b);
    }
}

struct Mad<T>(PhantomData<T>);
impl<T: Integer> Op3 for Mad<T> {
    type A = T;
    #[inline(always)]
    fn at(a: T, b: T, c: T) -> T {
        a.mul(b).add(c)
    }
}

/// The opposite of a bool.
pub(super) struct NotBool;
impl Op1 for NotBool {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn at(a: u8) -> u8 {
        a ^ 1
    }
}

macro_rules! comparisons {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(super) struct $name<T>(PhantomData<T>);
        impl<T: bytemuck::Pod + PartialOrd> Op2 for $name<T> {
            type A = T;
            type R = u8;
            #[inline(always)]
            fn at($a: T, $b: T) -> u8 { u8::from($body) }
        }
    )*};
}
comparisons! {
    Eq |a, b| a == b;
    Ne |a, b| a != b;
    Lt |a, b| a < b;
    Le |a, b| a <= b;
    Gt |a, b| a > b;
    Ge |a, b| a >= b;
}

pub(super) fn unary<T: Integer>(op: Unary) -> Option<One> {
    Some(match op {
        Unary::Neg => map1::<Neg<T>>,
        Unary::Abs => map1::<Abs<T>>,
        Unary::Not => map1::<Not<T>>,
        Unary::Popcount => map1::<Popcount<T>>,
        _ => return None,
    })
}

pub(super) fn binary<T: Integer>(op: Binary) -> Option<Two> {
    Some(match op {
        Binary::Add => map2::<Add<T>>,
        Binary::Sub => map2::<Sub<T>>,
        Binary::Mul => map2::<Mul<T>>,
        Binary::Div => map2::<Div<T>>,
        Binary::Rem => map2::<Rem<T>>,
        Binary::Min => map2::<Min<T>>,
        Binary::Max => map2::<Max<T>>,
        Binary::And => map2::<And<T>>,
        Binary::Or => map2::<Or<T>>,
        Binary::Xor => map2::<Xor<T>>,
        Binary::Shl => map2::<Shl<T>>,
        Binary::Shr => map2::<Shr<T>>,
        Binary::Pow => return None,
    })
}

pub(super) fn ternary<T: Integer>(op: Ternary) -> Option<Three> {
    (op == Ternary::Mad).then_some(map3::<Mad<T>> as Three)
}

pub(super) fn compare<T: bytemuck::Pod + PartialOrd>(op: Compare) -> Two {
    match op {
        Compare::Eq => map2::<Eq<T>>,
        Compare::Ne => map2::<Ne<T>>,
        Compare::Lt => map2::<Lt<T>>,
        Compare::Le => map2::<Le<T>>,
        Compare::Gt => map2::<Gt<T>>,
        Compare::Ge => map2::<Ge<T>>,
    }
}
