//! `sec.entityprogram`, the program that completes the identities of clients, and `sec.entitylib`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::unprotected;
use crate::effective::{Effective, EntityProgram};
use crate::report::{ConfigReport, ProblemKind};

/// `/program [argument…]`.
pub(super) fn entity_program(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let path = arguments.path("program")?.into();
    let mut rest = Vec::new();
    while let Some(token) = arguments.next() {
        rest.push(token.text.clone());
    }
    let program = EntityProgram { path, arguments: rest };
    draft.effective.security.entity_program.set(Some(program), arguments.origin());
    Ok(())
}

/// `sec.entitylib`.
pub(super) fn entity_library(
    arguments: &mut Arguments<'_>,
    _draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let instead = "use sec.entityprogram, whose program names each client or refuses it";
    Err(unprotected(arguments.name, "").instead(instead))
}

/// Reports a program that is executed for no client: those that do not authenticate have no identity.
pub(crate) fn check_entity_program(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    if security.entity_program.is_none() || *security.enabled {
        return;
    }
    let what = "sec.entityprogram: no client is mapped or refused, because xrootd.seclib is missing";
    let allowed = "add xrootd.seclib default and sec.protocol, or remove sec.entityprogram";
    let origin = security.entity_program.origin.clone();
    report.add_about("sec.entityprogram", ProblemKind::Unprotected, origin, what, allowed);
}
