//! For NVIDIA's GPUs: threadgroup variables lie in shared memory, and the entry point takes what those of texts do. It computes the thread's positions.

use std::fmt::Write;

use elinvar_msl::{ParameterKind, cuda::Threadgroups};

use super::lower::{Lowering, Shared, coordinates};

/// What a GPU is to run a function for.
#[derive(Clone, Copy, Debug)]
pub struct Nvidia {
    /// The threadgroups of its launches.
    pub threadgroups: Threadgroups,
}

/// `#0`: threads wait for each other.
const ATTRIBUTES: &str = "\nattributes #0 = { convergent nounwind }\n";
/// Threads of a threadgroup, if the function does not say.
const MAX_THREADS: u32 = 1024;

impl Lowering<'_> {
    /// The entry point, named as the function with `elv_` before it. Its arguments are those of the function, in order: an address for each buffer, nothing
    /// for the first threadgroup memory, for each further one its distance from there in bytes, nothing for positions; and the grid's threads.
    pub(super) fn nvidia_entry(&mut self, nvidia: &Nvidia, name: &str, kinds: &[&str]) {
        let (mut parameters, mut arguments, mut body, mut shared) = (Vec::new(), Vec::new(), String::new(), 0);
        for (at, (kind, parameter)) in kinds.iter().zip(&self.request.kernel.parameters).enumerate() {
            match &parameter.kind {
                ParameterKind::Buffer { .. } => parameters.push(format!("ptr %a{at}")),
                ParameterKind::Threadgroup { .. } => {
                    let mut offset = "0".to_owned();
                    if shared > 0 {
                        parameters.push(format!("i32 %o{at}"));
                        offset = format!("%o{at}");
                    }
                    let start = "addrspacecast (ptr addrspace(3) @elv_shared to ptr)";
                    let _ = writeln!(body, "  %a{at} = getelementptr i8, ptr {start}, i32 {offset}");
                    shared += 1;
                }
                ParameterKind::Position(position) => {
                    let function = format!("elv_air_{}", position.attribute());
                    coordinates(at, kind, &mut body, |lane| format!("  %v{at}.{lane} = call i32 @{function}(i32 {lane}, {GRID})\n"));
                    self.declared.insert(format!("declare i32 @{function}(i32, i32, i32, i32)"));
                }
            }
            arguments.push(format!("{kind} %a{at}"));
        }
        parameters.push("ptr byval([3 x i32]) align 4 %grid".to_owned());
        let mut head = String::from("  call void @elv_air_await_launches()\n");
        for (at, coordinate) in ["x", "y", "z"].iter().enumerate() {
            let _ = writeln!(
                head,
                "  %at.{coordinate} = getelementptr i32, ptr %grid, i32 {at}\n  %grid.{coordinate} = load i32, ptr %at.{coordinate}, align 4"
            );
        }
        if nvidia.threadgroups == Threadgroups::Nonuniform {
            let _ = writeln!(head, "  %outside = call i1 @elv_air_is_outside({GRID})\n  br i1 %outside, label %end, label %begin\n\nbegin:");
            self.declared.insert("declare i1 @elv_air_is_outside(i32, i32, i32)".to_owned());
        } else {
            head.push_str("  br label %begin\n\nbegin:\n");
        }
        self.declared.insert("declare void @elv_air_await_launches()".to_owned());
        let symbol = nvidia_symbol(self.request.function_name());
        self.push(&format!(
            "\ndefine ptx_kernel void @{symbol}({}) #0 {{\n{head}{body}  call void {name}({})\n  br label %end\n\nend:\n  ret void\n}}",
            parameters.join(", "),
            arguments.join(", ")
        ));
    }

    /// The whole module.
    pub(super) fn for_nvidia(self) -> String {
        let mut shared: Vec<_> = self.shared.iter().collect();
        shared.sort_by_key(|(_, shared)| shared.number);
        let mut out = String::from("@elv_shared = external addrspace(3) global [0 x i8], align 16\n");
        for (name, Shared { kind, alignment, .. }) in shared {
            let _ = writeln!(out, "{name} = internal addrspace(3) global {kind} undef, align {alignment}");
        }
        out.push_str(&self.definitions());
        out.push_str(ATTRIBUTES);
        let (symbol, threads) = (nvidia_symbol(self.request.function_name()), self.request.kernel.max_total_threads.unwrap_or(MAX_THREADS));
        let _ = writeln!(out, "!nvvm.annotations = !{{!0}}\n!0 = !{{ptr @{symbol}, !\"maxntidx\", i32 {threads}}}");
        out
    }
}

const GRID: &str = "i32 %grid.x, i32 %grid.y, i32 %grid.z";

/// The entry point's symbol, which says in a profiler which function it is.
pub fn nvidia_symbol(function: &str) -> String {
    let legible: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(100).collect();
    format!("elv_{legible}")
}
