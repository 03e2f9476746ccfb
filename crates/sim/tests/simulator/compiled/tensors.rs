//! Operations on tensors: products of matrices and convolutions of what lies in memory or is shared out among threads.

use elinvar_sim::FindingKind;

use super::Launch;

const OUTSIDE: &str = "%product = type { i32, i32, i32, i8, i8, i8, i32 }
%convolution = type <{ <4 x i32>, <4 x i32>, <2 x i32>, i32, i32, <2 x i32>, <2 x i32>, i32, i8, [3 x i8], i32, [4 x i8] }>
declare i16 @air.get_descriptor_size_tensor(i16, i16)
declare void @air.init_strided_private_tensor.i32.global(ptr, i16, ptr addrspace(1), ptr, ptr, i8)
declare void @air.slice_private_tensor_private_tensor.s.i32(ptr, ptr, i16, ptr, ptr)
declare i32 @air.get_extent_private_tensor.i32(ptr, i16, i16)
declare i64 @__tensorops_impl_matmul2d_op_cooperative_tensor_data_size(i32, i32, i32, i32, i8, i8, i8, i32, i32, i32, i32, i32)
declare void @__tensorops_impl_matmul2d_op_cooperative_tensor_init(i32, i32, i32, i32, i8, i8, i8, i32, ptr, i32, i32, i32, i32)
declare ptr @__tensorops_impl_matmul2d_op_cooperative_tensor_get_element_pointer(i32, i32, i32, i32, i8, i8, i8, i32, ptr, i16, i32, i32, i32)
declare i1 @__tensorops_impl_matmul2d_op_cooperative_tensor_is_valid_element(i32, i32, i32, i32, i8, i8, i8, i32, ptr, i16, i32, i32, i32, i32)
declare void @__tensorops_impl_matmul2d_op_cooperative_tensor_get_coordinate(i32, i32, i32, i32, i8, i8, i8, i32, ptr, i16, ptr, i32, i32, i32, i32, i32)
declare void @__tensorops_impl_matmul2d_op_cooperative_tensor_load_dv_f32(i32, i32, i32, i32, i8, i8, i8, i32, ptr, ptr, i32, i32, i32, i32, i32, i32)
declare void @__tensorops_impl_matmul2d_op_cooperative_tensor_store_dv_f32(i32, i32, i32, i32, i8, i8, i8, i32, ptr, ptr, i32, i32, i32, i32, i32)
declare void @__tensorops_impl_matmul2d_op_run_cooperative_dv_f32_dv_f32_f32(ptr, ptr, i32, ptr, i32, ptr, i32)
declare void @__tensorops_impl_matmul2d_op_run_cooperative_f32_f32_f32(ptr, ptr, ptr, ptr, i32)
declare i64 @__tensorops_impl_conv2d_cooperative_destination_data_size(ptr, i32, i32, i32, i32)
declare void @__tensorops_impl_conv2d_cooperative_destination_tensor_init(ptr, ptr, i32, i32, i32, i32)
declare ptr @__tensorops_impl_conv2d_cooperative_destination_tensor_elements(ptr, i16, i32, i32)
declare i16 @__tensorops_impl_conv2d_cooperative_destination_tensor_num_elements(ptr, ptr, i32, i32, i32, i32)
declare void @__tensorops_impl_conv2d_cooperative_destination_tensor_get_coordinate(ptr, ptr, i16, i32, ptr, i32, i32, i32, i32, i32)
declare void @__tensorops_impl_convolution2d_op_run_cooperative_dv_f32_dv_f32_f32(ptr, ptr, i32, ptr, i32, ptr, i32, ptr)
";

