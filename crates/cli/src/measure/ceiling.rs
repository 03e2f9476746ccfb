//! What a device's memory and arithmetic can do: the ceilings that figures are compared with.

use std::sync::Arc;
use std::{thread::available_parallelism, time::Instant};

use elinvar::{
    DType, DeviceKind, DeviceProperties, Error, Executor, Operator, Precision, Result,
    chips::{Chip, Gpu},
    kernels::{
        binary::{Binary, BinaryOp},
        math::ceiling::{multiply_add, multiply_add_pairs, operations, operations_of_pairs, read, write},
    },
};
use serde_json::{Value, json};

use super::{device::is_gpu, median, spread};

/// Measured ceilings of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ceilings {
    /// Bytes per second: on a CPU, reading an array far larger than any cache; on an Apple GPU, what Apple publishes; on others and on chips not known,
    /// adding two arrays, reads and writes counted.
    pub(crate) read: f64,
    /// The same for work that writes as well: on a CPU, the most of reading, copying and adding two arrays.
    pub(crate) memory: f64,
    /// Operations per second: on a CPU, f32 fused multiply-adds (two each) on registers; on a GPU, a bf16 matrix product on its matrix units.
    pub(crate) arithmetic: f64,
    /// The same for fast products of bf16: on a CPU that has a faster instruction for them, dot products of pairs.
    pub(crate) bf16: f64,
    /// What was measured, for a reader.
    how: [&'static str; 2],
}

impl Ceilings {
    /// Measures an executor's device.
    pub(crate) fn of(executor: &Executor) -> Result<Self> {
        let properties = executor.properties();
        let (read, how) = memory_bandwidth(executor)?;
        if is_gpu(properties) {
            let arithmetic = gpu_arithmetic(executor)?;
            return Ok(Self { read, memory: read, arithmetic, bf16: arithmetic, how: [how, "bf16 matrix product"] });
        }
        let threads = host_threads(properties);
        let memory = read.max(write_bandwidth(threads)?);
        let arithmetic = threads as f64 * operations()
            / fastest(5, || {
                multiply_add(threads);
                Ok(())
            })?;
        let mut has_pairs = false;
        let seconds = fastest(5, || {
            has_pairs = multiply_add_pairs(threads);
            Ok(())
        })?;
        let pairs = if has_pairs { threads as f64 * operations_of_pairs() / seconds } else { 0.0 };
        Ok(Self { read, memory, arithmetic, bf16: arithmetic.max(pairs), how: [how, "f32 fused multiply-add"] })
    }

    /// For a reader.
    pub(crate) fn describe(self) -> String {
        let [memory, arithmetic] = self.how;
        let [read, both, rate, bf16] = [self.read, self.memory, self.arithmetic, self.bf16].map(|x| x / 1e9);
        let pairs = if bf16 > rate { format!(", dot products of bf16 pairs {bf16:.0} GFLOP/s") } else { String::new() };
        format!("{memory} {read:.1} GB/s, read and written {both:.1} GB/s, {arithmetic} {rate:.0} GFLOP/s{pairs}")
    }

    /// For a program.
    pub(crate) fn json(self) -> Value {
        json!({
            "read_bytes_per_second": self.read, "memory_bytes_per_second": self.memory, "operations_per_second": self.arithmetic,
            "bf16_operations_per_second": self.bf16, "measured": self.how
        })
    }
}

/// Threads that probe this machine's processor: the CPU device's, or all where the device is simulated.
fn host_threads(properties: &DeviceProperties) -> usize {
    if properties.kind == DeviceKind::Cpu { properties.compute_units } else { available_parallelism().map_or(1, usize::from) }
}

