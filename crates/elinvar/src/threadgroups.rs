//! How many threads a threadgroup has where nobody says.

/// Threads of a threadgroup that leave room for several on a core.
const SOME: u32 = 256;

/// Threadgroups, and threads of each, for at least `threads` threads: as many simdgroups of `width` threads as divide the first extent, then as many
/// rows and layers as divide theirs, up to 256 threads and `most`. Only the first extent is rounded up.
pub(crate) fn cover(threads: [u32; 3], width: u32, most: u32) -> [[u32; 3]; 2] {
    let [x, y, z] = threads.map(|n| n.max(1));
    let (width, room) = (width.max(1), most.min(SOME));
    let simdgroups = x.div_ceil(width);
    // In two dimensions a simdgroup is a row: its threads are neighbours in memory, and so are the rows.
    let along = if y == 1 { largest_divisor(simdgroups, room / width) } else { 1 };
    let first = (along * width).min(most.max(1));
    let second = largest_divisor(y, room / first);
    let third = largest_divisor(z, room / (first * second));
    let grid = if threads.contains(&0) { [0; 3] } else { [x.div_ceil(first), y / second, z / third] };
    [grid, [first, second, third]]
}

/// Of the divisors of `n` the largest up to `limit`; at least one.
fn largest_divisor(n: u32, limit: u32) -> u32 {
    (1..=limit.min(n)).rev().find(|divisor| n.is_multiple_of(*divisor)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_covered_and_only_the_first_extent_is_rounded_up() {
        assert_eq!(cover([1024, 1, 1], 32, 1024), [[4, 1, 1], [256, 1, 1]]);
        assert_eq!(cover([1000, 1, 1], 32, 1024), [[4, 1, 1], [256, 1, 1]]);
        assert_eq!(cover([96, 1, 1], 32, 1024), [[1, 1, 1], [96, 1, 1]]);
        assert_eq!(cover([1024, 1, 1], 32, 64), [[16, 1, 1], [64, 1, 1]]);
        assert_eq!(cover([64, 48, 1], 32, 1024), [[2, 6, 1], [32, 8, 1]]);
        assert_eq!(cover([5, 7, 3], 32, 1024), [[1, 1, 3], [32, 7, 1]]);
        assert_eq!(cover([0, 7, 3], 32, 1024)[0], [0; 3]);
        for threads in [[1, 1, 1], [33, 5, 2], [1 << 20, 3, 9], [u32::MAX, 1, 1]] {
            for most in [32, 96, 1024] {
                let [grid, group] = cover(threads, 32, most);
                assert!(group.iter().product::<u32>() <= most, "{threads:?}");
                assert_eq!([1, 2].map(|axis| grid[axis] * group[axis]), [threads[1], threads[2]]);
                assert!(u64::from(grid[0]) * u64::from(group[0]) >= u64::from(threads[0]));
            }
        }
    }
}
