//! What the tables of functions expand to.

use super::Integer;
use crate::Real;

/// A function of one number of type `T`.
pub trait Function1<T> {
    /// Its value.
    fn at(a: T) -> T;

    /// Its values of numbers of f32, if it is so long that a packet of them is faster.
    #[inline(always)]
    fn of_packet<R: Real>(_a: R) -> Option<R> {
        None
    }
}

/// A function of two numbers of type `T`.
pub trait Function2<T> {
    /// Its value.
    fn at(a: T, b: T) -> T;
}

/// A function of three numbers of type `T`.
pub trait Function3<T> {
    /// Its value.
    fn at(a: T, b: T, c: T) -> T;
}

/// Whether two numbers of any type compare so.
pub trait Relation {
    /// Whether it holds.
    fn holds<T: PartialOrd>(a: &T, b: &T) -> bool;
}

macro_rules! visitors {
    ($($name:ident $function:ident;)*) => {$(
        /// Takes a function as a type, in the type that it computes in: so a loop is compiled for each.
        pub trait $name {
            /// What the visitor makes of it.
            type Output;

            /// f32, in which the 16-bit floats compute too.
            fn float<F: $function<f32>>(self) -> Self::Output;

            /// f64.
            fn double<F: $function<f64>>(self) -> Self::Output;

            /// An integer.
            fn integer<T: Integer, F: $function<T>>(self) -> Self::Output;

            /// A truth value, 0 or 1.
            fn truth<F: $function<u8>>(self) -> Self::Output;
        }
    )*};
}
visitors! {
    Visitor1 Function1;
    Visitor2 Function2;
    Visitor3 Function3;
}

/// How far an f32 result may be from the exact one, before the rounding to a narrower type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBound {
    /// Units in the last place of the exact result; zero where each operation of the definition is correctly rounded.
    pub ulp: f64,
    /// To be added, where a sum inside cancels.
    pub absolute: f64,
}

