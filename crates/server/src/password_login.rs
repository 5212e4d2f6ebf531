//! Logins with passwords: from the configuration to the protocol `pwd`.

use crate::error::StartError;
use auth::pwd::{ADMIN_FILE, PwdServer, PwdServerSettings};
use config::PwdOptions;

/// The directory of the file below the home directory, unless configured.
const HOME_DIRECTORY: &str = ".xrd";

/// Reads the file of passwords. Blocks.
///
/// # Errors
/// [`StartError::Security`] with the reason.
pub(crate) fn pwd(options: &PwdOptions) -> Result<PwdServer, StartError> {
    let home = || std::env::home_dir().filter(|home| home.is_absolute());
    let directory = options.directory.clone().or_else(|| home().map(|home| home.join(HOME_DIRECTORY)));
    let directory = directory.ok_or_else(|| {
        StartError::Security(
            "pwd has no file: this user has no home directory; name one with -dir".to_owned(),
        )
    })?;
    crate::login::keep_out_of_core_dumps("the key of pwd");
    let settings = PwdServerSettings { file: directory.join(ADMIN_FILE), failures_max: options.failures_max };
    let server = PwdServer::open(settings).map_err(|error| StartError::Security(format!("pwd: {error}")))?;
    tracing::warn!(
        "clients log in with passwords (pwd); whoever records a connection in clear text can guess them: \
         limit it by sec.bindtls pwd"
    );
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_file_of_passwords_does_not_start() {
        let options = PwdOptions { directory: Some("/nonexistent".into()), failures_max: 10 };
        let Err(StartError::Security(text)) = pwd(&options) else { panic!("it starts") };
        assert!(text.starts_with("pwd: cannot read /nonexistent/pwdadmin: "), "{text}");
    }
}
