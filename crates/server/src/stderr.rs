//! Messages on the standard error, for the time before the log exists and for fatal errors.

use std::io::Write as _;

/// Writes lines to the standard error, escaped because they contain names and text of files. A
/// failure to write must not keep a server from starting, or from failing properly.
pub(crate) fn print_stderr(text: &str) {
    let shown: Vec<String> = text.split('\n').map(|line| base::shown(line).to_string()).collect();
    std::io::stderr().write_all(shown.join("\n").as_bytes()).ok();
}
