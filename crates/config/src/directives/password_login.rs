//! Options of `sec.protocol pwd`, the login by passwords.

use super::draft::Draft;
use super::fault::DirectiveFault;
use crate::effective::{PWD_FAILURES_MAX, PwdOptions};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::values;
use std::path::PathBuf;

const GRAMMAR: &str = "allowed: -dir:/path, -maxfail:n, -c:ssl, -a:0, -upwd:0, -vc:2";

/// Maximum of `-maxfail`.
const FAILURES_MAX: u32 = 1000;

/// Reads the options of pwd. Options that would admit users without an entry of the administrator
/// stop the start.
pub(super) fn pwd_options(
    tokens: &[DirectiveToken],
    draft: &mut Draft<'_>,
) -> Result<PwdOptions, DirectiveFault> {
    let mut options = PwdOptions { directory: None, failures_max: PWD_FAILURES_MAX };
    for token in tokens {
        let (name, value) = token.text.split_once(':').unwrap_or((&token.text, ""));
        let part = DirectiveToken { text: value.to_owned(), ..token.clone() };
        match (name, value) {
            ("-dir", _) => options.directory = Some(PathBuf::from(values::path(&part, "pwd directory")?)),
            ("-maxfail", _) => {
                options.failures_max = values::count32(&part, "pwd failures", 1, FAILURES_MAX)?;
            }
            ("-c", "ssl") | ("-a" | "-upwd", "0") | ("-vc", "2") => {}
            ("-d", _) => {
                let what = "sec.protocol: pwd -d has no effect here".to_owned();
                draft.note(ProblemKind::NoEffect, token, what, "sec.trace sets the level of the log");
            }
            ("-vc", "0" | "1") => {
                let what = format!("sec.protocol: pwd -vc:{value}: clients answer a challenge all the same");
                draft.note(ProblemKind::NoEffect, token, what, "remove it");
            }
            _ => {
                let what = format!("unsupported option '{}' of pwd", token.text);
                return Err(DirectiveFault::at(token, what, instead_of(name)));
            }
        }
    }
    Ok(options)
}

/// Returns the advice about an option that stops the start.
fn instead_of(option: &str) -> &'static str {
    match option {
        "-a" => {
            "anybody could take the name of another user: remove it, add users by xrdpwdadmin add USER -random \
             -change, and give each one this password, which counts until a new one is chosen at the first login"
        }
        "-upwd" | "-udir" | "-syspwd" | "-cryptfile" => {
            "users need an entry of the administrator: remove it, and add them by xrdpwdadmin add"
        }
        "-keepcreds" | "-expcreds" | "-expfmt" => "passwords of users are not stored: remove it",
        _ => GRAMMAR,
    }
}
