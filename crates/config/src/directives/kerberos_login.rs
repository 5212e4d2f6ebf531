//! Options of `sec.protocol krb5`, the login with Kerberos tickets.

use super::fault::DirectiveFault;
use crate::effective::{KRB5_TICKET_FILE, Krb5Options};
use crate::language::DirectiveToken;
use crate::values;
use std::path::PathBuf;

const GRAMMAR: &str = "allowed: [/keytab] [-ipchk] [-exptkn[:/template]] principal";

/// The option that asks clients for their ticket.
const FORWARD: &str = "-exptkn";

/// Reads the options of krb5. `name` is the word `krb5`.
pub(super) fn krb5_options(
    name: &DirectiveToken,
    tokens: &[DirectiveToken],
) -> Result<Krb5Options, DirectiveFault> {
    let Some((principal, options)) = tokens.split_last().filter(|(last, _)| is_principal(&last.text)) else {
        return Err(DirectiveFault::at(tokens.last().unwrap_or(name), "krb5 has no principal", GRAMMAR));
    };
    // Clients receive it in a list, whose separators it cannot contain.
    if let Some(character) = principal.text.chars().find(|c| "&,".contains(*c) || c.is_control()) {
        let what = format!("invalid principal '{}' of krb5", principal.text);
        return Err(DirectiveFault::at(principal, what, format!("{character:?} is not allowed")));
    }
    let mut read = Krb5Options::new(principal.text.clone());
    for token in options {
        match token.text.as_str() {
            text if text.starts_with('/') => {
                read.keytab = Some(PathBuf::from(values::path(token, "krb5 keytab")?));
            }
            "-ipchk" => read.checks_addresses = true,
            FORWARD => read.ticket_file = Some(KRB5_TICKET_FILE.to_owned()),
            text => match text.strip_prefix(FORWARD).and_then(|rest| rest.strip_prefix(':')) {
                Some(template) => read.ticket_file = Some(ticket_file(token, template)?),
                None => {
                    let what = format!("unknown option '{text}' of krb5");
                    return Err(DirectiveFault::at(token, what, GRAMMAR));
                }
            },
        }
    }
    Ok(read)
}

fn is_principal(text: &str) -> bool {
    !text.starts_with(['/', '-'])
}

/// Reads the template for the files of forwarded tickets.
fn ticket_file(token: &DirectiveToken, template: &str) -> Result<String, DirectiveFault> {
    let part = DirectiveToken { text: template.to_owned(), ..token.clone() };
    let path = values::path(&part, "krb5 ticket file")?;
    if ["<user>", "<uid>"].iter().any(|variable| path.contains(variable)) {
        return Ok(path);
    }
    let what = format!("all users of krb5 would share the ticket file '{path}'");
    Err(DirectiveFault::at(token, what, "its name must contain <user> or <uid>"))
}
