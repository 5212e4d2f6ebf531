//! Faults of the options of `sec.protocol gsi`.
//!
//! They are apart from the options, because the options `-voms…` have a reader of their own and
//! report the same faults.

use super::fault::DirectiveFault;
use crate::language::DirectiveToken;

const ALLOWED_OPTIONS: &str = "allowed: -certdir:path, -cert:path, -key:path, -cipher:name[:…], -md:name[:…], -ca:n, \
                               -crl:n, -crldir:path, -crlext:text, -crlrefresh:seconds, -gridmap:path, -gmapopt:n, \
                               -gmapto:seconds, -vomsat:n, -vomsfun:default, -vomsfunparms:[…], -authzpxy[:…], \
                               -dlgpxy:n, -exppxy:path, -moninfo, -showdn:n, -defaulthash";

/// Returns the fault of an unknown option.
pub(super) fn unknown(token: &DirectiveToken) -> DirectiveFault {
    DirectiveFault::at(token, format!("unknown option '{}' of gsi", token.text), ALLOWED_OPTIONS)
}

/// Returns the fault of a known option with an invalid value.
pub(super) fn invalid(token: &DirectiveToken, allowed: &str) -> DirectiveFault {
    DirectiveFault::at(
        token,
        format!("invalid option '{}' of gsi", token.text),
        format!("allowed: {allowed}"),
    )
}
