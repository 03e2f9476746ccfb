//! Products with quantised matrices, and quantising.

use crate::launch::{Launch, Name};

/// M vectors of K elements times a matrix of N rows (or columns) in groups: a batch of two where the kernel takes one.
struct Product {
    m: u32,
    n: u32,
    k: u32,
}

impl Product {
    fn launch(&self, launch: Launch, kernel: Name<'_>, group: u32, bits: u32) -> Launch {
        let Self { m, n, k } = *self;
        let (words, groups) = (n * k * bits / 32, n * k / group);
        let launch = launch.holds("x", (2 * m * k) as usize).holds("y", (2 * m * n) as usize).bits("w", 2 * words as usize);
        let launch = scales(launch, kernel, 2 * groups as usize);
        let launch = launch.number("K", k).number("N", n).number("M", m).number("in_vec_size", k).number("out_vec_size", n);
        let launch = launch.number("x_batch_ndims", 1).list("x_shape", &[2.0, f64::from(m), f64::from(k)]);
        let launch = launch.number("x_strides", m * k).number("w_batch_ndims", 1).number("w_shape", 2);
        let launch = launch.number("w_strides", words).number("s_strides", groups).number("b_strides", groups);
        let launch = launch.number("batch_ndims", 1).number("batch_shape", 2).number("lhs_strides", 1).number("rhs_strides", 1);
        launch.range("lhs_indices", 2, 0, 2).range("rhs_indices", 2, 0, 2)
    }
}

/// Numbers for the affine kinds, exponents (mxfp) or small floats (nvfp) for the others.
fn scales(launch: Launch, kernel: Name<'_>, groups: usize) -> Launch {
    let launch = launch.list("global_scale", &[2.5, 1.5]);
    match () {
        () if kernel.begins("mxfp") => launch.range("scales", groups, 120, 134),
        () if kernel.begins("nvfp") => launch.range("scales", groups, 40, 72),
        () => launch.holds("scales", groups).holds("biases", groups),
    }
}

pub(crate) fn quantised(kernel: Name<'_>) -> Option<Launch> {
    let (group, bits) = (kernel.number("gs")?, kernel.number("b")?);
    if kernel.has("quantize_") {
        return Some(quantising(kernel, group, bits));
    }
    let batch = if kernel.has("gather") || kernel.has("batch_1") { 2 } else { 1 };
    let (_, form) = kernel.0.split_once('_')?;
    let form = form.trim_start_matches("gather_");
    let product = |m, n, k, launch| Product { m, n, k }.launch(launch, kernel, group, bits);
    let tiles = |m: u32, n: u32, depth| Launch::groups([n.div_ceil(32), m.div_ceil(32), depth], [32, 2, 2]);
    let columns = if kernel.has("alN_false") { 40 } else { 64 };
    Some(match () {
        () if form.starts_with("qmv_fast") => product(2, 16, 512, Launch::groups([2, 2, batch], [32, 2, 1])),
        () if form.starts_with("qmv_quad") => {
            let length = kernel.number("d")?;
            product(2, 72, length, Launch::groups([2, 2, batch], [32, 1, 1]))
        }
        () if form.starts_with("qmv_wide") => {
            let (vectors, lanes) = (kernel.number("nv")?, kernel.number("kl")?);
            product(vectors + 1, 20, 512, Launch::groups([2, 20u32.div_ceil(64 / lanes), batch], [32, 2, 1]))
        }
        () if form.starts_with("qmv") => product(2, 12, 384, Launch::groups([2, 2, batch], [32, 2, 1])),
        () if form.starts_with("qvm_split_k") => {
            let parts = kernel.number("spk")?;
            let whole = product(1, 128, 40 * parts, Launch::groups([1, 4, parts], [32, 2, 1]));
            let whole = whole.number("final_block_size", 33).holds("y", (128 * parts) as usize);
            split(whole, parts, 40 * 128 * bits / 32, 40 * 128 / group)
        }
        () if form.starts_with("qvm") => product(2, 128, 40, Launch::groups([2, 4, batch], [32, 2, 1])),
        () if form.starts_with("qmm_t_splitk") => {
            let launch = product(36, columns, 256, tiles(36, columns, 2));
            launch.number("k_partition_size", 128).number("split_k_partition_stride", 36 * columns)
        }
        () if form.starts_with("qmm_t") => product(36, columns, 128, tiles(36, columns, batch)),
        () if form.starts_with("qmm_n") => product(36, 128, 128, tiles(36, 128, batch)),
        () if form.starts_with("qmm_rhs") => {
            let (rows, width) = (kernel.number("bm")?, kernel.number("bn")?);
            let groups = Launch::groups([128 / width, 36u32.div_ceil(rows) + 2, 1], [32, kernel.number("wn")?, kernel.number("wm")?]);
            product(36, 128, 128, groups).list("offsets", &[0.0, 7.0]).number("num_groups", 2)
        }
        () => return None,
    })
}

