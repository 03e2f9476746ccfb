//! What a check found.

use serde::{Deserialize, Serialize};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The kernel that was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The kernels that were compiled, where none was to be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Whether it was not run, because Apple's compiler would reject it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rejected: bool,
    /// Whether everything that was asked for was done.
    pub finished: bool,
    /// Schedules that were asked for.
    pub seeds: u64,
    /// GPU threads run, over all schedules.
    pub threads: u64,
    /// What was found, each once, with the first seed that showed it.
    pub findings: Vec<Finding>,
    /// What Apple's compiler would reject.
    pub lints: Vec<Lint>,
    /// The elements' type of each buffer that was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dtypes: Vec<String>,
    /// Why the check did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// One thing found by a run. Equal ones of many threads are one, with a count; thread and threadgroup are of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The name of its kind.
    pub kind: String,
    /// The kernel's name.
    pub kernel: String,
    /// The file of the source, if that is known.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The thread in its threadgroup.
    pub thread: Option<[u32; 3]>,
    /// The threadgroup in the grid.
    pub threadgroup: Option<[u32; 3]>,
    /// The buffer or threadgroup variable.
    pub buffer: Option<String>,
    /// Byte offset in it.
    pub offset: Option<i64>,
    /// What happened, in words.
    pub message: String,
    /// The other access of a race.
    pub other: Option<OtherAccess>,
    /// How often it was met.
    pub count: u64,
    /// The seed of the first schedule that showed it.
    pub seed: u64,
    /// All of it in one line.
    pub text: String,
}

/// The earlier of two accesses that race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherAccess {
    /// The file of the source, if that is known.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The kernel's name.
    pub kernel: String,
    /// The thread in its threadgroup.
    pub thread: [u32; 3],
    /// The threadgroup in the grid.
    pub threadgroup: [u32; 3],
}

/// One thing that Apple's compiler would reject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lint {
    /// The rule's short name.
    pub rule: String,
    /// The file of the source.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
    /// What is wrong and what to do.
    pub message: String,
    /// All of it in one line.
    pub text: String,
}

impl From<&elinvar_msl::Lint> for Lint {
    fn from(lint: &elinvar_msl::Lint) -> Self {
        let (file, line) = (lint.location.file.to_string(), lint.location.line);
        Self { rule: lint.rule.to_owned(), file, line, message: lint.message.clone(), text: lint.to_string() }
    }
}

#[cfg(target_os = "linux")]
mod simulated {
    use elinvar_sim::Location;

    use super::{Finding, OtherAccess};
    use crate::expected::Difference;

    fn place(at: Option<&Location>) -> (Option<String>, Option<u32>) {
        (at.map(|at| at.file.to_string()), at.map(|at| at.line))
    }

    impl Finding {
        /// What the simulator found under the schedule of this seed.
        pub(crate) fn of_run(found: &elinvar_sim::Finding, seed: u64) -> Self {
            let (file, line) = place(found.at.as_ref());
            let other = found.other.as_ref().map(|other| {
                let (file, line) = place(other.at.as_ref());
                OtherAccess { file, line, kernel: other.kernel.clone(), thread: other.thread, threadgroup: other.threadgroup }
            });
            Self {
                kind: found.kind.name().to_owned(),
                kernel: found.kernel.clone(),
                file,
                line,
                thread: Some(found.thread),
                threadgroup: Some(found.threadgroup),
                buffer: found.buffer.clone(),
                offset: found.offset,
                message: found.message.clone(),
                other,
                count: found.count,
                seed,
                text: found.to_string(),
            }
        }

        /// A buffer that did not hold what was expected.
        pub(crate) fn of_difference(difference: &Difference, kernel: &str, seed: u64) -> Self {
            Self {
                kind: Difference::KIND.to_owned(),
                kernel: kernel.to_owned(),
                file: None,
                line: None,
                thread: None,
                threadgroup: None,
                buffer: Some(difference.buffer.clone()),
                offset: i64::try_from(difference.offset).ok(),
                message: difference.message(),
                other: None,
                count: difference.count as u64,
                seed,
                text: difference.to_string(),
            }
        }
    }
}
