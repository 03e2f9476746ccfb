/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum over the number of elements.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The product.
    Prod,
    /// The sum of the squares.
    SumSquare,
    /// The square root of the sum of the squares.
    L2,
    /// The logarithm of the sum of the exponentials.
    LogSumExp,
}

impl Reduction {
    /// The operator's name.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "reduce_sum",
            Reduction::Mean => "reduce_mean",
            Reduction::Max => "reduce_max",
            Reduction::Min => "reduce_min",
            Reduction::Prod => "reduce_prod",
            Reduction::SumSquare => "reduce_sum_square",
            Reduction::L2 => "reduce_l2",
            Reduction::LogSumExp => "reduce_log_sum_exp",
        }
    }
}
