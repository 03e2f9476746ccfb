use crate::error::{Error, Result};

/// Three extents: x (fastest), y, z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent(pub [u32; 3]);

impl Extent {
    /// `x` by one by one.
    pub const fn linear(x: u32) -> Self {
        Self([x, 1, 1])
    }

    /// The product, in a type that cannot overflow.
    pub fn count(self) -> u128 {
        self.0.iter().map(|&n| u128::from(n)).product()
    }
}

/// How many threads a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// So many whole threadgroups along each axis.
    Threadgroups([u32; 3]),
    /// So many threads along each axis; the last threadgroup along an axis is smaller where they do not divide.
    Threads([u32; 3]),
}

impl Grid {
    /// Whether no thread runs.
    pub fn is_empty(self) -> bool {
        let (Grid::Threadgroups(along) | Grid::Threads(along)) = self;
        along.contains(&0)
    }

    /// Threadgroups along each axis, smaller ones included.
    pub fn threadgroups(self, threadgroup: Extent) -> [u32; 3] {
        match self {
            Grid::Threadgroups(groups) => groups,
            Grid::Threads(threads) => [0, 1, 2].map(|axis| threads[axis].div_ceil(threadgroup.0[axis].max(1))),
        }
    }

    /// Threads along each axis, as kernels count them and number their positions.
    ///
    /// # Errors
    /// 2^32 or more along an axis.
    pub fn threads(self, threadgroup: Extent) -> Result<[u32; 3]> {
        match self {
            Grid::Threads(threads) => Ok(threads),
            Grid::Threadgroups(groups) => {
                let mut threads = threadgroup.0;
                for (threads, groups) in threads.iter_mut().zip(groups) {
                    let all = u64::from(*threads) * u64::from(groups);
                    *threads = u32::try_from(all).map_err(|_| {
                        Error::invalid_launch(format!(
                            "{all} threads along an axis of the grid: kernels count them and their positions in 32 bits; launch fewer"
                        ))
                    })?;
                }
                Ok(threads)
            }
        }
    }

    /// Threads of the threadgroup at `position`.
    pub fn threadgroup_at(self, position: [u32; 3], threadgroup: Extent) -> [u32; 3] {
        match self {
            Grid::Threadgroups(_) => threadgroup.0,
            Grid::Threads(threads) => {
                [0, 1, 2].map(|axis| threadgroup.0[axis].min(threads[axis].saturating_sub(position[axis] * threadgroup.0[axis])))
            }
        }
    }

    /// Whether all threadgroups have as many threads as `threadgroup`.
    pub fn is_uniform(self, threadgroup: Extent) -> bool {
        match self {
            Grid::Threadgroups(_) => true,
            Grid::Threads(threads) => threads.iter().zip(threadgroup.0).all(|(threads, group)| threads.is_multiple_of(group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threadgroups_at_the_end_have_the_threads_that_are_left() {
        let (grid, group) = (Grid::Threads([9, 6, 1]), Extent([4, 3, 2]));
        assert_eq!(grid.threadgroups(group), [3, 2, 1]);
        assert_eq!((grid.threads(group).unwrap(), grid.is_uniform(group)), ([9, 6, 1], false));
        assert_eq!([[0, 0, 0], [2, 1, 0]].map(|at| grid.threadgroup_at(at, group)), [[4, 3, 1], [1, 3, 1]]);
        assert!(grid.is_uniform(Extent([3, 3, 1])) && Grid::Threadgroups([2, 1, 1]).is_uniform(group));
        assert!(Grid::Threads([4, 0, 1]).is_empty() && !grid.is_empty());
        let most = Grid::Threads([u32::MAX, 1, 1]);
        assert_eq!((most.threadgroups(Extent::linear(256))[0], most.threadgroup_at([(1 << 24) - 1, 0, 0], Extent::linear(256))[0]), (1 << 24, 255));
    }

    #[test]
    fn whole_threadgroups_are_counted_in_32_bits() {
        assert_eq!(Grid::Threadgroups([3, 2, 1]).threads(Extent([32, 4, 1])).unwrap(), [96, 8, 1]);
        assert!(Grid::Threadgroups([1 << 24, 1, 1]).threads(Extent::linear(256)).unwrap_err().to_string().contains("4294967296 threads"));
    }
}
