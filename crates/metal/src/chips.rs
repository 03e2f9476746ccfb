//! Apple's chips by the names of their GPUs: cores, memory bandwidth, Metal family and arithmetic.
//!
//! * Cores and bandwidth of the M1 to M4 are those of the table in [llama.cpp's discussion 4167], with Apple's 819 GB/s for the M3 Ultra; those of the M5, M5 Pro and
//!   M5 Max, and the base chips of 8 and 9 cores, those of press reports of Apple's announcements. 1 GB is 10⁹ bytes. Apple gives no bandwidth for the M1 and for
//!   the A series: there it is the memory's rate times its width, as [applegpuinfo] computes it up to the A17 Pro, and as the press has it for the A19 (8533 MT/s
//!   on 64 bits) and the A19 Pro (9600 MT/s); the A18's is taken to be the A19's.
//! * Families up to Apple 9 are those of Apple's *Metal feature set tables*. That M5 and A19 are Apple 10, and that an M3 has 8 cores, we have not read on a page of Apple's.
//! * A core has 128 lanes, each with a fused multiply-add a clock, in f32 and f16 alike; the A14's are half as many in f32. `simdgroup_matrix` runs on the
//!   same lanes. Clocks are the highest ones: M1, M2 and A14 to A16 of [metal-benchmarks], M3 and A17 Pro of [applegpuinfo], M4 of what `powermetrics` lists on
//!   such Macs in public reports. Those of A18, A19 and M5 we have read nowhere: [`Chip::megahertz`] is empty. (The matrix units of M5 and A19, which Metal 4's
//!   tensors reach, are not counted: no kernel here uses them.)
//!
//! A name that is not listed is taken for the newest base chip of its family ([`Gpu::identify`]).
//!
//! [llama.cpp's discussion 4167]: https://github.com/ggml-org/llama.cpp/discussions/4167
//! [metal-benchmarks]: https://github.com/philipturner/metal-benchmarks
//! [applegpuinfo]: https://github.com/philipturner/applegpuinfo

use std::{fmt, str::FromStr};

use elinvar_core::{DType, DeviceKind, DeviceProperties, Error, Result};

/// A chip as Apple sells it.
#[derive(Debug, PartialEq)]
pub struct Chip {
    /// What follows `Apple ` in `MTLDevice.name`, without ` GPU` at its end.
    pub name: &'static str,
    /// Its Metal family: 7 is Apple 7.
    pub family: u32,
    /// The GPU's highest clock, where it is known.
    pub megahertz: Option<u32>,
    /// Cores and memory bandwidth in GB/s of each configuration, the smallest first.
    pub configurations: &'static [(usize, f64)],
}

const fn chip(name: &'static str, family: u32, megahertz: u32, configurations: &'static [(usize, f64)]) -> Chip {
    let megahertz = if megahertz == 0 { None } else { Some(megahertz) };
    Chip { name, family, megahertz, configurations }
}

/// Every chip known, each series from the oldest to the newest. The base chip of a family is the last M-series one with a plain name.
pub const CHIPS: &[Chip] = &[
    chip("A14", 7, 1278, &[(4, 34.1)]),
    chip("A15", 8, 1338, &[(4, 34.1), (5, 34.1)]),
    chip("A16", 8, 1398, &[(5, 51.2)]),
    chip("A17 Pro", 9, 1380, &[(6, 51.2)]),
    chip("A18", 9, 0, &[(4, 68.3), (5, 68.3)]),
    chip("A18 Pro", 9, 0, &[(6, 68.3)]),
    chip("A19", 10, 0, &[(5, 68.3)]),
    chip("A19 Pro", 10, 0, &[(5, 76.8), (6, 76.8)]),
    chip("M1", 7, 1278, &[(7, 68.25), (8, 68.25)]),
    chip("M1 Pro", 7, 1296, &[(14, 200.0), (16, 200.0)]),
    chip("M1 Max", 7, 1296, &[(24, 400.0), (32, 400.0)]),
    chip("M1 Ultra", 7, 1296, &[(48, 800.0), (64, 800.0)]),
    chip("M2", 8, 1398, &[(8, 100.0), (9, 100.0), (10, 100.0)]),
    chip("M2 Pro", 8, 1398, &[(16, 200.0), (19, 200.0)]),
    chip("M2 Max", 8, 1398, &[(30, 400.0), (38, 400.0)]),
    chip("M2 Ultra", 8, 1398, &[(60, 800.0), (76, 800.0)]),
    chip("M3", 9, 1380, &[(8, 100.0), (9, 100.0), (10, 100.0)]),
    chip("M3 Pro", 9, 1380, &[(14, 150.0), (18, 150.0)]),
    chip("M3 Max", 9, 1380, &[(30, 300.0), (40, 400.0)]),
    chip("M3 Ultra", 9, 1380, &[(60, 819.0), (80, 819.0)]),
    chip("M4", 9, 1578, &[(8, 120.0), (9, 120.0), (10, 120.0)]),
    chip("M4 Pro", 9, 1578, &[(16, 273.0), (20, 273.0)]),
    chip("M4 Max", 9, 1578, &[(32, 410.0), (40, 546.0)]),
    chip("M5", 10, 0, &[(8, 153.0), (10, 153.0)]),
    chip("M5 Pro", 10, 0, &[(16, 307.0), (20, 307.0)]),
    chip("M5 Max", 10, 0, &[(32, 460.0), (40, 614.0)]),
];

