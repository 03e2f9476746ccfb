//! Compiled libraries: read, executed, and their faults found. The tests' libraries are made of LLVM's text, written as Apple's compiler writes it.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use elinvar_core::{ConstantValue, Result};
use elinvar_sim::{Binding, Buffer, CompileOptions, Dispatch, FindingKind, Grid, Library, Math, Output, Report, Subnormals};

use crate::common::{buffer, queue, run, simulator, values};

#[path = "../../../metallib/tests/library/container.rs"]
mod container;
mod faults;
mod tensors;

/// What kernels of these tests take: `x` is read, `y` written, `n` a number; the thread's index in the grid and in its simdgroup.
const ARGUMENTS: &str = r#"
!air.kernel = !{!0}
!0 = !{ptr @k, !1, !2}
!1 = !{}
!2 = !{!3, !4, !5, !6, !7}
!3 = !{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"x"}
!4 = !{i32 1, !"air.buffer", !"air.location_index", i32 1, i32 1, !"air.read_write", !"air.address_space", i32 1, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"y"}
!5 = !{i32 2, !"air.buffer", !"air.buffer_size", i32 4, !"air.location_index", i32 2, i32 1, !"air.read", !"air.address_space", i32 2, !"air.arg_type_size", i32 4, !"air.arg_type_align_size", i32 4, !"air.arg_type_name", !"int", !"air.arg_name", !"n"}
!6 = !{i32 3, !"air.thread_position_in_grid", !"air.arg_type_name", !"uint", !"air.arg_name", !"i"}
!7 = !{i32 4, !"air.thread_index_in_simdgroup", !"air.arg_type_name", !"uint", !"air.arg_name", !"lane"}
"#;

/// A module with one kernel, `k`; `outside` are its variables and declarations.
fn module(outside: &str, body: &str) -> String {
    format!(
        "source_filename = \"k\"
{outside}
define void @k(ptr addrspace(1) noundef \"air-buffer-no-alias\" %x, ptr addrspace(1) noundef \"air-buffer-no-alias\" %y, \
         ptr addrspace(2) noundef align 4 dereferenceable(4) %n, i32 noundef %i, i32 noundef %lane) local_unnamed_addr #0 {{
  %at = zext i32 %i to i64
  %in = getelementptr inbounds float, ptr addrspace(1) %x, i64 %at
  %out = getelementptr inbounds float, ptr addrspace(1) %y, i64 %at
{body}
  ret void
}}
attributes #0 = {{ convergent mustprogress nounwind \"no-builtins\" }}
{ARGUMENTS}"
    )
}

