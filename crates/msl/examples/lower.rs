//! `cargo run -p elinvar-msl --example lower -- FILE [KERNEL[:INLINE,…]…]` prints the CUDA C++ for a Metal file, with entry points for the
//! named kernels (without names, for all); it includes files from the file's folder. INLINE are indices of buffers passed by value.

use std::{env, error::Error, fs};

use elinvar_msl::{
    Folders, Module,
    cuda::{CudaEntry, Threadgroups},
    preprocess,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let file = arguments.next().ok_or("usage: lower FILE [KERNEL[:INLINE,…]…]")?;
    let module = Module::read(&preprocess(&file, &fs::read_to_string(&file)?, &[], &Folders::default())?)?;
    let mut wanted = Vec::new();
    for argument in arguments {
        let (name, inline) = argument.rsplit_once(':').filter(|(name, _)| !name.ends_with(':')).unwrap_or((&argument, ""));
        let inline = inline.split(',').filter(|index| !index.is_empty()).map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        wanted.push((name.to_owned(), inline));
    }
    if wanted.is_empty() {
        wanted.extend(module.kernels().iter().map(|kernel| (kernel.name.clone(), Vec::new())));
    }
    let entries: Vec<_> = wanted.iter().map(|(kernel, inline)| CudaEntry { kernel, inline, prefetched: None, cluster: 1 }).collect();
    print!("{}", module.lower_for_cuda(&entries, Threadgroups::Uniform)?.text);
    Ok(())
}
