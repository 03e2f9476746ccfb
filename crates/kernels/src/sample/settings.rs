/// How a token is drawn: see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Divides the logits; zero takes the best token.
    pub temperature: f32,
    /// Keeps the best tokens until their probabilities sum to this; one keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely, relative to the most likely; zero keeps all.
    pub min_p: f32,
    /// Keeps this many of the best tokens; zero keeps all.
    pub top_k: u32,
    /// Chooses the random numbers.
    pub seed: u64,
}

impl Settings {
    /// The operator's input `factors`.
    pub fn factors(&self) -> [f32; 3] {
        [self.temperature, self.top_p, self.min_p]
    }

    /// The operator's input `numbers`.
    pub fn numbers(&self) -> [u32; 3] {
        [self.top_k, self.seed as u32, (self.seed >> 32) as u32]
    }
}