/// Assembled by the simulator's own compiler.
fn assemble(module: &str) -> Vec<u8> {
    let described = simulator().toolchain().describe();
    let mut words = described.split(" (").next().unwrap().split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["-x", "ir", "-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-w", "-o", "-", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(module.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{module}");
    output.stdout
}

fn open(module: &str, constants: &[(&str, u8, u16)], options: &CompileOptions) -> Library {
    let bitcode = assemble(module);
    let file = container::library(&[container::Compiled { name: "k", bitcode: &bitcode, constants }]);
    simulator().compiled_library("x.metallib", file, options).unwrap()
}

/// What to launch and what it leaves in `y`.
struct Launch {
    module: String,
    options: CompileOptions,
    threads: u32,
    threadgroup: u32,
    x: Vec<f32>,
    outputs: usize,
    n: i32,
}

impl Launch {
    fn new(outside: &str, body: &str) -> Self {
        let x = (0..64).map(|i| i as f32 + 0.5).collect();
        Self { module: module(outside, body), options: CompileOptions::default(), threads: 64, threadgroup: 64, x, outputs: 64, n: 64 }
    }

    fn run(&self) -> (Report, Buffer) {
        self.with_constants(&[], &[])
    }

    fn with_constants(&self, constants: &[(&str, u8, u16)], given: &[(u32, ConstantValue)]) -> (Report, Buffer) {
        let pipeline = open(&self.module, constants, &self.options).pipeline("k", given).unwrap_or_else(|error| panic!("{error}"));
        let (x, y) = (buffer("x", &self.x), simulator().buffer("y", 4 * self.outputs).unwrap());
        let dispatch = Dispatch::new(&pipeline, Grid::Threads([self.threads, 1, 1]), [self.threadgroup, 1, 1])
            .with(Binding::new(0, &x))
            .with(Binding::new(1, &y).output(Output::Whole))
            .with_bytes(2, self.n.to_le_bytes());
        (run(&queue(), dispatch, 1), y)
    }

    /// What `y` holds after a run in which nothing is found.
    fn values<T: Copy>(&self) -> Vec<T> {
        let (report, y) = self.run();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        values(&y)
    }
}

const BARRIER: &str = "declare void @air.wg.barrier(i32, i32)\n";
const SHARED: &str = "@_ZZ1kE6totals = internal unnamed_addr addrspace(3) global [2 x float] undef, align 4\n";

/// The sum of all 64 threads, over two simdgroups, which each thread writes.
fn sum(barrier: &str) -> Launch {
    let outside = format!("{SHARED}{BARRIER}declare float @air.simd_sum.f32(float)\n");
    let body = format!(
        "  %v = load float, ptr addrspace(1) %in, align 4, !noalias !1
  %s = tail call float @air.simd_sum.f32(float %v) #0
  %group = lshr i32 %i, 5
  %g = zext i32 %group to i64
  %slot = getelementptr inbounds [2 x float], ptr addrspace(3) @_ZZ1kE6totals, i64 0, i64 %g
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %write, label %wait

write:
  store float %s, ptr addrspace(3) %slot, align 4
  br label %wait

wait:
{barrier}
  %a = load float, ptr addrspace(3) @_ZZ1kE6totals, align 4
  %b = load float, ptr addrspace(3) getelementptr inbounds ([2 x float], ptr addrspace(3) @_ZZ1kE6totals, i64 0, i64 1), align 4
  %t = fadd float %a, %b
  store float %t, ptr addrspace(1) %out, align 4"
    );
    Launch::new(&outside, &body)
}

#[test]
fn a_kernel_with_threadgroup_memory_gives_the_sum() {
    let wanted: f32 = (0..64).map(|i| i as f32 + 0.5).sum();
    let mut launch = sum("  tail call void @air.wg.barrier(i32 2, i32 1) #0");
    assert_eq!(launch.values::<f32>(), [wanted; 64]);
    launch.options.checked = false;
    assert_eq!(launch.values::<f32>(), [wanted; 64]);
}

#[test]
fn a_missing_barrier_is_a_race() {
    let (report, _) = sum("").run();
    let race = report.findings.iter().find(|finding| finding.kind == FindingKind::DataRace).expect("a race");
    assert_eq!((race.buffer.as_deref(), race.at.is_some(), race.other.is_some()), (Some("totals"), true, true), "{race}");
}

#[test]
fn a_library_with_line_tables_has_findings_at_the_lines_of_its_text() {
    let tables = "!llvm.module.flags = !{!20}
!llvm.dbg.cu = !{!21}
!20 = !{i32 2, !\"Debug Info Version\", i32 3}
!21 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !22, emissionKind: FullDebug)
!22 = !DIFile(filename: \"k.metal\", directory: \"/texts\")
!23 = distinct !DISubprogram(name: \"k\", scope: !22, file: !22, line: 3, unit: !21, type: !24, spFlags: DISPFlagDefinition)
!24 = !DISubroutineType(types: !25)
!25 = !{}
!26 = !DILocation(line: 7, column: 2, scope: !23)
!27 = !DILocation(line: 8, column: 2, scope: !23)
";
    let body = "  call void @air.wg.barrier(i32 2, i32 1), !dbg !27
  %far = getelementptr inbounds float, ptr addrspace(1) %out, i64 1, !dbg !26
  store float 1.0, ptr addrspace(1) %far, align 4, !noalias !1, !dbg !26";
    let mut launch = Launch::new(BARRIER, body);
    launch.module = launch.module.replace("local_unnamed_addr #0 {", "local_unnamed_addr #0 !dbg !23 {") + tables;
    let (report, _) = launch.run();
    let places: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.at.as_ref().map(ToString::to_string))).collect();
    assert_eq!(places, [(FindingKind::OutOfBoundsWrite, Some("/texts/k.metal:7".to_owned()))]);
}

#[test]
fn function_constants_are_specialised() {
    let outside = "@_ZL6scaled = internal unnamed_addr addrspace(2) global i8 undef, align 1
@_Z6scaled.MTL_FC_INIT_7_b = internal unnamed_addr addrspace(2) externally_initialized constant i8 undef, section \"air.fc_initializer\", align 1
@_Z6factor.MTL_FC_INIT_8_f = internal unnamed_addr addrspace(2) externally_initialized constant float undef, section \"air.fc_initializer\", align 4
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
@llvm.compiler.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(2) @_ZL6scaled to ptr)], section \"llvm.metadata\"
declare i8 @air.normalize_function_constant_predicate.i8(i8)
define internal void @start() section \"air.static_init\" {
  %1 = load i8, ptr addrspace(2) @_Z6scaled.MTL_FC_INIT_7_b, align 1
  %2 = call i8 @air.normalize_function_constant_predicate.i8(i8 %1)
  store i8 %2, ptr addrspace(2) @_ZL6scaled, align 1
  ret void
}";
    let body = "  %v = load float, ptr addrspace(1) %in, align 4
  %c = load i8, ptr addrspace(2) @_ZL6scaled, align 1
  %is = icmp ne i8 %c, 0
  %f = load float, ptr addrspace(2) @_Z6factor.MTL_FC_INIT_8_f, align 4
  %m = fmul float %v, %f
  %r = select i1 %is, float %m, float %v
  store float %r, ptr addrspace(1) %out, align 4";
    let launch = Launch::new(outside, body);
    let constants = [("scaled", 53, 7), ("factor", 3, 8)];
    let with = |given: &[(u32, ConstantValue)]| values::<f32>(&launch.with_constants(&constants, given).1)[3];
    assert_eq!(with(&[]), 3.5);
    assert_eq!(with(&[(7, ConstantValue::Bool(true)), (8, ConstantValue::Float(-2.25))]), -7.875);
    let error = open(&launch.module, &constants, &CompileOptions::default()).pipeline("k", &[(9, ConstantValue::Int(1))]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "x.metallib has no function constant 9; it has 7 (`scaled`), 8 (`factor`)");
}

