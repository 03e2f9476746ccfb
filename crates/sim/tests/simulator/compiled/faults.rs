//! Each kind of fault, planted in a sound kernel of a library by an edit of its instructions.

use elinvar_sim::{CompileOptions, FindingKind};

use super::{BARRIER, Launch, assemble, simulator};

const OUTSIDE: &str = "@_ZZ1kE6values = internal unnamed_addr addrspace(3) global [96 x float] undef, align 4
declare float @air.simd_sum.f32(float)
define internal fastcc float @deep(i32 %d) {
  %kept = alloca [8 x float], align 4
  %deepest = icmp ult i32 %d, 4
  br i1 %deepest, label %end, label %more

more:
  %next = sub i32 %d, 4
  %below = call fastcc float @deep(i32 %next)
  %slot = and i32 %d, 7
  %e = getelementptr inbounds [8 x float], ptr %kept, i32 0, i32 %slot
  store volatile float %below, ptr %e, align 4
  %again = load volatile float, ptr %e, align 4
  ret float %again

end:
  ret float 0.0
}
";

/// 96 threads, of which the first `n` read an element and write a neighbour's; private and threadgroup memory, a division, a shift, a recursion.
const SOUND: &str = "  %array = alloca [4 x float], align 4
  %m = load i32, ptr addrspace(2) %n, align 4
  %reads = icmp ult i32 %i, %m
  %writes = icmp ult i32 %i, %m
  br i1 %reads, label %take, label %wait

take:
  %v = load float, ptr addrspace(1) %in, align 4
  %slot = getelementptr inbounds [96 x float], ptr addrspace(3) @_ZZ1kE6values, i64 0, i64 %at
  store float %v, ptr addrspace(3) %slot, align 4
  br label %wait

wait:
  call void @air.wg.barrier(i32 2, i32 1)
  %s = call float @air.simd_sum.f32(float 1.0)
  br i1 %writes, label %make, label %end

make:
  %beside = xor i64 %at, 32
  %neighbour = and i64 %beside, 63
  %other = getelementptr inbounds [96 x float], ptr addrspace(3) @_ZZ1kE6values, i64 0, i64 %neighbour
  %w = load float, ptr addrspace(3) %other, align 4
  %index = and i32 %i, 3
  %element = getelementptr inbounds [4 x float], ptr %array, i32 0, i32 %index
  store volatile float %w, ptr %element, align 4
  %p = load volatile float, ptr %element, align 4
  %divisor = or i32 %m, 1
  %quotient = udiv i32 %i, %divisor
  %amount = and i32 %i, 31
  %shifted = shl i32 %quotient, %amount
  %added = uitofp i32 %shifted to float
  %d = call fastcc float @deep(i32 %i)
  %a = fadd float %p, %added
  %b = fadd float %a, %d
  store float %b, ptr addrspace(1) %out, align 4
  br label %end

end:";