/// Operations a clock of a core in f32: 128 fused multiply-adds.
const OPERATIONS: f64 = 256.0;

/// The clock taken for a chip whose own is not known: the M4's, the highest that is.
const ASSUMED_MEGAHERTZ: u32 = 1578;

/// What follows `Apple ` in the name of a GPU, if it is one of Apple's.
fn short(name: &str) -> Option<&str> {
    let name = name.strip_prefix("Apple ")?;
    Some(name.strip_suffix(" GPU").unwrap_or(name))
}

impl Chip {
    /// The chip of this name, as `MTLDevice.name` gives it (`Apple M3 Max`, `Apple A17 Pro GPU`).
    pub fn named(name: &str) -> Option<&'static Chip> {
        short(name).and_then(|short| CHIPS.iter().find(|chip| chip.name == short))
    }

    /// The newest base chip of a family; of the newest family before it where it has none, of the oldest where none is known.
    fn of_family(family: Option<u32>) -> &'static Chip {
        let base = |chip: &&Chip| chip.name.starts_with('M') && !chip.name.contains(' ');
        let known = || CHIPS.iter().filter(base);
        let of = known().filter(|chip| family.is_some_and(|family| chip.family <= family)).max_by_key(|chip| chip.family);
        // Of equals, `max_by_key` gives the last, the newest.
        of.or_else(|| known().next()).unwrap_or(&CHIPS[0])
    }
}

/// `Apple M3 Max, 40 cores`.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Apple {}, {} cores", self.chip.name, self.cores)
    }
}

impl FromStr for Gpu {
    type Err = Error;

    /// A name as it is shown, or without the cores: those of the smallest configuration then.
    fn from_str(text: &str) -> Result<Self> {
        let (name, cores) = text.split_once(',').map_or((text, None), |(name, cores)| (name, Some(cores)));
        let chip = Chip::named(name.trim()).ok_or_else(|| {
            let names: Vec<_> = CHIPS.iter().map(|chip| chip.name).collect();
            Error::invalid_argument(format!("'{}' is no chip known here: Apple {}", name.trim(), names.join(", ")))
        })?;
        let Some(cores) = cores else { return Ok(Self::identify(name.trim(), None, None).0) };
        let number = cores.trim().trim_end_matches("cores").trim_end().parse().ok();
        Self::of(chip).find(|gpu| Some(gpu.cores) == number).ok_or_else(|| {
            let known: Vec<_> = Self::of(chip).map(|gpu| gpu.to_string()).collect();
            Error::invalid_argument(format!("no '{}' is sold: {}", text.trim(), known.join("; ")))
        })
    }
}

/// A GPU of one of the chips, as launch plans and predictions take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Its chip, or the one that it is taken for.
    pub chip: &'static Chip,
    /// Cores.
    pub cores: usize,
    /// Memory bandwidth in GB/s.
    pub bandwidth: f64,
}

impl Gpu {
    /// The GPU of a name, a family and as many cores as the system reports, and what was assumed for want of knowing better.
    ///
    /// A chip that is not listed is taken for the newest base chip of its family; an unknown family for the newest before it. Without a number of
    /// cores it has the smallest configuration's. A number that no configuration has stands, with the bandwidth of the largest configuration that is not larger.
    pub fn identify(name: &str, family: Option<u32>, cores: Option<usize>) -> (Self, Option<String>) {
        let named = Chip::named(name);
        let chip = named.unwrap_or_else(|| Chip::of_family(family));
        let (smallest, least) = chip.configurations[0];
        let fits = |cores: usize| chip.configurations.iter().rfind(|(own, _)| *own <= cores).map_or(least, |(_, bandwidth)| *bandwidth);
        let cores_or_least = cores.unwrap_or(smallest);
        let gpu = Self { chip, cores: cores_or_least, bandwidth: fits(cores_or_least) };
        let several = chip.configurations.len() > 1;
        let assumed = match (named, cores) {
            (None, Some(_)) => Some(format!("not a chip that this version knows: taken for an Apple {}", chip.name)),
            (None, None) => Some(format!("not a chip that this version knows: taken for an Apple {} of {smallest} cores", chip.name)),
            (Some(_), None) if several => Some(format!("the cores are not reported: those of the smallest Apple {}", chip.name)),
            (Some(_), _) => None,
        };
        (gpu, assumed)
    }

    /// What launch plans know of it.
    pub fn properties(&self) -> DeviceProperties {
        DeviceProperties {
            kind: DeviceKind::Metal,
            name: format!("Apple {}", self.chip.name),
            compute_units: self.cores,
            simd_width: 32,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: 32 << 10,
            max_buffer_bytes: 1 << 40,
            unified_memory: true,
            dtypes: DType::ALL,
            features: None,
        }
    }

