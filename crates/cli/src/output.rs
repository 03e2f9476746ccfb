//! Standard output.

/// Prints a line to standard output; a closed pipe ends the program quietly.
pub(crate) fn print_line(line: impl std::fmt::Display) {
    use std::io::Write;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