/// As [`Ceilings::read`], and what it is.
pub(crate) fn memory_bandwidth(executor: &Executor) -> Result<(f64, &'static str)> {
    const BYTES: usize = 1 << 30;
    let properties = executor.properties();
    if !is_gpu(properties) {
        let words = Words::new(BYTES)?;
        let seconds = usual(|| {
            read(words.get(), host_threads(properties));
            Ok(())
        });
        return Ok((BYTES as f64 / seconds?, "read"));
    }
    if let Some(published) = published_bandwidth(properties) {
        return Ok((published, "published"));
    }
    // Faster than the driver's own copies, which a GPU's copy engines make.
    let (a, b) = (executor.zeros(DType::F32, &[BYTES / 4])?, executor.zeros(DType::F32, &[BYTES / 4])?);
    let add: Arc<dyn Operator> = Arc::new(Binary { op: BinaryOp::Add });
    Ok((3.0 * BYTES as f64 / replayed(executor, |recorded| recorded.apply(add.clone(), &[Some(&a), Some(&b)]).map(drop))?, "add"))
}

/// Bytes read and written per second by the faster of copying and adding two arrays.
fn write_bandwidth(threads: usize) -> Result<f64> {
    const BYTES: usize = 1 << 28;
    let (a, b, mut to) = (Words::new(BYTES)?, Words::new(BYTES)?, Words::new(BYTES)?);
    let copy = usual(|| {
        write([a.get()], to.get_mut(), threads);
        Ok(())
    })?;
    let add = usual(|| {
        write([a.get(), b.get()], to.get_mut(), threads);
        Ok(())
    })?;
    Ok(BYTES as f64 * (2.0 / copy).max(3.0 / add))
}

fn gpu_arithmetic(executor: &Executor) -> Result<f64> {
    const SIDE: usize = 4096;
    let square = executor.tensor(&[SIDE, SIDE], &spread(SIDE * SIDE))?.cast(DType::BF16)?;
    let fast = executor.with_precision(Precision::Fast);
    Ok(2.0 * (SIDE as f64).powi(3) / replayed(&fast, |recorded| square.on(recorded)?.linear(&square, None).map(drop))?)
}

/// Seconds of work that is replayed several times in a row.
fn replayed(executor: &Executor, work: impl Fn(&Executor) -> Result<()>) -> Result<f64> {
    const REPEATS: usize = 8;
    let (recording, ()) = executor.record(|recorded| (0..REPEATS).try_for_each(|_| work(recorded)))?;
    Ok(fastest(9, || executor.replay(&recording)?.wait())? / REPEATS as f64)
}

/// Memory bandwidth in bytes per second as Apple publishes it for a GPU of this name and so many cores; nothing for GPUs not known.
pub(crate) fn published_bandwidth(properties: &DeviceProperties) -> Option<f64> {
    let (name, cores) = (&properties.name, Some(properties.compute_units));
    Chip::named(name).map(|_| 1e9 * Gpu::identify(name, None, cores).0.bandwidth)
}

/// Seconds of the fastest of several passes, after one to warm up.
fn fastest(count: usize, pass: impl FnMut() -> Result<()>) -> Result<f64> {
    Ok(passes(count, pass)?.into_iter().fold(f64::INFINITY, f64::min))
}

/// The median of several passes, as operators are timed: a shared machine's memory is much faster for moments.
fn usual(pass: impl FnMut() -> Result<()>) -> Result<f64> {
    passes(9, pass).map(median)
}

/// Seconds of each pass, after one to warm up.
fn passes(count: usize, mut pass: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    pass()?;
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        pass()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

/// Mapped memory in huge pages where the system has them, as the device allocates it.
struct Words(memmap2::MmapMut);

impl Words {
    fn new(bytes: usize) -> Result<Self> {
        let mut map = memmap2::MmapMut::map_anon(bytes).map_err(|e| Error::out_of_memory(format!("{bytes} bytes to measure with: {e}")))?;
        #[cfg(target_os = "linux")]
        // Advice only: the measurement is what the memory gives.
        let _ = map.advise(memmap2::Advice::HugePage);
        map.fill(1);
        Ok(Self(map))
    }

    fn get<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.0)
    }

    fn get_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}
