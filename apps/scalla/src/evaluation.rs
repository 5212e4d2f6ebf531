//! The context in which configuration files are evaluated: `if exec`, `if named` and variables.

use config::Evaluation;

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