/// `%name`: a tensor of `memory` with these extents and strides.
fn tensor(name: &str, memory: &str, extents: &[i32], strides: &[i32]) -> String {
    let rank = extents.len();
    let list = |what: &str, values: &[i32]| {
        let place = format!("%{name}.{what}");
        let stores = values.iter().enumerate().map(|(at, value)| {
            format!("  {place}.{at} = getelementptr i32, ptr {place}, i64 {at}\n  store i32 {value}, ptr {place}.{at}, align 4\n")
        });
        format!("  {place} = alloca [{rank} x i32], align 4\n{}", stores.collect::<String>())
    };
    format!(
        "  %{name}.size = call i16 @air.get_descriptor_size_tensor(i16 {rank}, i16 4)
  %{name}.bytes = zext i16 %{name}.size to i64
  %{name} = alloca i8, i64 %{name}.bytes, align 8
{}{}  call void @air.init_strided_private_tensor.i32.global(ptr %{name}, i16 {rank}, ptr addrspace(1) {memory}, ptr %{name}.e, ptr %{name}.s, i8 0)\n",
        list("e", extents),
        list("s", strides)
    )
}

/// A function of cooperative tensors: its name, and what follows the description of the operand `which` of an 8 × 8 product.
fn cooperative(result: &str, name: &str, which: u32, depth: i32, further: &str) -> String {
    format!(
        "call {result} @__tensorops_impl_matmul2d_op_cooperative_tensor_{name}(i32 {which}, i32 8, i32 8, i32 {depth}, i8 0, i8 1, i8 0, i32 0, {further})"
    )
}

const FLOATS: &str = "i32 268435488, i32 268435488, i32 268435488";

/// `%name`: operand `which`, shared out among 32 threads, and `%name.all`, its elements.
fn shared(name: &str, which: u32, depth: i32) -> String {
    format!(
        "  %{name}.bytes = {}\n  %{name} = alloca i8, i64 %{name}.bytes, align 8\n  {}\n  %{name}.all = {}\n",
        cooperative("i64", "data_size", which, depth, &format!("{FLOATS}, i32 32")),
        cooperative("void", "init", which, depth, &format!("ptr %{name}, {FLOATS}, i32 32")),
        cooperative("ptr", "get_element_pointer", which, depth, &format!("ptr %{name}, i16 -1, {FLOATS}"))
    )
}

fn descriptor(depth: i32) -> String {
    format!("  %d = alloca %product, align 4\n  store %product {{ i32 8, i32 8, i32 {depth}, i8 0, i8 1, i8 0, i32 0 }}, ptr %d, align 4\n")
}

fn launch(body: &str) -> Launch {
    Launch { threads: 32, threadgroup: 32, ..Launch::new(OUTSIDE, body) }
}

/// x times its own transpose, of 8 × 8 elements.
fn square(x: &[f32]) -> Vec<f32> {
    let element = |at: usize| (0..8).fold(0f32, |sum, k| x[at / 8 * 8 + k].mul_add(x[at % 8 * 8 + k], sum));
    (0..64).map(element).collect()
}

fn product_of_memory(extents: [i32; 2]) -> Launch {
    let (x, y) = (tensor("t", "%x", &extents, &[1, 8]), tensor("u", "%y", &[8, 8], &[1, 8]));
    let run =
        "  call void @__tensorops_impl_matmul2d_op_run_cooperative_dv_f32_dv_f32_f32(ptr %d, ptr %t, i32 2, ptr %t, i32 2, ptr %c.all, i32 32)\n";
    let store = cooperative("void", "store_dv_f32", 2, -1, &format!("ptr %c, ptr %u, i32 2, {FLOATS}, i32 32"));
    launch(&format!("{x}{y}{}{}{run}  {store}", shared("c", 2, -1), descriptor(-1)))
}

#[test]
fn matrices_in_memory_are_multiplied() {
    let launch = product_of_memory([8, 8]);
    assert_eq!(launch.values::<f32>(), square(&launch.x));
    // What lies beyond a tensor's extents is zero: here the last rows of both operands.
    let launch = product_of_memory([8, 5]);
    let wanted: Vec<f32> = square(&launch.x).into_iter().enumerate().map(|(at, value)| if at / 8 < 5 && at % 8 < 5 { value } else { 0.0 }).collect();
    assert_eq!(launch.values::<f32>(), wanted);
}

#[test]
fn extents_beyond_a_buffer_are_found() {
    let (report, _) = Launch { x: vec![1.0; 60], ..product_of_memory([8, 8]) }.run();
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::OutOfBoundsRead), "{:?}", report.findings);
    let at = report.findings.first().and_then(|finding| finding.at.as_ref()).expect("a place");
    assert_eq!(&*at.file, "x.metallib/k.ll");
}

