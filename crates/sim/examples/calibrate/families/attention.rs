//! Attention.

use elinvar_sim::ConstantValue;

use crate::launch::{Field, Launch, Name};

/// Two queries of four heads over seventy keys of two heads, with a mask.
pub(crate) fn sdpa_vector(kernel: Name<'_>) -> Option<Launch> {
    let mut numbers = kernel.0.rsplit('_').map_while(|part| part.parse::<u32>().ok());
    let values = numbers.next()?;
    let keys = numbers.next().unwrap_or(values);
    let (heads, queries, length, blocks) = (4, 2, 70, 32);
    let launch = match () {
        () if kernel.has("2pass_1_gqa") => return None,
        () if kernel.has("2pass_1") => {
            Launch::groups([heads / 2, 1, blocks], [32, 2, queries]).holds("out", (heads * queries * blocks * values) as usize)
        }
        () if kernel.has("2pass_2") => {
            Launch::groups([heads, queries, 1], [1024, 1, 1]).number("blocks", blocks).holds("out", (heads * queries * values) as usize)
        }
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

/// `steel_attention_float16_bq32_bk16_bd128_bv128_wm4_wn1_maskbool_` is `attention<half, 32, 16, 128, 128, 4, 1, bool, float>`.
pub(crate) fn steel_instance(kernel: Name<'_>) -> Option<String> {
    let scalar = |name: &str| {
        let names = [("float32", "float"), ("float16", "half"), ("bfloat16", "bfloat"), ("bool", "bool")];
        names.iter().find(|(known, _)| name.starts_with(known)).map(|(_, scalar)| *scalar)
    };
    let (kind, rest) = kernel.0.strip_prefix("steel_attention_")?.split_once('_')?;
    let (_, mask) = rest.split_once("mask")?;
    let sizes = ["bq", "bk", "bd", "bv", "wm", "wn"].into_iter().map(|part| kernel.number(part).map(|size| size.to_string()));
    let sizes = sizes.collect::<Option<Vec<_>>>()?.join(", ");
    Some(format!("attention<{}, {sizes}, {}, float>", scalar(kind)?, scalar(mask)?))
}

/// Two heads of queries over one of keys: a block and a rest of queries, two blocks and a rest of keys, causal, with a mask and sinks.
pub(crate) fn steel(kernel: Name<'_>) -> Option<Launch> {
    let number = |part| kernel.number(part);
    let (block, step, keys, values) = (number("bq")?, number("bk")?, number("bd")?, number("bv")?);
    let (heads, queries, length) = (2, block + 5, 2 * step + 3);
    let strides = |heads: u32, length: u32, width: u32| [heads * length * width, length * width, width].map(|stride| Field::Long(stride.into()));
    let int = |value: u32| Field::Int(value as i32);
    let mut fields = vec![int(1), int(heads), int(keys), int(queries), int(length), int(2), Field::Float(0.125)];
    fields.extend([2, 3, 1, 2, 5, 3].map(Field::Int));
    fields.push(Field::Int(length as i32 - queries as i32));
    fields.extend([strides(heads, queries, keys), strides(1, length, keys), strides(1, length, values), strides(heads, queries, values)].concat());
    let launch = Launch::groups([2, heads, 1], [32, number("wm")?, number("wn")?]).structure("params", &fields);
    let launch = launch.structure("mask_params", &strides(heads, queries, length)).elements((heads * queries) as usize);
    let launch = launch.holds("Q", (heads * queries * keys) as usize).holds("K", (length * keys) as usize);
    let launch = launch.holds("V", (length * values) as usize).holds("O", (heads * queries * values) as usize);
    let launch = if kernel.has("maskbool") {
        launch.range("mask", (heads * queries * length) as usize, 0, 4)
    } else {
        launch.holds("mask", (heads * queries * length) as usize)
    };
    Some(launch.off(&["align_Q", "align_K"]))
}
