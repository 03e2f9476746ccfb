//! What a reduction visits, and how a launch is laid out over that.

use elinvar_core::{DeviceProperties, Extent, MetalFile, Result, Shape};

use crate::{
    Launch, TensorInfo, math,
    metal::{self, metal_file, params},
    order,
    signature::{self, misshapen},
};

params! {
    /// A row-major tensor seen as outputs and the elements that each of them reduces.
    ///
    /// Axes of one kind that are neighbours are merged; kept axes behind the last reduced one are `inner`. Output `(o, i)` is at
    /// `o · inner + i`, and its element `k`, counted in row-major order over the reduced axes, at `kept(o) + reduced(k) + i`.
    pub(super) struct Geometry {
        /// Extents of the kept axes before the last reduced one, outermost first.
        pub kept_extents: [u64; 4],
        /// Their strides.
        pub kept_strides: [u64; 4],
        /// Extents of the reduced axes, outermost first.
        pub reduced_extents: [u64; 4],
        /// Their strides.
        pub reduced_strides: [u64; 4],
        /// Number of `o`.
        pub outer: u64,
        /// Number of `k`.
        pub length: u64,
        /// Number of `i`.
        pub inner: u64,
    }
}

/// Which axes of `x` are reduced; none given means all.
pub(super) fn reduced_axes(x: &TensorInfo, axes: &[isize]) -> Result<Vec<bool>> {
    let mut reduced = vec![axes.is_empty(); x.shape().rank()];
    for &axis in axes {
        if std::mem::replace(&mut reduced[signature::axis("x", x, axis)?], true) {
            return Err(misshapen!(x; "each axis once, not {axes:?}"));
        }
    }
    Ok(reduced)
}

/// The shape that is left.
pub(super) fn output_shape(shape: &Shape, reduced: &[bool], keepdims: bool) -> Result<Shape> {
    let axes = shape.iter().zip(reduced);
    let dims: Vec<usize> = axes.filter(|(_, r)| keepdims || !**r).map(|(&n, &r)| if r { 1 } else { n }).collect();
    Shape::new(&dims)
}

impl Geometry {
    pub(super) fn new(shape: &Shape, reduced: &[bool]) -> Self {
        let mut groups: Vec<(bool, u64)> = Vec::new();
        for (&extent, &kind) in shape.iter().zip(reduced).filter(|(extent, _)| **extent != 1) {
            match groups.last_mut() {
                Some((last, n)) if *last == kind => *n *= extent as u64,
                _ => groups.push((kind, extent as u64)),
            }
        }
        let inner = groups.pop_if(|(reduced, _)| !*reduced).map_or(1, |(_, n)| n);
        let mut out =
            Self { kept_extents: [1; 4], kept_strides: [0; 4], reduced_extents: [1; 4], reduced_strides: [0; 4], outer: 1, length: 1, inner };
        let mut kept = out.kept_extents.iter_mut().zip(&mut out.kept_strides).rev();
        let mut folded = out.reduced_extents.iter_mut().zip(&mut out.reduced_strides).rev();
        let mut stride = inner;
        for &(is_reduced, extent) in groups.iter().rev() {
            let (slot, count) = if is_reduced { (folded.next(), &mut out.length) } else { (kept.next(), &mut out.outer) };
            if let Some((to_extent, to_stride)) = slot {
                (*to_extent, *to_stride) = (extent, stride);
            }
            *count *= extent;
            stride *= extent;
        }
        out
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        (self.outer * self.inner) as usize
    }

    /// Where output `(o, 0)` begins.
    pub(super) fn kept(&self, o: usize) -> usize {
        offset(&self.kept_extents, &self.kept_strides, o)
    }

    /// Where element `k` lies behind that.
    pub(super) fn reduced(&self, k: usize) -> usize {
        offset(&self.reduced_extents, &self.reduced_strides, k)
    }

    /// Elements of a row that lie side by side, where `inner` is one.
    pub(super) fn run(&self) -> usize {
        let [.., extent] = self.reduced_extents;
        extent as usize
    }
}

fn offset(extents: &[u64; 4], strides: &[u64; 4], index: usize) -> usize {
    let ([extents @ .., last], [strides @ .., stride]) = (extents, strides);
    let index = index as u64;
    if index < *last {
        return (index * stride) as usize;
    }
    let (mut rest, mut at) = (index / last, index % last * stride);
    for (extent, stride) in extents.iter().zip(strides).rev() {
        at += rest % extent * stride;
        rest /= extent;
    }
    at as usize
}

/// What the kernels of all reductions share.
pub(super) const SHARED: [MetalFile; 8] = [
    metal::TYPES,
    math::METAL,
    order::METAL,
    order::ACCUMULATOR,
    order::SLOTS,
    Geometry::METAL,
    metal_file!("reduce/elements.metal"),
    metal_file!("reduce/share.metal"),
];

/// Rows of the last axis as [`order::row_launch`] lays them out; for other axes threadgroups of 256 threads, up to eight for each output.
/// Each of `folds` needs threadgroup memory of its own for accumulators of so many bytes.
pub(super) fn lay_out(launch: Launch, geometry: &Geometry, device: &DeviceProperties, accumulator: usize, folds: usize) -> Launch {
    const THREADS: usize = 256;
    let (outputs, length) = (geometry.outputs(), geometry.length as usize);
    if geometry.inner == 1 {
        let [grid, threadgroup] = order::row_launch(outputs, length, device);
        return launch.over(grid, threadgroup).with_threadgroup_memory(folds * 32 * accumulator);
    }
    let depth = length.div_ceil(8).next_power_of_two().min(8);
    let groups = outputs.div_ceil(THREADS / depth).min(u32::MAX as usize);
    let memory = (THREADS + (folds - 1) * 32) * accumulator;
    launch.over(Extent::linear(groups as u32), Extent::linear(THREADS as u32)).with_threadgroup_memory(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited_in_row_major_order() {
        let dims = [3, 1, 4, 2, 5, 2];
        let shape = Shape::new(&dims).unwrap();
        for mask in 0..64usize {
            let reduced: Vec<bool> = (0..6).map(|axis| mask >> axis & 1 == 1).collect();
            let geometry = Geometry::new(&shape, &reduced);
            let mut expected = vec![Vec::new(); geometry.outputs()];
            for flat in 0..shape.elements() {
                let (mut rest, mut output, mut scale) = (flat, 0, 1);
                for axis in (0..6).rev() {
                    if !reduced[axis] {
                        output += rest % dims[axis] * scale;
                        scale *= dims[axis];
                    }
                    rest /= dims[axis];
                }
                expected[output].push(flat);
            }
            let inner = geometry.inner as usize;
            for (output, expected) in expected.iter().enumerate() {
                let base = geometry.kept(output / inner) + output % inner;
                let found: Vec<usize> = (0..geometry.length as usize).map(|k| base + geometry.reduced(k)).collect();
                assert_eq!(&found, expected, "mask {mask:06b}, output {output}");
            }
        }
    }

    #[test]
    fn axes_are_checked() {
        let x = TensorInfo::new(elinvar_core::DType::F32, &[2, 3]).unwrap();
        assert_eq!(reduced_axes(&x, &[]).unwrap(), [true, true]);
        assert_eq!(*output_shape(x.shape(), &[false, true], true).unwrap(), [2, 1]);
        assert!(reduced_axes(&x, &[1, -1]).unwrap_err().to_string().contains("each axis once"));
        assert!(reduced_axes(&x, &[2]).is_err());
    }
}
