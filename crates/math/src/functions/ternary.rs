//! Functions of three values of one type.

use elinvar_core::{DType, MetalFile};

use super::{ErrorBound, Expression, Function3, Integer, Visitor3, table::functions};

functions! {
    /// Functions of three values of one type.
    Ternary: Function3 Visitor3 ternary 3 {
        #[doc = "`a * b + c`, rounded once (16-bit floats: once in f32, once to the type)."]
        Fma "fma" {
            float |a, b, c| a.mul_add(b, c);
            reference |a, b, c| a.mul_add(b, c);
            derivative |a, b, _| _ => [b, a, 1.0];
            metal "metal::fma";
        }
        #[doc = "`a * b + c`, each operation by itself; integers wrap."]
        Mad "mad" {
            float |a, b, c| a * b + c;
            integer |a, b, c| a.mul(b).add(c);
            reference |a, b, c| a * b + c, within 1.0;
            derivative |a, b, _| _ => [b, a, 1.0];
        }
    }
}