#[test]
fn matrices_that_threads_share_are_multiplied() {
    let (x, y) = (tensor("t", "%x", &[8, 8], &[1, 8]), tensor("u", "%y", &[8, 8], &[1, 8]));
    let load = |name: &str, which| cooperative("void", "load_dv_f32", which, 8, &format!("ptr %{name}, ptr %t, i32 2, i32 2, {FLOATS}, i32 32"));
    let run = "  call void @__tensorops_impl_matmul2d_op_run_cooperative_f32_f32_f32(ptr %d, ptr %a.all, ptr %b.all, ptr %c.all, i32 32)\n";
    let store = cooperative("void", "store_dv_f32", 2, 8, &format!("ptr %c, ptr %u, i32 2, {FLOATS}, i32 32"));
    let tensors = shared("a", 0, 8) + &shared("b", 1, 8) + &shared("c", 2, 8);
    let launch = launch(&format!("{x}{y}{tensors}{}  {}\n  {}\n{run}  {store}", descriptor(8), load("a", 0), load("b", 1)));
    assert_eq!(launch.values::<f32>(), square(&launch.x));
}

#[test]
fn an_element_of_a_product_is_where_its_coordinates_say() {
    // The first element that each thread has of C, by way of its own coordinates: eight rows of four elements, of which a thread has one.
    let x = tensor("t", "%x", &[8, 8], &[1, 8]);
    let run =
        "  call void @__tensorops_impl_matmul2d_op_run_cooperative_dv_f32_dv_f32_f32(ptr %d, ptr %t, i32 2, ptr %t, i32 2, ptr %c.all, i32 32)\n";
    let valid = cooperative("i1", "is_valid_element", 2, -1, &format!("ptr %c, i16 0, {FLOATS}, i32 32"));
    let place = cooperative("void", "get_coordinate", 2, -1, &format!("ptr %c, i16 0, ptr %at.c, i32 536870944, i32 32, {FLOATS}"));
    let value = cooperative("ptr", "get_element_pointer", 2, -1, &format!("ptr %c, i16 0, {FLOATS}"));
    let body = format!(
        "{x}{}{}  %at.c = alloca [2 x i32], align 4
{run}  %valid = {valid}
  br i1 %valid, label %write, label %end

write:
  {place}
  %p = {value}
  %v = load float, ptr %p, align 4
  %column = load i32, ptr %at.c, align 4
  %r = getelementptr i32, ptr %at.c, i64 1
  %row = load i32, ptr %r, align 4
  %down = mul i32 %row, 8
  %flat = add i32 %down, %column
  %to = zext i32 %flat to i64
  %q = getelementptr float, ptr addrspace(1) %y, i64 %to
  store float %v, ptr addrspace(1) %q, align 4
  br label %end

end:",
        shared("c", 2, -1),
        descriptor(-1)
    );
    let launch = launch(&body);
    let (report, y) = launch.run();
    // Columns 0 and 4 of each row; the rest is not written.
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::UnwrittenOutput), "{:?}", report.findings);
    let (found, wanted) = (super::values::<f32>(&y), square(&launch.x));
    for at in (0..64).step_by(4) {
        assert_eq!(found[at], wanted[at], "element {at}");
    }
}

