//! The operations that instructions name, but for the functions, which are those of [`elinvar_math::functions`].

macro_rules! operations {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Its name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The one of that name.
            pub fn of_name(name: &str) -> Option<Self> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    /// Where a thread is, and how much there is of it; all u32.
    pub enum Position {
        /// The thread in the grid, along x.
        GlobalX "position.x",
        /// … along y.
        GlobalY "position.y",
        /// … along z.
        GlobalZ "position.z",
        /// The thread in its block, along x.
        LocalX "local.x",
        /// … along y.
        LocalY "local.y",
        /// … along z.
        LocalZ "local.z",
        /// The block in the grid, along x.
        BlockX "block.x",
        /// … along y.
        BlockY "block.y",
        /// … along z.
        BlockZ "block.z",
        /// Threads of a block along x.
        BlockSizeX "block_size.x",
        /// … along y.
        BlockSizeY "block_size.y",
        /// … along z.
        BlockSizeZ "block_size.z",
        /// Blocks of the grid along x.
        GridSizeX "grid_size.x",
        /// … along y.
        GridSizeY "grid_size.y",
        /// … along z.
        GridSizeZ "grid_size.z",
        /// The thread in its block, x fastest.
        LocalIndex "local_index",
        /// The thread in its simdgroup: 0 to 31.
        Lane "lane",
        /// The simdgroup in its block.
        Simdgroup "simdgroup",
    }
}

operations! {
    /// Who takes part in a reduction.
    pub enum Scope {
        /// The 32 threads of a simdgroup.
        Simd "simd",
        /// The threads of a block.
        Group "group",
    }
}

operations! {
    /// Where a shuffle's value comes from.
    pub enum Shuffle {
        /// The lane of that number, modulo 32.
        Index "simd_shuffle",
        /// The lane whose number is this one's xor the operand, modulo 32.
        Xor "simd_shuffle_xor",
        /// So many lanes below; the lane itself where there is none.
        Up "simd_shuffle_up",
        /// So many lanes above; the lane itself where there is none.
        Down "simd_shuffle_down",
    }
}

operations! {
    /// What an atomic does with an element; it gives the element's old value.
    pub enum Atomic {
        /// Adds.
        Add "atomic_add",
        /// The smaller.
        Min "atomic_min",
        /// The larger.
        Max "atomic_max",
        /// Bits that both have.
        And "atomic_and",
        /// Bits that either has.
        Or "atomic_or",
        /// Bits that differ.
        Xor "atomic_xor",
        /// The value takes the element's place.
        Exchange "atomic_exchange",
    }
}

operations! {
    /// What a load or store outside its buffer does.
    #[derive(Default)]
    pub enum Bounds {
        #[default]
        /// Loads give zero, stores are dropped, atomics give zero and change nothing.
        Checked "checked",
        /// The launch fails and names the instruction; on devices that can tell.
        Trap "trap",
        /// Undefined on GPUs; as `checked` on the CPU.
        Unchecked "unchecked",
    }
}