/// The functions of one table: an enumeration of them, and for each what its row says.
///
/// A row is `Variant "name" { … }` with, in this order and each but the reference left out where there is none: `float` its definition in f32 and f64,
/// `f32` and `f64` one of them alone, `bfloat` a faster f32 definition for arguments that are bfloats with the same results when rounded to bfloat,
/// `integer`, `truth` its definition on 0 and 1, `reference` in f64 with its error bound, `derivative` for each argument, given them and the value, and
/// `metal` its name there where that is not `strict::name`. `packets` after a definition in f32: it is generic, and faster of a packet of numbers.
macro_rules! functions {
    ($(#[$enum_doc:meta])* $enum:ident: $function:ident $visitor:ident $markers:ident $arity:tt {$(
        #[doc = $doc:literal]
        $name:ident $text:literal {
            $(float |$($fx:ident),+| $float:expr;)?
            $(f32 |$($sx:ident),+| $single:expr $(, $packets:ident)?;)?
            $(bfloat |$($bx:ident),+| $bfloat:expr $(, $bfloat_packets:ident)?;)?
            $(integer |$($ix:ident),+| $integer:expr;)?
            $(truth |$($tx:ident),+| $truth:expr;)?
            reference |$($rx:ident),+| $reference:expr $(, within $ulp:literal $(plus $absolute:literal)?)?;
            $(derivative |$($dx:pat_param),+| $dy:pat_param => [$($derivative:expr),+];)?
            $(metal $metal:literal;)?
        }
    )*}) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $enum { $(#[doc = $doc] $name,)* }

        /// The functions as types.
        pub(super) mod $markers {
            use super::*;
            $(
                #[doc = $doc]
                pub struct $name;
                $(
                    impl $function<f32> for $name {
                        #[inline(always)]
                        fn at($($fx: f32),+) -> f32 { $float }
                    }
                    impl $function<f64> for $name {
                        #[inline(always)]
                        fn at($($fx: f64),+) -> f64 { $float }
                    }
                )?
                $(impl $function<f32> for $name {
                    #[inline(always)]
                    fn at($($sx: f32),+) -> f32 { $single }
                    functions!(@packets [$($packets)?] ($($sx),+) $single);
                })?
                $(impl<T: Integer> $function<T> for $name {
                    #[inline(always)]
                    fn at($($ix: T),+) -> T { $integer }
                })?
            )*
        }

        /// What bfloats are computed by, where that differs.
        pub(super) mod bfloat {
            #[allow(unused_imports, reason = "a table may have none")]
            use super::*;
            $($(
                #[doc = $doc]
                pub struct $name;
                impl $function<f32> for $name {
                    #[inline(always)]
                    fn at($($bx: f32),+) -> f32 { $bfloat }
                    functions!(@packets [$($bfloat_packets)?] ($($bx),+) $bfloat);
                }
            )?)*
        }

        /// What truth values are computed by.
        mod truth {
            #[allow(unused_imports, reason = "a table may have none")]
            use super::*;
            $($(
                pub(crate) struct $name;
                impl $function<u8> for $name {
                    #[inline(always)]
                    fn at($($tx: u8),+) -> u8 { $truth }
                }
            )?)*
        }

        impl $enum {
            /// All of them.
            pub const ALL: &[$enum] = &[$($enum::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$name => $text,)* }
            }

            /// What it computes, in a line.
            pub const fn summary(self) -> &'static str {
                match self { $($enum::$name => $doc.trim_ascii(),)* }
            }

            /// The function of that name.
            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($text => Some($enum::$name),)* _ => None }
            }

            /// Its name in Metal, after [`METAL`](crate::METAL) and [`functions::METAL`](crate::functions::METAL).
            pub const fn metal(self) -> &'static str {
                match self { $($enum::$name => functions!(@or concat!("strict::", $text) $(, $metal)?),)* }
            }

            /// Its function object in Metal, a template argument.
            pub const fn object(self) -> &'static [&'static str; 1] {
                match self { $($enum::$name => &[concat!("function::", stringify!($name))],)* }
            }

            /// What defines the function object, after the texts that [`metal`](Self::metal) names.
            pub const fn definition(self) -> MetalFile {
                match self {
                    $($enum::$name => MetalFile {
                        name: concat!("math/", $text, ".metal"),
                        text: functions!(@object $arity $name (functions!(@or concat!("strict::", $text) $(, $metal)?))),
                    },)*
                }
            }

            /// All function objects.
            pub const OBJECTS: MetalFile = MetalFile {
                name: concat!("math/", stringify!($markers), ".metal"),
                text: concat!($(functions!(@object $arity $name (functions!(@or concat!("strict::", $text) $(, $metal)?)))),*),
            };

            /// Whether it takes numbers of that type.
            pub const fn takes(self, dtype: DType) -> bool {
                match dtype {
                    DType::F32 | DType::F16 | DType::BF16 => match self { $($enum::$name => functions!(@any $($float)? $($single)?),)* },
                    DType::F64 => match self { $($enum::$name => functions!(@any $($float)?),)* },
                    DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                        match self { $($enum::$name => functions!(@any $($integer)?),)* }
                    }
                    DType::Bool => match self { $($enum::$name => functions!(@any $($truth)?),)* },
                }
            }

            /// Gives `visitor` the function that computes values of that type; none if it takes none such.
            pub fn visit<V: $visitor>(self, dtype: DType, visitor: V) -> Option<V::Output> {
                match dtype {
                    DType::F32 | DType::F16 => self.visit_float(visitor),
                    DType::BF16 => match self {
                        $($enum::$name => functions!(@bfloat self visitor $name $($bfloat)?),)*
                    },
                    DType::F64 => match self {
                        $($enum::$name => functions!(@visit visitor double (f64, $markers) $name $($float)?),)*
                    },
                    DType::I8 => self.visit_integer::<i8, V>(visitor),
                    DType::I16 => self.visit_integer::<i16, V>(visitor),
                    DType::I32 => self.visit_integer::<i32, V>(visitor),
                    DType::I64 => self.visit_integer::<i64, V>(visitor),
                    DType::U8 => self.visit_integer::<u8, V>(visitor),
                    DType::U16 => self.visit_integer::<u16, V>(visitor),
                    DType::U32 => self.visit_integer::<u32, V>(visitor),
                    DType::U64 => self.visit_integer::<u64, V>(visitor),
                    DType::Bool => match self {
                        $($enum::$name => functions!(@visit visitor truth (u8, truth) $name $($truth)?),)*
                    },
                }
            }

            fn visit_float<V: $visitor>(self, visitor: V) -> Option<V::Output> {
                match self {
                    $($enum::$name => functions!(@visit visitor float (f32, $markers) $name $($float)? $($single)?),)*
                }
            }

            fn visit_integer<T: Integer, V: $visitor>(self, visitor: V) -> Option<V::Output> {
                match self {
                    $($enum::$name => functions!(@integer visitor T $markers $name $($integer)?),)*
                }
            }

            /// The same function in f64, correct to a few units in the last place of that.
            pub fn reference(self, arguments: [f64; $arity]) -> f64 {
                match self {
                    $($enum::$name => {
                        let [$($rx),+] = arguments;
                        $reference
                    })*
                }
            }

            /// How far it may be from [the reference](Self::reference).
            pub const fn error(self) -> ErrorBound {
                match self { $($enum::$name => functions!(@error $($ulp $($absolute)?)?),)* }
            }

            /// Its derivative by each argument; none if it has none (of integers and bits).
            ///
            /// At a kink it is what PyTorch's is: of equal arguments `min` and `max` take half of each.
            pub fn derivative(self) -> Option<Vec<Expression>> {
                match self {
                    $($enum::$name => functions!(@derivative $arity $([$($dx),+ => $dy] [$($derivative),+])?),)*
                }
            }
        }
    };
    (@packets [] ($($a:ident),+) $value:expr) => {};
    (@packets [packets] ($a:ident) $value:expr) => {
        #[inline(always)]
        fn of_packet<R: Real>($a: R) -> Option<R> { Some($value) }
    };
    (@object 1 $name:ident ($metal:expr)) => {
        concat!("namespace function { struct ", stringify!($name), " { template <typename T> static T apply(T a) { return ", $metal, "(a); } }; }\n")
    };
    (@object 2 $name:ident ($metal:expr)) => {
        concat!("namespace function { struct ", stringify!($name), " { template <typename T> static T apply(T a, T b) { return ", $metal, "(a, b); } }; }\n")
    };
    (@object 3 $name:ident ($metal:expr)) => {
        concat!("namespace function { struct ", stringify!($name), " { template <typename T> static T apply(T a, T b, T c) { return ", $metal, "(a, b, c); } }; }\n")
    };
    (@or $default:expr) => { $default };
    (@or $default:expr, $given:literal) => { $given };
    (@any) => { false };
    (@any $($body:expr)+) => { true };
    (@visit $visitor:ident $method:ident ($type:ty, $module:ident) $name:ident) => {{ drop($visitor); None }};
    (@visit $visitor:ident $method:ident ($type:ty, $module:ident) $name:ident $body:expr) => { Some($visitor.$method::<$module::$name>()) };
    (@integer $visitor:ident $t:ident $module:ident $name:ident) => {{ drop($visitor); None }};
    (@integer $visitor:ident $t:ident $module:ident $name:ident $body:expr) => { Some($visitor.integer::<$t, $module::$name>()) };
    (@bfloat $self:ident $visitor:ident $name:ident) => { $self.visit_float($visitor) };
    (@bfloat $self:ident $visitor:ident $name:ident $body:expr) => { Some($visitor.float::<bfloat::$name>()) };
    (@error) => { ErrorBound { ulp: 0.0, absolute: 0.0 } };
    (@error $ulp:literal) => { ErrorBound { ulp: $ulp, absolute: 0.0 } };
    (@error $ulp:literal $absolute:literal) => { ErrorBound { ulp: $ulp, absolute: $absolute } };
    (@derivative $arity:tt) => { None };
    (@derivative 1 [$x:pat_param => $y:pat_param] [$derivative:expr]) => {{
        let ($x, $y) = (&Expression::Argument(0), &Expression::Value);
        Some(vec![$derivative.into()])
    }};
    (@derivative 2 [$p:pat_param, $q:pat_param => $y:pat_param] [$($derivative:expr),+]) => {{
        let ($p, $q, $y) = (&Expression::Argument(0), &Expression::Argument(1), &Expression::Value);
        Some(vec![$($derivative.into()),+])
    }};
    (@derivative 3 [$p:pat_param, $q:pat_param, $r:pat_param => $y:pat_param] [$($derivative:expr),+]) => {{
        let ($p, $q, $r, $y) = (&Expression::Argument(0), &Expression::Argument(1), &Expression::Argument(2), &Expression::Value);
        Some(vec![$($derivative.into()),+])
    }};
}

pub(crate) use functions;