#[test]
fn vectors_conversions_and_matrices() {
    let outside = "declare <2 x float> @air.convert.f.v2f32.s.v2i32(<2 x i32>)
declare i1 @air.convert.u.i1.f.f32(float)
declare <2 x i32> @air.max.s.v2i32(<2 x i32>, <2 x i32>)
declare <2 x float> @air.fast_sqrt.v2f32(<2 x float>)
declare float @air.dot.v2f32(<2 x float>, <2 x float>)
declare i16 @air.get_simdgroup_size.i16()";
    let body = "  %a = insertelement <2 x i32> <i32 0, i32 -9>, i32 %i, i64 0
  %m = call <2 x i32> @air.max.s.v2i32(<2 x i32> %a, <2 x i32> <i32 4, i32 -1>)
  %f = call <2 x float> @air.convert.f.v2f32.s.v2i32(<2 x i32> %m)
  %q = call fast <2 x float> @air.fast_sqrt.v2f32(<2 x float> %f)
  %p = insertelement <2 x float> %q, float 3.0, i64 1
  %d = call float @air.dot.v2f32(<2 x float> %p, <2 x float> <float 2.0, float 10.0>)
  %b = call i1 @air.convert.u.i1.f.f32(float %d)
  %w = call i16 @air.get_simdgroup_size.i16()
  %wide = uitofp i16 %w to float
  %s = fadd float %d, %wide
  %r = select i1 %b, float %s, float 0.0
  store float %r, ptr addrspace(1) %out, align 4";
    let wanted: Vec<f32> = (0..64).map(|i| (i.max(4) as f32).sqrt() * 2.0 + 30.0 + 32.0).collect();
    assert_eq!(Launch::new(outside, body).values::<f32>(), wanted);

    // x times two, as matrices of 8 × 8.
    let many = |what: &str, lanes: usize| {
        (0..64).map(|lane| if lane < lanes { format!("i32 {lane}") } else { what.to_owned() }).collect::<Vec<_>>().join(", ")
    };
    let outside = "declare <64 x float> @air.simdgroup_matrix_8x8_load.v64f32.p1f32(ptr addrspace(1) nocapture readonly, i64, <2 x i64>, i1)
declare <64 x float> @air.simdgroup_matrix_8x8_init_diag.v64f32.f32(float)
declare <64 x float> @air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32(<64 x float>, <64 x float>, <64 x float>)
declare void @air.simdgroup_matrix_8x8_store.v64f32.p1f32(<64 x float>, ptr addrspace(1) nocapture writeonly, i64, <2 x i64>, i1)";
    let body = |transposed: bool| {
        format!(
            "  %a = call <64 x float> @air.simdgroup_matrix_8x8_load.v64f32.p1f32(ptr addrspace(1) nocapture readonly %x, i64 8, <2 x i64> zeroinitializer, i1 {transposed})
  %b = call <64 x float> @air.simdgroup_matrix_8x8_init_diag.v64f32.f32(float 2.0)
  %pair = shufflevector <64 x float> %a, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  %wide = shufflevector <2 x float> %pair, <2 x float> poison, <64 x i32> <{}>
  %again = shufflevector <64 x float> %wide, <64 x float> %a, <64 x i32> <{}>
  %p = call <64 x float> @air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f32.v64f32.v64f32(<64 x float> %again, <64 x float> %b, <64 x float> zeroinitializer)
  call void @air.simdgroup_matrix_8x8_store.v64f32.p1f32(<64 x float> %p, ptr addrspace(1) nocapture writeonly %y, i64 8, <2 x i64> zeroinitializer, i1 false)",
            many("i32 poison", 2),
            many("i32 70", 2)
        )
    };
    for transposed in [false, true] {
        let launch = Launch { threads: 32, threadgroup: 32, ..Launch::new(outside, &body(transposed)) };
        let at = |i: usize| if transposed { i % 8 * 8 + i / 8 } else { i };
        let wanted: Vec<f32> = (0..64).map(|i| 2.0 * launch.x[at(i)]).collect();
        assert_eq!(launch.values::<f32>(), wanted);
    }
}

