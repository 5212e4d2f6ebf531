//! The context in which configuration files are evaluated: `if exec`, `if named` and variables.

use config::{ConfigInput, Evaluation, Loaded, LocalFiles, Overrides, Strictness};
use std::path::Path;

/// Returns the context in which files are evaluated: the environment of this process counts. The
/// host name is determined later.
pub(crate) fn evaluation(program: &str, instance: Option<String>) -> Evaluation {
    Evaluation {
        program: program.to_owned(),
        instance: instance.filter(|name| name != config::ANONYMOUS),
        host: String::new(),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
    }
}

/// Loads a configuration file as a data server of this host does.
pub(crate) fn load_here(file: &Path, instance: Option<String>) -> Loaded {
    let mut evaluation = evaluation("xrootd", instance);
    evaluation.host = server::host_name();
    let file = Some(file.to_string_lossy().into_owned());
    let input =
        ConfigInput { file, evaluation, overrides: Overrides::default(), strictness: Strictness::Legacy };
    config::load(&input, &LocalFiles)
}
