//! From a kernel of a Metal library that Apple's compiler has made to PTX, which the driver compiles: disassemble and rewrite (the `metallib` crate),
//! compile (clang's backend for NVIDIA's GPUs). What was made once is found in the cache, by what it was made from: a machine that has it needs no clang.

use std::{path::Path, sync::OnceLock};

use elinvar_core::{Cache, CacheKey, CompiledMetal, Error, Result, UserMetal};
use elinvar_metallib::{
    CompiledLibrary,
    air::{self, Machine, Nvidia, Runtime},
    clang::{Clang, run},
};
use elinvar_msl::{Kernel, cuda::Threadgroups};

/// Compiles kernels of compiled Metal libraries for NVIDIA GPUs; none need be there.
pub struct LibraryCompiler {
    cache: Cache,
    /// Looked for when it is first needed.
    clang: OnceLock<Result<Clang>>,
}

/// A kernel in PTX, as text with a zero at its end.
pub struct Ptx {
    /// The text.
    pub text: Vec<u8>,
    /// The entry point's symbol.
    pub symbol: String,
    /// What the kernel takes.
    pub kernel: Kernel,
}

/// Of functions that are read before they are compiled further.
const RUNTIME_FLAGS: &[&str] = &[
    "-x",
    "c++",
    "-std=c++17",
    "-nostdinc",
    "-O3",
    "-ffp-contract=off",
    "-fconvergent-functions",
    "-fno-exceptions",
    "-fno-rtti",
    // Each operation on narrow numbers rounds.
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
];
const UNOPTIMISED: &[&str] = &["-Xclang", "-disable-llvm-passes", "-w", "-emit-llvm"];

/// What a kernel is compiled for.
struct Target {
    threadgroups: Threadgroups,
    contracted: bool,
    /// LLVM's name of the kind of GPU: the latest that every clang from 19 on knows. PTX for it runs on later ones.
    architecture: u32,
}

impl Target {
    fn flags(&self) -> Vec<String> {
        // PTX 8.0 is that of CUDA 12.0, which the device needs.
        let flags = ["--target=nvptx64-nvidia-cuda", "-Xclang", "-target-feature", "-Xclang", "+ptx80"].map(str::to_owned);
        flags.into_iter().chain([format!("-march=sm_{}", self.architecture)]).collect()
    }

    fn runtime_flags(&self) -> Vec<String> {
        let mut flags = self.flags();
        flags.extend(RUNTIME_FLAGS.iter().map(|&flag| flag.to_owned()));
        flags.push(format!("-D__CUDA_ARCH__={}0", self.architecture));
        if !self.contracted {
            flags.push("-DELV_EXACT_PRODUCTS".to_owned());
        }
        if self.threadgroups == Threadgroups::Nonuniform {
            flags.push("-DELV_NONUNIFORM".to_owned());
        }
        flags
    }

    fn kernel_flags(&self) -> Vec<String> {
        let mut flags = self.flags();
        flags.extend(["-x", "ir", "-O3", "-S", "-w"].map(str::to_owned));
        flags.push(format!("-ffp-contract={}", if self.contracted { "on" } else { "off" }));
        flags
    }
}

impl LibraryCompiler {
    /// With a folder for what was compiled (by default, the user's cache folder).
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(cache: Option<&Path>) -> Result<Self> {
        Ok(Self { cache: Cache::open(cache, "cuda")?, clang: OnceLock::new() })
    }

    /// The PTX of a kernel for a compute capability and launches of such threadgroups.
    ///
    /// # Errors
    /// No clang, or one without a backend for NVIDIA's GPUs; a kernel that calls what this device does not have.
    pub fn compile(&self, user: &UserMetal, library: &CompiledMetal, threadgroups: Threadgroups, capability: u32) -> Result<Ptx> {
        let library = CompiledLibrary::read(&user.name, library.bytes().clone())?;
        let (bitcode, kernel) = (library.bitcode(&user.kernel)?, library.kernel(&user.kernel)?);
        let target = Target { threadgroups, contracted: user.fast_math, architecture: if capability < 90 { 80 } else { 90 } };
        let symbol = air::nvidia_symbol(&user.kernel);
        let runtime = air::nvidia_runtime();
        let flags: Vec<String> = [target.runtime_flags(), target.kernel_flags()].concat();
        let constants = format!("{:?}", user.constants);
        let parts = flags.iter().map(String::as_bytes).chain([bitcode, user.kernel.as_bytes(), constants.as_bytes(), runtime.as_bytes()]);
        let place = self.cache.path(&CacheKey::of(parts.chain(air::LOWERING.iter().copied())), "ptx");
        if let Some(text) = self.cache.read_sealed(&place) {
            return Ok(Ptx { text, symbol, kernel });
        }
        let what = format!("{}, function `{}`", user.name, user.kernel);
        let clang = self.clang()?;
        let disassembly = clang.disassemble(bitcode, &what)?;
        let runtime = self.runtime(clang, &target, &runtime)?;
        let request = air::Request {
            library: &user.name,
            kernel: &kernel,
            constants: &user.constants,
            contracted: target.contracted,
            machine: Machine::Nvidia(Nvidia { threadgroups }),
            runtime: &runtime.functions,
        };
        let module = air::lower(&disassembly, &request)?;
        let mut command = clang.command();
        command.args(target.kernel_flags()).args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(&runtime.bitcode).args(["-o", "-", "-"]);
        let mut text = output(&mut command, module.as_bytes(), &what)?;
        text.push(0);
        // What was compiled runs even where it cannot be kept.
        let _ = self.cache.write_sealed(&place, text.clone());
        Ok(Ptx { text, symbol, kernel })
    }

    fn clang(&self) -> Result<&Clang> {
        let find = || {
            let needed = |clang: &Clang| match clang.output(&["--print-targets"]) {
                Some(targets) if targets.contains("nvptx64") => Ok(()),
                _ => Err(format!("`{}` compiles nothing for NVIDIA's GPUs (its targets have no nvptx64)", clang.name())),
            };
            Clang::find("the CUDA device compiles kernels of compiled Metal libraries", needed).map(|(clang, ())| clang)
        };
        self.clang.get_or_init(find).as_ref().map_err(Error::clone)
    }

    fn runtime(&self, clang: &Clang, target: &Target, text: &str) -> Result<Runtime> {
        let flags = target.runtime_flags();
        let key = CacheKey::of(flags.iter().map(String::as_bytes).chain([text.as_bytes(), clang.version().as_bytes()]));
        let what = "the functions that compiled Metal libraries call";
        let module = || {
            let module = output(clang.command().args(&flags).args(UNOPTIMISED).args(["-S", "-o", "-", "-"]), text.as_bytes(), what)?;
            Ok(String::from_utf8_lossy(&module).into_owned())
        };
        let assemble = |module: &str| {
            let mut command = clang.command();
            output(command.args(target.flags()).args(["-x", "ir", "-c"]).args(UNOPTIMISED).args(["-o", "-", "-"]), module.as_bytes(), what)
        };
        Runtime::find(&self.cache, &key, module, assemble)
    }
}

/// What the command writes.
fn output(command: &mut std::process::Command, input: &[u8], what: &str) -> Result<Vec<u8>> {
    let output = run(command, input)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().find_map(|line| line.split_once("error: ")).map_or("it ended without a message", |(_, reason)| reason);
    Err(Error::compile_failed(format!("{what}: clang does not compile it for NVIDIA's GPUs: {reason}")))
}
