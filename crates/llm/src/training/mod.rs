//! Training: adapters and whole matrices taught a data set.
//!
//! A [`Trainer`] has what is trained, f32, in one array of a device, and the optimiser's states in arrays beside it. A step of it is recorded once for each shape
//! of a batch, and replayed. What follows from what is written down: the same settings and data give the same bits, also where a training was interrupted and
//! goes on from its checkpoint.

mod batch;
mod data;
mod folder;
mod loss;
mod memory;
mod muon;
mod optimizer;
mod parameters;
mod run;
mod schedule;
#[cfg(test)]
mod tests;
mod trainer;

pub use batch::Batch;
pub use data::{DataOptions, Dataset, Sample};
pub use folder::TrainingFolder;
pub use loss::{Loss, Rewards};
pub use memory::TrainingMemory;
pub use optimizer::Optimizer;
pub use run::{TrainingEvent, TrainingOptions, evaluate, train};
pub use schedule::{Decay, Schedule};
pub use trainer::{Trained, Trainer, TrainerOptions};
