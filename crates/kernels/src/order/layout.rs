//! How a row is shared out: threads, simdgroups, accumulators.

use elinvar_core::{DeviceProperties, Extent};

/// Threads that share a row of `n` elements.
pub const fn row_threads(n: usize) -> usize {
    let wanted = n.div_ceil(32).next_power_of_two();
    if wanted < 32 {
        32
    } else if wanted > 1024 {
        1024
    } else {
        wanted
    }
}

/// Elements of a row that one simdgroup takes.
pub(crate) const ONE_SIMDGROUP: usize = 1024;

/// Lanes of a simdgroup that share a row of `n` elements.
pub(crate) fn row_lanes(n: usize) -> usize {
    n.div_ceil(8).next_power_of_two().min(32)
}

/// The threads that share a row of `n` elements, if these are whole simdgroups; zero for fewer.
pub(crate) fn sharing_threads(n: usize) -> usize {
    if row_lanes(n) == 32 { row_threads(n) } else { 0 }
}

/// The grid and the threadgroup in which `rows` rows of `length` elements are reduced on a device.
///
/// A row of more than 1024 elements has a threadgroup. Of shorter rows only the lanes with elements are launched: several rows may share a
/// simdgroup, and up to eight simdgroups a threadgroup where that leaves enough threadgroups for every unit and the device has the threads.
pub(crate) fn row_launch(rows: usize, length: usize, device: &DeviceProperties) -> [Extent; 2] {
    let extent = |n: usize| Extent::linear(n.min(u32::MAX as usize) as u32);
    if length > ONE_SIMDGROUP {
        return [extent(rows), extent(row_threads(length))];
    }
    let simdgroups = (rows * row_lanes(length)).div_ceil(32);
    let shared = (simdgroups / (8 * device.compute_units.max(1))).min(device.max_threads_per_threadgroup / 32).clamp(1, 8);
    [extent(simdgroups.div_ceil(shared)), extent(32 * shared)]
}

/// Visits in which the threads of a row of `n` neighbours take all of it, if they can keep it in registers: whole groups of eight elements, and not more
/// than four for each thread. Else zero.
pub(crate) const fn row_visits(n: usize) -> u32 {
    let visits = n.div_ceil(8 * row_threads(n));
    if n.is_multiple_of(8) && visits <= 4 { visits as u32 } else { 0 }
}

/// A bound of the threads of a threadgroup that reduces rows of `n` elements, for the compiler to know how many registers there are.
pub(crate) const fn row_threads_bound(n: usize) -> u32 {
    let threads = row_threads(n);
    if threads < 256 { 256 } else { threads as u32 }
}

/// Accumulators of a simdgroup: 32 lanes of 8 slots.
pub const GROUP: usize = 256;

/// Simdgroups that share a row of `n` elements.
pub const fn row_groups(n: usize) -> usize {
    row_threads(n) / 32
}

/// A simdgroup's accumulators, on cache lines of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Accumulators(pub [f32; GROUP]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_whole_words_are_kept_in_up_to_four_visits() {
        assert_eq!([8, 256, 1000, 5120, 8192, 32768].map(row_visits), [1, 1, 4, 3, 4, 4]);
        assert_eq!([0, 7, 1001, 32776].map(row_visits), [0; 4]);
        assert_eq!([8, 8192, 16384, 100_000].map(row_threads_bound), [256, 256, 512, 1024]);
    }

    #[test]
    fn threads_depend_on_the_length_alone() {
        assert_eq!([0, 1, 1024, 1025, 4096, 8192, 1 << 20].map(row_threads), [32, 32, 32, 64, 128, 256, 1024]);
    }

    #[test]
    fn short_rows_share_simdgroups_and_threadgroups() {
        let properties = elinvar_core::Backend::properties(&elinvar_core::NullBackend::new()).clone();
        let device = |max_threads_per_threadgroup| DeviceProperties { compute_units: 10, max_threads_per_threadgroup, ..properties.clone() };
        let launch = |rows, length| row_launch(rows, length, &device(1024)).map(|Extent([x, ..])| x);
        assert_eq!(launch(7, 5000), [7, 256]);
        assert_eq!(launch(7, 1000), [7, 32]);
        assert_eq!(launch(7, 20), [1, 32]);
        assert_eq!(launch(1 << 20, 1000), [1 << 17, 256]);
        assert_eq!(launch(1 << 20, 1), [1 << 12, 256]);
        assert_eq!(launch(3, 0), [1, 32]);
        // From an M1 to an M3 Ultra, each core has eight simdgroups before any share a threadgroup.
        for compute_units in [7, 40, 80] {
            let device = DeviceProperties { compute_units, ..device(1024) };
            for rows in [1, 60, 500, 4096, 1 << 20] {
                let [Extent([groups, ..]), Extent([threads, ..])] = row_launch(rows, 1000, &device);
                assert!(
                    groups as usize >= rows.min(8 * compute_units) && groups as usize * threads as usize / 32 >= rows,
                    "{rows} rows on {compute_units} cores"
                );
            }
        }
        let few = |most| row_launch(1 << 20, 1000, &device(most)).map(|Extent([x, ..])| x);
        assert_eq!([few(128), few(31)], [[1 << 18, 128], [1 << 20, 32]]);
    }
}