#[test]
fn images_are_convolved() {
    // 8 × 8 points of one channel, with 3 × 3 weights, which are the first points; every second point is computed.
    let descriptor = "  %d = alloca %convolution, align 16
  store %convolution <{ <4 x i32> <i32 1, i32 4, i32 4, i32 1>, <4 x i32> <i32 1, i32 8, i32 8, i32 1>, <2 x i32> <i32 3, i32 3>, i32 0, i32 0, <2 x i32> <i32 2, i32 2>, <2 x i32> <i32 1, i32 1>, i32 1, i8 0, [3 x i8] zeroinitializer, i32 0, [4 x i8] zeroinitializer }>, ptr %d, align 16
  %offsets = alloca <2 x i32>, align 8
  store <2 x i32> zeroinitializer, ptr %offsets, align 8
";
    let tensors = tensor("t", "%x", &[1, 8, 8, 1], &[1, 1, 8, 64]) + &tensor("w", "%x", &[1, 1, 3, 3], &[1, 1, 1, 3]);
    let function =
        |result: &str, name: &str, arguments: &str| format!("call {result} @__tensorops_impl_conv2d_cooperative_destination_{name}({arguments})");
    let body = format!(
        "{descriptor}{tensors}  %bytes = {}
  %c = alloca i8, i64 %bytes, align 8
  {}
  %all = {}
  call void @__tensorops_impl_convolution2d_op_run_cooperative_dv_f32_dv_f32_f32(ptr %d, ptr %t, i32 2, ptr %w, i32 2, ptr %all, i32 32, ptr %offsets)
  %count = {}
  %some = icmp ugt i16 %count, 0
  br i1 %some, label %write, label %end

write:
  %at.c = alloca [4 x i32], align 4
  {}
  %p = {}
  %v = load float, ptr %p, align 4
  %first = getelementptr i32, ptr %at.c, i64 1
  %column = load i32, ptr %first, align 4
  %second = getelementptr i32, ptr %at.c, i64 2
  %row = load i32, ptr %second, align 4
  %down = mul i32 %row, 4
  %flat = add i32 %down, %column
  %to = zext i32 %flat to i64
  %q = getelementptr float, ptr addrspace(1) %y, i64 %to
  store float %v, ptr addrspace(1) %q, align 4
  br label %end

end:",
        function("i64", "data_size", &format!("ptr %d, {FLOATS}, i32 32")),
        function("void", "tensor_init", &format!("ptr %c, ptr %d, {FLOATS}, i32 32")),
        function("ptr", "tensor_elements", "ptr %c, i16 -1, i32 268435488, i32 32"),
        function("i16", "tensor_num_elements", &format!("ptr %d, ptr %c, {FLOATS}, i32 32")),
        function("void", "tensor_get_coordinate", &format!("ptr %d, ptr %c, i16 0, i32 268435488, ptr %at.c, i32 536870944, {FLOATS}, i32 32")),
        function("ptr", "tensor_elements", "ptr %c, i16 0, i32 268435488, i32 32"),
    );
    let launch = Launch { outputs: 16, ..launch(&body) };
    let point = |column: i32, row: i32| if column < 0 || row < 0 { None } else { Some(launch.x[(row * 8 + column) as usize]) };
    let made = |column: i32, row: i32| {
        let taps = (0..9).filter_map(|tap| Some((point(2 * column + tap % 3 - 1, 2 * row + tap / 3 - 1)?, launch.x[tap as usize])));
        taps.fold(0f32, |sum, (value, weight)| value.mul_add(weight, sum))
    };
    let wanted: Vec<f32> = (0..16).map(|at| made(at % 4, at / 4)).collect();
    assert_eq!(launch.values::<f32>(), wanted);
}

#[test]
fn a_slice_has_what_its_tensor_has_of_it() {
    let body = tensor("t", "%x", &[8, 8], &[1, 8])
        + "  %origin = alloca [2 x i32], align 4
  store <2 x i32> <i32 2, i32 6>, ptr %origin, align 4
  %wanted = alloca [2 x i32], align 4
  store <2 x i32> <i32 4, i32 4>, ptr %wanted, align 4
  %part = alloca i8, i64 %t.bytes, align 8
  call void @air.slice_private_tensor_private_tensor.s.i32(ptr %part, ptr %t, i16 2, ptr %origin, ptr %wanted)
  %across = call i32 @air.get_extent_private_tensor.i32(ptr %part, i16 2, i16 0)
  %down = call i32 @air.get_extent_private_tensor.i32(ptr %part, i16 2, i16 1)
  %tens = mul i32 %across, 10
  %both = add i32 %tens, %down
  store i32 %both, ptr addrspace(1) %out, align 4";
    assert_eq!(Launch { outputs: 32, ..launch(&body) }.values::<i32>(), [42; 32]);
}
