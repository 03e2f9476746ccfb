//! Comparisons of two values of one type.

use elinvar_core::MetalFile;

use super::Relation;

/// Takes a comparison as a type: so a loop is compiled for each.
pub trait RelationVisitor {
    /// What the visitor makes of it.
    type Output;

    /// The comparison.
    fn visit<R: Relation>(self) -> Self::Output;
}

macro_rules! relations {
    ($($name:ident $text:literal $operator:tt $summary:literal;)*) => {
        /// Comparisons. Only `ne` holds when an operand is NaN.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Compare { $(#[doc = $summary] $name,)* }

        mod relation {
            use super::Relation;
            $(
                pub(super) struct $name;
                impl Relation for $name {
                    #[inline(always)]
                    fn holds<T: PartialOrd>(a: &T, b: &T) -> bool { a $operator b }
                }
            )*
        }

        impl Compare {
            /// All of them.
            pub const ALL: &[Compare] = &[$(Compare::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Compare::$name => $text,)* }
            }

            /// What holds, in a line.
            pub const fn summary(self) -> &'static str {
                match self { $(Compare::$name => $summary,)* }
            }

            /// The operator that writes it in Rust and Metal.
            pub const fn infix(self) -> &'static str {
                match self { $(Compare::$name => stringify!($operator),)* }
            }

            /// Its function object in Metal, a template argument.
            pub const fn object(self) -> &'static [&'static str; 1] {
                match self { $(Compare::$name => &[concat!("function::", stringify!($name))],)* }
            }

            /// All function objects.
            pub const OBJECTS: MetalFile = MetalFile {
                name: "math/compare.metal",
                text: concat!($(
                    "namespace function { struct ", stringify!($name), " { template <typename T> static bool apply(T a, T b) { return a ",
                    stringify!($operator), " b; } }; }\n",
                )*),
            };

            /// The comparison of that name.
            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Compare::$name),)* _ => None }
            }

            /// Gives `visitor` the comparison.
            pub fn visit<V: RelationVisitor>(self, visitor: V) -> V::Output {
                match self { $(Compare::$name => visitor.visit::<relation::$name>(),)* }
            }

            /// Whether it holds.
            pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
                match self { $(Compare::$name => a $operator b,)* }
            }
        }
    };
}

relations! {
    Eq "eq" == "`a = b`.";
    Ne "ne" != "`a ≠ b`.";
    Lt "lt" < "`a < b`.";
    Le "le" <= "`a ≤ b`.";
    Gt "gt" > "`a > b`.";
    Ge "ge" >= "`a ≥ b`.";
}