#[test]
fn arithmetic_follows_the_options() {
    let outside = "declare float @llvm.fmuladd.f32(float, float, float)";
    let body = "  %v = load float, ptr addrspace(1) %in, align 4
  %r = call float @llvm.fmuladd.f32(float %v, float %v, float 0xBFF0000000000000)
  store float %r, ptr addrspace(1) %out, align 4";
    let x = 1.0 + f32::EPSILON;
    let with = |math| {
        let launch = Launch { options: CompileOptions { math, ..CompileOptions::default() }, x: vec![x; 64], ..Launch::new(outside, body) };
        launch.values::<f32>()[0]
    };
    assert_eq!((with(Math::Safe), with(Math::Fast)), (x * x - 1.0, x.mul_add(x, -1.0)));
    let tiny = f32::from_bits(1);
    let with = |subnormals| {
        let body =
            "  %v = load float, ptr addrspace(1) %in, align 4\n  %r = fmul float %v, 8.388608e+06\n  store float %r, ptr addrspace(1) %out, align 4";
        let launch = Launch { options: CompileOptions { subnormals, ..CompileOptions::default() }, x: vec![tiny; 64], ..Launch::new("", body) };
        launch.values::<f32>()[0]
    };
    assert_eq!((with(Subnormals::Keep), with(Subnormals::Flush)), (f32::MIN_POSITIVE, 0.0));
}

#[test]
fn what_cannot_be_executed_is_named() {
    let error = |module: &str| open(module, &[], &CompileOptions::default()).pipeline("k", &[]).map(drop).unwrap_err().to_string();
    let unknown = module("declare float @air.frobnicate.f32(float)", "  %v = call float @air.frobnicate.f32(float 1.0)");
    assert_eq!(error(&unknown), "x.metallib, function `k`: it calls `air.frobnicate.f32`, which the simulator does not have");
    let outside = module("declare void @getpid()", "  call void @getpid()");
    assert_eq!(error(&outside), "x.metallib, function `k`: it calls `getpid`, which the simulator does not have");
    let pointer = module("", "  %f = inttoptr i64 %at to ptr\n  call void %f()");
    assert_eq!(error(&pointer), "x.metallib, function `k`: it calls what has no name, which the simulator does not have");
    let assembly = module("", "  call void asm sideeffect \"@nop\", \"\"()");
    assert_eq!(error(&assembly), "x.metallib, function `k`: it calls what has no name, which the simulator does not have");
    let variable = module("@environ = external global ptr", "  %v = load ptr, ptr @environ");
    assert_eq!(error(&variable), "x.metallib, function `k`: it uses `environ`, which is not in the library");
    let texture = module("", "").replace("!\"air.buffer\", !\"air.location_index\", i32 0", "!\"air.texture\", !\"air.location_index\", i32 0");
    assert_eq!(error(&texture), "x.metallib, function `k`: its parameter `x` is a texture, which is not supported");
    let position = module("", "").replace("air.thread_position_in_grid", "air.amplification_count");
    assert_eq!(error(&position), "x.metallib, function `k`: its parameter `i` is a position `amplification_count`, which is not supported");
    let open =
        |file: Vec<u8>| -> Result<()> { simulator().compiled_library("x.metallib", file, &CompileOptions::default())?.pipeline("l", &[]).map(drop) };
    let file = container::library(&[container::Compiled { name: "k", bitcode: b"BC\xc0\xde", constants: &[] }]);
    assert_eq!(open(file.clone()).unwrap_err().to_string(), "x.metallib has no function `l`: of its 1, the nearest are k");
    let damaged =
        simulator().compiled_library("x.metallib", file, &CompileOptions::default()).unwrap().pipeline("k", &[]).map(drop).unwrap_err().to_string();
    assert_eq!(damaged, "x.metallib, function `k`: its bitcode is not sound: it holds no module");
    let mut sound = assemble(&module("", ""));
    let middle = sound.len() / 2;
    sound[middle..middle + 20].fill(0xff);
    let file = container::library(&[container::Compiled { name: "k", bitcode: &sound, constants: &[] }]);
    let damaged =
        simulator().compiled_library("x.metallib", file, &CompileOptions::default()).unwrap().pipeline("k", &[]).map(drop).unwrap_err().to_string();
    assert!(damaged.starts_with("x.metallib, function `k`") && !damaged.contains('\n'), "{damaged}");
    assert_eq!(open(b"MTLB".to_vec()).unwrap_err().to_string(), "x.metallib is no sound Metal library: its header is not complete");
}