    /// Every configuration of a chip.
    pub fn of(chip: &'static Chip) -> impl Iterator<Item = Self> {
        chip.configurations.iter().map(move |&(cores, bandwidth)| Self { chip, cores, bandwidth })
    }

    /// Operations per second in f32 that all lanes make together, a fused multiply-add being two; of an assumed clock where the chip's is not known.
    pub fn arithmetic(&self) -> f64 {
        let operations = if self.chip.name == "A14" { OPERATIONS / 2.0 } else { OPERATIONS };
        self.cores as f64 * operations * 1e6 * f64::from(self.chip.megahertz.unwrap_or(ASSUMED_MEGAHERTZ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chip_is_found_by_the_name_that_metal_reports() {
        for chip in CHIPS {
            assert_eq!(Chip::named(&format!("Apple {}", chip.name)), Some(chip));
            assert_eq!(Chip::named(&format!("Apple {} GPU", chip.name)), Some(chip));
            for gpu in Gpu::of(chip) {
                assert_eq!(Gpu::identify(&format!("Apple {}", chip.name), None, Some(gpu.cores)), (gpu, None));
            }
        }
        assert_eq!(["Apple M17", "M1", "Apple M1 Mega", "AMD Radeon Pro 5500M", ""].map(Chip::named), [None; 5]);
    }

    #[test]
    fn a_name_is_read_as_it_is_shown() {
        for gpu in CHIPS.iter().flat_map(Gpu::of) {
            assert_eq!(gpu.to_string().parse::<Gpu>().unwrap(), gpu);
        }
        assert_eq!("Apple M3 Max".parse::<Gpu>().unwrap().cores, 30);
        let rejected = ["Apple M3 Max, 31 cores", "Apple M3 Max, many", "M3"].map(|text| text.parse::<Gpu>().unwrap_err().to_string());
        assert!(
            rejected[0].contains("30 cores; Apple M3 Max, 40 cores") && rejected[1].contains("40 cores") && rejected[2].contains("M5 Max"),
            "{rejected:?}"
        );
    }

    #[test]
    fn configurations_grow_and_more_cores_compute_more() {
        for chip in CHIPS {
            assert!((7..=10).contains(&chip.family), "{chip:?}");
            assert!(chip.configurations.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{chip:?}");
            let gpus: Vec<_> = Gpu::of(chip).collect();
            assert!(gpus.windows(2).all(|pair| pair[0].arithmetic() < pair[1].arithmetic()), "{chip:?}");
        }
        for series in ["M1", "M2", "M3", "M4", "M5"] {
            let largest = |chip: &Chip| chip.configurations[chip.configurations.len() - 1];
            let all: Vec<_> = CHIPS.iter().filter(|chip| chip.name.starts_with(series)).map(largest).collect();
            assert!(all.len() >= 3 && all.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{all:?}");
        }
    }

    #[test]
    fn arithmetic_is_lanes_times_clock() {
        let tera = |name, cores| (Gpu::identify(name, None, Some(cores)).0.arithmetic() / 1e9).round();
        // The figures of metal-benchmarks, in GFLOP/s.
        assert_eq!(
            [tera("Apple M1", 8), tera("Apple M1 Max", 32), tera("Apple M2 Max", 38), tera("Apple A14 GPU", 4)],
            [2617.0, 10_617.0, 13_600.0, 654.0]
        );
    }

    #[test]
    fn what_is_not_reported_is_assumed_and_told() {
        let identify = |name, family, cores| {
            let (gpu, assumed) = Gpu::identify(name, family, cores);
            (gpu.chip.name, gpu.cores, gpu.bandwidth, assumed.unwrap_or_default())
        };
        let (name, cores, bandwidth, told) = identify("Apple M3 Max", Some(9), None);
        assert!((name, cores, bandwidth) == ("M3 Max", 30, 300.0) && told.contains("smallest Apple M3 Max"), "{told}");
        assert_eq!(identify("Apple A14 GPU", Some(7), None), ("A14", 4, 34.1, String::new()));
        // More, fewer and other cores than any configuration has.
        let of_cores = [50, 33, 7].map(|cores| Gpu::identify("Apple M4 Max", None, Some(cores)).0);
        assert_eq!(of_cores.map(|gpu| (gpu.cores, gpu.bandwidth)), [(50, 546.0), (33, 410.0), (7, 410.0)]);
        for (family, base) in [(7, "M1"), (8, "M2"), (9, "M4"), (10, "M5"), (11, "M5"), (99, "M5")] {
            let (name, cores, _, told) = identify("Apple M17 Max", Some(family), None);
            assert!(name == base && cores == Chip::of_family(Some(family)).configurations[0].0 && told.contains(base), "{told}");
            assert_eq!(identify("Apple M17 Max", Some(family), Some(64)).1, 64);
        }
        assert_eq!(["", "Apple Paravirtual device"].map(|name| identify(name, None, None).0), ["M1"; 2]);
        assert_eq!(identify("Some GPU", Some(5), None).0, "M1");
    }
}
