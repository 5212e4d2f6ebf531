//! `sec.entitymap` and `sec.entityprogram`, which complete the identities of clients, and `sec.entitylib`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::unprotected;
use crate::effective::{AuthProtocol, Effective, EntityMapFile, EntityProgram};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;

const MAP: &str = "sec.entitymap";
const PROGRAM: &str = "sec.entityprogram";

/// `path [keep|refuse]`.
pub(super) fn entity_map(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("map")?.into();
    let refuses_others = match arguments.next() {
        None => false,
        Some(token) => match token.text.as_str() {
            "keep" => false,
            "refuse" => true,
            _ => return Err(arguments.invalid(token, "treatment of clients without a rule")),
        },
    };
    draft.finish(arguments);
    let map = EntityMapFile { path, refuses_others };
    draft.effective.security.entity_map.set(Some(map), arguments.origin());
    Ok(())
}

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
    let instead = "use sec.entitymap, whose rules name clients or refuse them, or sec.entityprogram, whose program does";
    Err(unprotected(arguments.name, "").instead(instead))
}

/// Reports a map and a program that no client meets: those that do not authenticate have no identity.
pub(crate) fn check_entity_names(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    let mut unprotected = |name: &str, origin: &Origin, reason: &str, remedy: &str| {
        let what = format!("{name}: no client is mapped or refused, because {reason}");
        let allowed = format!("add {remedy}, or remove {name}");
        report.add_about(name, ProblemKind::Unprotected, origin.clone(), what, &allowed);
    };
    let mut names = Vec::new();
    names.extend(security.entity_map.as_ref().map(|_| (MAP, &security.entity_map.origin)));
    names.extend(security.entity_program.as_ref().map(|_| (PROGRAM, &security.entity_program.origin)));
    let has_identities = security.protocols.iter().any(|protocol| protocol.id() != AuthProtocol::HOST_ID);
    for (name, origin) in names {
        if !*security.enabled {
            unprotected(name, origin, "xrootd.seclib is missing", "xrootd.seclib default and sec.protocol");
        } else if !has_identities {
            unprotected(name, origin, "clients are identified by their host alone", "sec.protocol");
        }
    }
}
