//! Kernels of compiled Metal libraries become PTX; no GPU need be there. The libraries are made of LLVM's text, written as Apple's compiler writes it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::sync::Arc;

use elinvar_core::{CompiledMetal, ConstantValue, METAL_VERSION, MetalCode, Result, UserMetal};
use elinvar_cuda::{LibraryCompiler, Ptx};
use elinvar_metallib::clang::{Clang, run};
use elinvar_msl::cuda::Threadgroups;

#[path = "../../metallib/tests/library/container.rs"]
mod container;

/// `x` is read, `y` written; the thread's index in the grid; memory of the threadgroup.
const ARGUMENTS: &str = r#"
!air.kernel = !{!0}
!0 = !{ptr @k, !1, !2}
!1 = !{}
!2 = !{!3, !4, !5, !6, !7}
!3 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"x"}
!4 = !{i32 1, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read_write", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"y"}
!5 = !{i32 2, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint2", !"air.arg_name", !"i"}
!6 = !{i32 3, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read_write", !"air.address_space", i32 3, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"first"}
!7 = !{i32 4, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read_write", !"air.address_space", i32 3, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"second"}
"#;

/// A module with one kernel, `k`; `outside` are its variables and declarations. `%v` is what the body makes of `%a`, the thread's element.
fn module(outside: &str, body: &str) -> String {
    format!(
        "source_filename = \"k\"
{outside}
define void @k(ptr addrspace(1) noundef \"air-buffer-no-alias\" %x, ptr addrspace(1) noundef %y, <2 x i32> noundef %i, \
         ptr addrspace(3) noundef %first, ptr addrspace(3) noundef %second) local_unnamed_addr #0 {{
  %n = extractelement <2 x i32> %i, i64 0
  %at = zext i32 %n to i64
  %in = getelementptr inbounds float, ptr addrspace(1) %x, i64 %at
  %out = getelementptr inbounds float, ptr addrspace(1) %y, i64 %at
  %a = load float, ptr addrspace(1) %in, align 4
{body}
  store float %v, ptr addrspace(1) %out, align 4
  ret void
}}
attributes #0 = {{ convergent mustprogress nounwind \"no-builtins\" }}
{ARGUMENTS}"
    )
}

/// How it is compiled: whether contracted, for which threadgroups and compute capability, with which function constants.
struct Options<'a> {
    fast_math: bool,
    threadgroups: Threadgroups,
    capability: u32,
    constants: &'a [(u32, ConstantValue)],
}

const OPTIONS: Options<'_> = Options { fast_math: false, threadgroups: Threadgroups::Uniform, capability: 90, constants: &[] };

fn compile(module: &str, options: &Options<'_>) -> Result<Ptx> {
    let (clang, ()) = Clang::find("these tests compile kernels", |_| Ok(())).unwrap();
    let mut command = clang.command();
    command.args(["-x", "ir", "-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-w", "-o", "-", "-"]);
    let assembled = run(&mut command, module.as_bytes()).unwrap();
    assert!(assembled.status.success(), "{module}");
    let constants = [("wide", 53, 7)];
    let file = container::library(&[container::Compiled { name: "k", bitcode: &assembled.stdout, constants: &constants }]);
    let library = CompiledMetal::new(Arc::from(file));
    let user = UserMetal {
        name: "x.metallib".to_owned(),
        code: MetalCode::Library(library.clone()),
        kernel: "k".to_owned(),
        constants: options.constants.to_vec(),
        fast_math: options.fast_math,
        version: METAL_VERSION,
        buffers: vec![0, 1],
        threadgroup: vec![0, 1],
        rejections: Vec::new(),
        registers: None,
    };
    LibraryCompiler::new(None).unwrap().compile(&user, &library, options.threadgroups, options.capability)
}

/// The PTX, or the error's message.
fn ptx(outside: &str, body: &str, options: &Options<'_>) -> String {
    let made = compile(&module(outside, body), options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((made.text.last(), made.symbol.as_str()), (Some(&0), "elv_k"));
    String::from_utf8(made.text).unwrap()
}

#[test]
fn an_entry_takes_addresses_distances_and_the_grid() {
    let text = ptx("", "  %v = fadd float %a, 1.0", &OPTIONS);
    let parameters = text.split_once(".entry elv_k(").unwrap().1.split_once(')').unwrap().0;
    // From clang 20 on, addresses say their alignment too.
    let kinds: Vec<&str> =
        parameters.lines().filter_map(|line| line.trim().strip_prefix(".param ")?.split(" elv_k").next()?.split(" .ptr").next()).collect();
    assert_eq!(kinds, [".u64", ".u64", ".u32", ".align 4 .b8"], "{parameters}");
    assert!(text.contains(".target sm_90") && text.contains("ld.global") && text.contains("griddepcontrol.wait"), "{text}");
    let older = ptx("", "  %v = fadd float %a, 1.0", &Options { capability: 80, ..OPTIONS });
    assert!(older.contains(".target sm_80") && !older.contains("griddepcontrol"), "{older}");
}

#[test]
fn nothing_is_contracted_unless_it_is_asked_for() {
    let outside = "declare float @llvm.fmuladd.f32(float, float, float)";
    let body =
        "  %p = fmul fast float %a, %a\n  %q = fadd fast float %p, 3.0\n  %v = tail call fast float @llvm.fmuladd.f32(float %q, float %a, float 1.0)";
    let text = ptx(outside, body, &OPTIONS);
    assert!(!text.contains("fma.rn") && text.contains("mul.rn.f32") && text.contains("add.rn.f32"), "{text}");
    let text = ptx(outside, body, &Options { fast_math: true, ..OPTIONS });
    assert_eq!(text.matches("fma.rn.f32").count(), 1, "{text}");
}

/// The lanes that come to an operation are voted on where a branch parts them, and given on to functions; elsewhere all come.
#[test]
fn operations_of_a_simdgroup_take_the_lanes_that_come() {
    let outside = "declare float @air.simd_sum.f32(float)
define internal float @total(float %x) noinline convergent {
  %y = tail call float @air.simd_sum.f32(float %x)
  ret float %y
}";
    let all = ptx(outside, "  %v = call float @total(float %a)", &OPTIONS);
    assert!(all.contains("shfl.sync.bfly") && !all.contains("vote.sync.ballot"), "{all}");
    let body =
        "  %few = icmp ult i32 %n, 5\n  br i1 %few, label %fold, label %end\nfold:\n  %sum = call float @total(float %a)\n  br label %end\nend:
  %v = phi float [ %sum, %fold ], [ %a, %0 ]";
    let some = ptx(outside, body, &OPTIONS);
    assert_eq!(some.matches("vote.sync.ballot").count(), 1, "{some}");
    let masks: Vec<&str> =
        some.lines().filter(|line| line.contains("shfl.sync.idx")).filter_map(|line| line.rsplit_once(", ")).map(|(_, mask)| mask).collect();
    assert!(!masks.is_empty() && masks.iter().all(|mask| mask.starts_with("%r")), "{some}");
}

#[test]
fn threadgroup_memory_is_shared_memory() {
    let outside = "@_ZZ1kE6totals = internal unnamed_addr addrspace(3) global [2 x float] undef, align 4\ndeclare void @air.wg.barrier(i32, i32)";
    let body = "  %slot = getelementptr inbounds [2 x float], ptr addrspace(3) @_ZZ1kE6totals, i64 0, i64 %at
  store float %a, ptr addrspace(3) %slot, align 4
  store float %a, ptr addrspace(3) %first, align 4
  store float %a, ptr addrspace(3) %second, align 4
  tail call void @air.wg.barrier(i32 2, i32 1)
  %v = load float, ptr addrspace(3) getelementptr inbounds ([2 x float], ptr addrspace(3) @_ZZ1kE6totals, i64 0, i64 1), align 4";
    let text = ptx(outside, body, &OPTIONS);
    assert_eq!((text.matches("st.shared").count(), text.matches("ld.shared").count(), text.matches("bar.sync").count()), (3, 1, 1), "{text}");
    assert!(text.contains(".extern .shared .align 16 .b8 elv_shared[]"), "{text}");
}

#[test]
fn functions_of_metals_library_are_those_of_texts() {
    let outside = "declare float @air.simd_sum.f32(float)
declare float @air.fast_exp.f32(float)
declare <2 x float> @air.fast_sqrt.v2f32(<2 x float>)
declare float @air.atomic.global.add.f32(ptr addrspace(1), float, i32, i32, i1)
declare <64 x float> @air.simdgroup_matrix_8x8_init_filled.v64f32.f32(float)
declare <64 x float> @air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32(<64 x float>, <64 x float>, <64 x float>)";
    let body = "  %s = tail call float @air.simd_sum.f32(float %a)
  %e = tail call fast float @air.fast_exp.f32(float %s)
  %two = insertelement <2 x float> <float 2.0, float 3.0>, float %e, i64 0
  %roots = tail call <2 x float> @air.fast_sqrt.v2f32(<2 x float> %two)
  %root = extractelement <2 x float> %roots, i64 0
  %m = tail call <64 x float> @air.simdgroup_matrix_8x8_init_filled.v64f32.f32(float %root)
  %p = tail call <64 x float> @air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32(<64 x float> %m, <64 x float> %m, <64 x float> %m)
  %q = extractelement <64 x float> %p, i64 0
  %v = tail call float @air.atomic.global.add.f32(ptr addrspace(1) %out, float %q, i32 0, i32 2, i1 true)";
    let text = ptx(outside, body, &OPTIONS);
    for instruction in ["shfl.sync.bfly", "sqrt.rn.f32", "atom.global.add.f32"] {
        assert!(text.contains(instruction), "{instruction}: {text}");
    }
    // Everything is in the kernel itself.
    assert!(!text.contains("call.uni") && !text.contains(".ftz"), "{text}");
}

#[test]
fn launches_over_threads_leave_out_those_beyond_the_grid() {
    let body = "  %v = fadd float %a, 1.0";
    let branches = |text: String| text.matches("bra ").count();
    let (whole, partial) = (ptx("", body, &OPTIONS), ptx("", body, &Options { threadgroups: Threadgroups::Nonuniform, ..OPTIONS }));
    assert!(branches(partial) > branches(whole));
}

#[test]
fn function_constants_are_specialised() {
    let outside = "@_ZL4wide = internal unnamed_addr addrspace(2) global i8 undef, align 1
@_Z4wide.MTL_FC_INIT_7_b = internal unnamed_addr addrspace(2) externally_initialized constant i8 undef, section \"air.fc_initializer\", align 1
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
declare i8 @air.normalize_function_constant_predicate.i8(i8)
define internal void @start() section \"air.static_init\" {
  %1 = load i8, ptr addrspace(2) @_Z4wide.MTL_FC_INIT_7_b, align 1
  %2 = call i8 @air.normalize_function_constant_predicate.i8(i8 %1)
  store i8 %2, ptr addrspace(2) @_ZL4wide, align 1
  ret void
}";
    let body = "  %c = load i8, ptr addrspace(2) @_ZL4wide, align 1
  %is = icmp ne i8 %c, 0
  %v = select i1 %is, float 2.0, float 4.0";
    let with = |value| ptx(outside, body, &Options { constants: &[(7, ConstantValue::Bool(value))], ..OPTIONS });
    let stored =
        |text: &str, number: &str| text.contains(&format!("0f{number}")) || text.contains(&i64::from_str_radix(number, 16).unwrap().to_string());
    assert!(stored(&with(true), "40000000") && stored(&with(false), "40800000"));
}

#[test]
fn what_cannot_be_compiled_is_named() {
    let error = |outside: &str, body: &str| compile(&module(outside, body), &OPTIONS).map(drop).unwrap_err().to_string();
    let unknown = error("declare float @air.frobnicate.f32(float)", "  %v = call float @air.frobnicate.f32(float 1.0)");
    assert_eq!(unknown, "x.metallib, function `k`: it calls `air.frobnicate.f32`, which the CUDA device does not have");
    let message = error("", "  %v = call float asm \"frobnicate\", \"=f\"()");
    assert!(message.starts_with("x.metallib, function `k`: it calls what has no name") && !message.contains('\n'), "{message}");
}
