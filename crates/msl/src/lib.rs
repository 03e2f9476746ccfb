//! Reads Metal Shading Language and lowers it for other devices.

pub mod simulator;
