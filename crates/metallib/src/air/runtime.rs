//! The functions that compiled libraries call, compiled once for each device and set of flags.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use elinvar_core::{Cache, CacheKey, Result};

/// What functions of compiled libraries call on the simulator, in C++; its prelude is read before.
pub const SIMULATOR_RUNTIME: &str =
    concat!(include_str!("../runtime/simulator.h"), include_str!("../runtime/air.h"), include_str!("../runtime/tensors.h"));

/// The same for NVIDIA's GPUs, with CUDA's prelude.
pub fn nvidia_runtime() -> String {
    let mut text = concat!(include_str!("../runtime/nvidia.h"), include_str!("../runtime/air.h")).to_owned();
    let files = elinvar_msl::cuda::PRELUDE.iter().copied().chain([("math.metal", elinvar_math::METAL.text)]);
    let files: HashMap<&str, &str> = files.collect();
    while let Some(at) = text.find(INCLUDE) {
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        let name = text[at + INCLUDE.len()..end].trim_end_matches('"');
        let content = files.get(name).copied().unwrap_or_default();
        text.replace_range(at..end, content);
    }
    text
}

const INCLUDE: &str = "#include \"";

/// Compiled functions.
pub struct Runtime {
    /// Their bitcode, to be linked into every function.
    pub bitcode: PathBuf,
    /// Their names.
    pub functions: HashSet<String>,
}

impl Runtime {
    /// What the cache keeps under `key`; without it, what `module` gives as LLVM's text and `assemble` makes bitcode of.
    ///
    /// # Errors
    /// Those of the two, or the cache cannot be written.
    pub fn find(
        cache: &Cache,
        key: &CacheKey,
        module: impl FnOnce() -> Result<String>,
        assemble: impl FnOnce(&str) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let (bitcode, names) = (cache.path(key, "bc"), cache.path(key, "names"));
        if let Some(names) = cache.read_sealed(&names).filter(|_| cache.is_sound(&bitcode)) {
            return Ok(Self { bitcode, functions: String::from_utf8_lossy(&names).lines().map(str::to_owned).collect() });
        }
        let module = module()?;
        let defined = module.lines().filter(|line| line.starts_with("define ")).filter_map(|line| line.split_once('@')?.1.split_once('('));
        let functions: HashSet<String> = defined.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("elv_air_")).collect();
        cache.write_sealed(&bitcode, wrapped(&assemble(&module)?))?;
        cache.write_sealed(&names, functions.iter().map(|name| format!("{name}\n")).collect::<String>().into_bytes())?;
        Ok(Self { bitcode, functions })
    }
}

/// Bitcode in the wrapper that says where it ends: the cache's seal follows.
fn wrapped(bitcode: &[u8]) -> Vec<u8> {
    const MAGIC: u32 = 0x0b17_c0de;
    let header = [MAGIC, 0, 20, bitcode.len() as u32, 0].map(u32::to_le_bytes).concat();
    [header.as_slice(), bitcode].concat()
}
