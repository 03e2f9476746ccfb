//! Placeholder of the lead until the real functions land: overwrite this file.
pub fn exp(x: f32) -> f32 {
    x.exp()
}
pub fn log(x: f32) -> f32 {
    x.ln()
}