/// `qdot` of `quantized.h` moves its pointer by 8, 16, 24 (of six bits by 4, 8, 12) elements in turn: from the third step on, it reads beyond its private array. MLX
/// launches none of these kernels.
pub(crate) fn walks_off(kernel: Name<'_>) -> bool {
    let width = (kernel.number("b"), kernel.number("d"));
    kernel.begins("affine_qmv_quad") && matches!(width, (Some(3 | 5), Some(128)) | (Some(6), _))
}

/// `affine_qmv_fast_float_gs_64_b_4_batch_1_pr_0_hgs_0_r_4` is `affine_qmv_fast<float, 64, 4, 1, 0, 0, 4>`. MLX's text of the library's release is not public: the
/// one before has neither these parameters nor one bit.
pub(crate) fn affine(kernel: Name<'_>) -> Option<String> {
    let is_new = (kernel.has("_pr_") || kernel.has("_b_1_") || kernel.0.ends_with("_b_1")) && !kernel.has("_rhs_");
    is_new.then(|| template(kernel, "affine", "affine")).flatten()
}

pub(crate) fn floating(kernel: Name<'_>) -> Option<String> {
    let modes = ["mxfp4", "mxfp8", "nvfp4"];
    kernel.has("_pr_").then(|| modes.into_iter().find_map(|mode| template(kernel, mode, "fp"))).flatten()
}

fn template(kernel: Name<'_>, mode: &str, of_text: &str) -> Option<String> {
    let (form, numbers) = kernel.0.strip_prefix(mode)?.split_once("_gs_")?;
    let kind = ["bfloat16_t", "float16_t", "float"].into_iter().find(|kind| form.ends_with(kind))?;
    let form = form.strip_suffix(kind)?.trim_end_matches('_');
    let is_argument = |word: &&str| matches!(*word, "true" | "false") || word.bytes().all(|byte| byte.is_ascii_digit());
    Some(format!("{of_text}{form}<{kind}, {}>", numbers.split('_').filter(is_argument).collect::<Vec<_>>().join(", ")))
}

/// K in parts, of which each is an element of a batch.
fn split(launch: Launch, parts: u32, words: u32, groups: u32) -> Launch {
    let launch = launch.number("in_vec_size", 40).list("x_shape", &[f64::from(parts), 1.0, 40.0]).list("x_strides", &[40.0, 40.0, 1.0]);
    launch.number("w_shape", parts).number("w_strides", words).number("s_strides", groups).number("b_strides", groups)
}

fn quantising(kernel: Name<'_>, group: u32, bits: u32) -> Launch {
    let elements = 12 * group;
    let of_pack = match bits {
        3 | 5 => 8,
        6 => 4,
        bits => 8 / bits,
    };
    let bytes = (elements * bits / 8) as usize;
    let unpacks = kernel.has("_dequantize_") && !kernel.has("quantize_dequantize");
    let threads = if unpacks { elements / of_pack } else { elements / (group / 32).max(1) };
    let launch = scales(Launch::threads([threads, 1, 1], [64, 1, 1]), kernel, (elements / group) as usize);
    match () {
        () if unpacks => launch.bits("w", bytes).holds("out", elements as usize),
        () if kernel.has("quantize_dequantize") => launch.holds("w", elements as usize).holds("out", elements as usize),
        () => {
            let launch = launch.holds("w", elements as usize).holds("out", bytes);
            launch.holds("scales", (elements / group) as usize).holds("biases", (elements / group) as usize)
        }
    }
}
