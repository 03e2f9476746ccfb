use super::*;

#[test]
fn operations_count_the_keys_that_the_last_queries_attend() {
    let count = |queries: u64, keys: u64, left: i64, right: i64| {
        let score = ScoreParams { queries, keys, left, right, ..bytemuck::Zeroable::zeroed() };
        let offset = keys as i64 - queries as i64;
        let plain: usize = (0..queries as usize).map(|t| ScoreParams { offset, ..score }.attended(0, t, None, None).len()).sum();
        assert_eq!(score.attended_at_the_end(), plain as u64, "{queries} queries, {keys} keys, {left}, {right}");
        plain
    };
    assert_eq!([count(4, 4, -1, 0), count(4, 4, -1, -1), count(1, 100, -1, 0), count(1, 100, 9, 0)], [10, 16, 100, 10]);
    for (queries, keys) in [(0, 5), (5, 5), (5, 9), (9, 5), (7, 64)] {
        for (left, right) in [(-1, -1), (-1, 0), (3, 0), (3, 2), (0, -1), (100, 100)] {
            count(queries, keys, left, right);
        }
    }
}
