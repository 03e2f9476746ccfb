//! Kernels whose threads write an element or a few each.

use crate::launch::{Launch, Name};

/// 3 × 5 × 7 elements, read with other strides than they are written with where the kernel takes strides.
pub(crate) fn strided(kernel: Name<'_>) -> Option<Launch> {
    let line = Launch::threads([105, 1, 1], [32, 1, 1]).all(&[
        ("size", &[105.0]),
        ("a_stride", &[2.0]),
        ("b_stride", &[1.0]),
        ("c_stride", &[3.0]),
        ("src_stride", &[2.0]),
        ("dst_stride", &[1.0]),
        ("in_strides", &[2.0]),
        ("a_strides", &[2.0]),
        ("b_strides", &[1.0]),
        ("c_strides", &[3.0]),
    ]);
    let plane = |threads| {
        Launch::threads(threads, [8, 4, 1]).all(&[
            ("size", &[105.0]),
            ("a_strides", &[1.0, 15.0]),
            ("b_strides", &[7.0, 1.0]),
            ("c_strides", &[0.0, 1.0]),
            ("src_strides", &[1.0, 15.0]),
            ("dst_strides", &[7.0, 1.0]),
        ])
    };
    let space = || {
        Launch::threads([7, 5, 3], [8, 4, 1]).all(&[
            ("in_shape", &[3.0, 5.0, 7.0]),
            ("in_strides", &[7.0, 21.0, 1.0]),
            ("shape", &[3.0, 5.0, 7.0]),
            ("src_shape", &[3.0, 5.0, 7.0]),
            ("a_strides", &[7.0, 21.0, 1.0]),
            ("b_strides", &[0.0, 7.0, 1.0]),
            ("c_strides", &[35.0, 7.0, 1.0]),
            ("src_strides", &[7.0, 21.0, 1.0]),
            ("dst_strides", &[35.0, 7.0, 1.0]),
            ("ndim", &[3.0]),
        ])
    };
    let (form, _) = kernel.0.split_once('_')?;
    let form = form.trim_end_matches("large");
    let launch = match form {
        "g1" | "gg1" | "s" | "v" | "sn" | "vn" | "ss" | "sv" | "vs" | "vv" | "svn" | "vsn" | "vvn" => line,
        "g2" | "gg2" => plane([7, 15, 1]),
        // As many threads as elements: those of kernels that take several elements a thread see the end themselves.
        "s2" | "v2" | "ss2" | "sv2" | "vs2" | "vv2" => plane([15, 7, 1]),
        "g3" | "gg3" => space(),
        _ if form.starts_with("gn") || form.starts_with("ggn") => space(),
        _ => return None,
    };
    Some(launch.number("src_offset", 2).number("dst_offset", 1))
}

pub(crate) fn arange(_: Name<'_>) -> Option<Launch> {
    Some(Launch::threads([100, 1, 1], [32, 1, 1]).elements(100).all(&[("start", &[3.0]), ("step", &[2.0])]))
}

pub(crate) fn random(_: Name<'_>) -> Option<Launch> {
    Some(Launch::threads([4, 8, 1], [4, 8, 1]).elements(256).all(&[
        ("odd", &[0.0]),
        ("bytes_per_key", &[64.0]),
        ("ndim", &[1.0]),
        ("key_shape", &[8.0]),
        ("key_strides", &[1.0]),
    ]))
}

/// One token of four heads, or two texts of eight.
pub(crate) fn rope(kernel: Name<'_>) -> Option<Launch> {
    let launch = if kernel.begins("rope_single") {
        Launch::threads([16, 4, 1], [16, 1, 1]).all(&[("offset", &[7.0]), ("stride", &[32.0])])
    } else {
        Launch::threads([16, 8, 2], [16, 1, 1]).all(&[
            ("offset", &[7.0, 9.0]),
            ("strides", &[256.0, 32.0, 1.0]),
            ("out_strides", &[256.0, 32.0, 1.0]),
            ("offset_stride", &[1.0]),
            ("n_head", &[4.0]),
        ])
    };
    Some(launch.elements(4096).all(&[("scale", &[1.0]), ("base", &[13.287_712]), ("freq_stride", &[1.0])]))
}

pub(crate) fn searchsorted(_: Name<'_>) -> Option<Launch> {
    Some(Launch::threads([10, 5, 1], [8, 4, 1]).elements(50).holds("a", 200).all(&[("n", &[100.0]), ("a_stride", &[2.0])]))
}
