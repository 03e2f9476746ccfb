//! Attention.

use elinvar_sim::ConstantValue;

use crate::launch::{Launch, Name};

/// Two queries of four heads over seventy keys of two heads, with a mask.
pub(crate) fn sdpa_vector(kernel: Name<'_>) -> Option<Launch> {
    let mut numbers = kernel.0.rsplit('_').map_while(|part| part.parse::<u32>().ok());
    let values = numbers.next()?;
    let keys = numbers.next().unwrap_or(values);
    let (heads, queries, length, blocks) = (4, 2, 70, 32);
    let launch = match () {
        () if kernel.has("2pass_1_gqa") => return None,
        () if kernel.has("2pass_1") => Launch::groups([heads / 2, 1, blocks], [32, 2, queries]).holds("out", (heads * queries * blocks * values) as usize),
        () if kernel.has("2pass_2") => Launch::groups([heads, queries, 1], [1024, 1, 1]).number("blocks", blocks).holds("out", (heads * queries * values) as usize),
        () => Launch::groups([heads, queries, 1], [1024, 1, 1]).holds("out", (heads * queries * values) as usize),
    };
    let launch = launch.holds("partials", (heads * queries * blocks * values) as usize).elements((heads * queries * blocks) as usize);
    let launch = launch.holds("queries", (heads * queries * keys) as usize).holds("keys", (2 * length * keys) as usize);
    let launch = launch.holds("values", (2 * length * values) as usize).number("gqa_factor", 2).number("N", length);
    let launch = launch.number("k_head_stride", length * keys).number("k_seq_stride", keys);
    let launch = launch.number("v_head_stride", length * values).number("v_seq_stride", values).number("scale", 0.125);
    let launch = launch.range("bmask", (heads * queries * length) as usize, 0, 5).number("mask_kv_seq_stride", 1);
    let launch = launch.number("mask_q_seq_stride", length).number("mask_head_stride", queries * length).number("num_q_heads", heads);
    let launch = launch.set("blocks", ConstantValue::Int(i64::from(blocks))).off(&["float_mask", "query_transposed", "do_causal"]);
    Some(launch.holds("sinks", heads as usize).without(&["fmask"]))
}
