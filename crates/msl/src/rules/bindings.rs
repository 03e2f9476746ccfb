//! Buffers are bound at indices that Metal has.

use crate::{kernel::ParameterKind, lints::Lint, module::Module};

/// The last index of a buffer: "'buffer' attribute parameter is out of bounds: must be between 0 and 30".
const LAST_BUFFER: u32 = 30;

/// Kernels with a buffer beyond the last index.
pub(crate) fn bindings(module: &Module) -> Vec<Lint> {
    let mut lints: Vec<Lint> = Vec::new();
    for (location, parameters) in module.signatures() {
        for parameter in parameters {
            let ParameterKind::Buffer { index, .. } = parameter.kind else { continue };
            if index > LAST_BUFFER {
                let message =
                    format!("`{}` is buffer {index}: Metal has buffers 0 to {LAST_BUFFER}; put small parameters into one structure", parameter.name);
                lints.push(Lint { location: location.clone(), rule: "buffer-index", message });
            }
        }
    }
    lints
}