/// What is found, what is edited, and the instruction at which it is found first, if at one.
const FAULTS: &[(FindingKind, &str, &str, &str)] = &[
    (FindingKind::OutOfBoundsRead, "%reads = icmp ult", "%reads = icmp ule", "%v = load float"),
    (FindingKind::OutOfBoundsWrite, "%writes = icmp ult", "%writes = icmp ule", "store float %b"),
    (
        FindingKind::InvalidPointer,
        "%v = load float, ptr addrspace(1) %in",
        "%lost = inttoptr i64 %at to ptr addrspace(1)\n  %v = load float, ptr addrspace(1) %lost",
        "%v = load float",
    ),
    (FindingKind::WriteToConstant, "store float %v, ptr addrspace(3) %slot", "store float %v, ptr addrspace(1) %in", "store float %v"),
    (FindingKind::DataRace, "call void @air.wg.barrier(i32 2, i32 1)", "", ""),
    (FindingKind::UninitialisedRead, "store float %v, ptr addrspace(3) %slot, align 4", "", "%w = load float"),
    (
        FindingKind::MisalignedAccess,
        "%in = getelementptr inbounds float, ptr addrspace(1) %x, i64 %at",
        "%in = getelementptr i8, ptr addrspace(1) %x, i64 2",
        "%v = load float",
    ),
    (FindingKind::ArrayBounds, "%index = and i32 %i, 3", "%index = and i32 %i, 7", "store volatile float %w"),
    (FindingKind::ShiftOverflow, "%amount = and i32 %i, 31", "%amount = and i32 %i, 63", "%shifted = shl"),
    (FindingKind::IntegerDivision, "%divisor = or i32 %m, 1", "%divisor = and i32 %m, 1", "%quotient = udiv"),
    (FindingKind::DivergentBarrier, "br label %wait", "call void @air.wg.barrier(i32 2, i32 1)\n  br label %wait", "call void @air.wg.barrier"),
    (
        FindingKind::DivergentSimd,
        "%s = call float @air.simd_sum.f32(float 1.0)\n  br i1 %writes, label %make, label %end\n\nmake:",
        "%half = icmp ult i32 %lane, 16\n  br i1 %half, label %fold, label %past\n\nfold:\n  %s = call float @air.simd_sum.f32(float 1.0)\n  br label %past\n\npast:\n  br i1 %writes, label %make, label %end\n\nmake:",
        "%s = call float @air.simd_sum",
    ),
    (FindingKind::ThreadgroupMemory, "[96 x float]", "[9000 x float]", ""),
    (FindingKind::UnwrittenOutput, "%writes = icmp ult i32 %i, %m", "%writes = icmp ult i32 %i, 63", ""),
    (FindingKind::TimeLimit, "br label %end\n\nend:", "br label %make\n\nend:", ""),
    (FindingKind::StackOverflow, "%next = sub i32 %d, 4", "%next = add i32 %d, 4", ""),
    (
        FindingKind::Fault,
        "%out = getelementptr inbounds float, ptr addrspace(1) %y, i64 %at",
        "%out = getelementptr float, ptr addrspace(1) %y, i64 16777216",
        "",
    ),
];

fn launch(edit: impl Fn(&str) -> String, checked: bool) -> Launch {
    let launch = Launch::new(&format!("{BARRIER}{OUTSIDE}"), SOUND);
    let module = edit(&launch.module);
    Launch { module, options: CompileOptions { checked, ..CompileOptions::default() }, threads: 96, threadgroup: 96, ..launch }
}

#[test]
fn every_kind_is_found_where_it_is_planted() {
    let wanted: Vec<f32> = (0..64).map(|i| ((i ^ 32) as f32) + 0.5).collect();
    assert_eq!(launch(str::to_owned, true).values::<f32>(), wanted, "the kernel is sound");
    for &(kind, sound, wrong, instruction) in FAULTS {
        let edit = |module: &str| {
            assert!(module.contains(sound), "{sound}");
            module.replace(sound, wrong)
        };
        let launch = launch(edit, kind != FindingKind::Fault);
        let (report, _) = launch.run();
        let found = report.findings.iter().find(|finding| finding.kind == kind);
        let found = found.unwrap_or_else(|| panic!("{kind} is not found, but {:?}", report.findings));
        if !instruction.is_empty() {
            let at = found.at.as_ref().unwrap_or_else(|| panic!("{found} has no place"));
            let text = simulator().toolchain().clang().disassemble(&assemble(&launch.module), "k").unwrap();
            let line = text.lines().nth(at.line as usize - 1).unwrap().trim();
            assert!(&*at.file == "x.metallib/k.ll" && line.starts_with(instruction), "{kind} at {line}");
        }
    }
    for kind in FindingKind::ALL {
        assert!(FAULTS.iter().any(|(planted, ..)| planted == kind), "{kind} is not planted");
    }
}
