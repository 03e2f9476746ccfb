//! How many threads a threadgroup has by default.

/// Threads of a threadgroup that leave room for several on a core.
const SOME: u32 = 256;

/// A threadgroup for a launch over `threads` threads: as many simdgroups of `width` threads as cover the first extent, in two dimensions one for each row; then
/// as many rows and layers as there are; up to 256 threads and `most`.
pub(crate) fn threadgroup(threads: [u32; 3], width: u32, most: u32) -> [u32; 3] {
    let [x, y, z] = threads.map(|n| n.max(1));
    let (width, room) = (width.max(1), most.min(SOME));
    // In two dimensions a simdgroup is a row: its threads are neighbours in memory, and so are the rows.
    let along = if y == 1 { x.div_ceil(width).min(room / width) } else { 1 };
    let first = (along.max(1) * width).min(most.max(1));
    let second = y.min(room / first).max(1);
    let third = z.min(room / (first * second)).max(1);
    [first, second, third]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threadgroup_has_whole_simdgroups_and_no_more_rows_than_there_are() {
        assert_eq!(threadgroup([1000, 1, 1], 32, 1024), [256, 1, 1]);
        assert_eq!(threadgroup([90, 1, 1], 32, 1024), [96, 1, 1]);
        assert_eq!(threadgroup([1000, 1, 1], 32, 64), [64, 1, 1]);
        assert_eq!(threadgroup([64, 48, 1], 32, 1024), [32, 8, 1]);
        assert_eq!(threadgroup([5, 7, 3], 32, 1024), [32, 7, 1]);
        assert_eq!(threadgroup([5, 2, 9], 32, 1024), [32, 2, 4]);
        for threads in [[0, 0, 0], [1, 1, 1], [33, 5, 2], [1 << 20, 3, 9], [u32::MAX, 1, 1], [1, u32::MAX, u32::MAX]] {
            for most in [1, 32, 96, 1024] {
                let group = threadgroup(threads, 32, most);
                assert!((1..=most).contains(&group.iter().product()), "{threads:?} {group:?}");
            }
        }
    }
}
