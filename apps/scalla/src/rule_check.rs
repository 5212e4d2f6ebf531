//! The secret of macaroons, the token issuers and the authorization rules of a configuration, for
//! `scalla config check`: errors, and rules that can never apply.

use auth::access::{AccessDatabase, AuthdbCheck, AuthdbError, AuthdbProblem};
use auth::macaroons::MacaroonSecret;
use auth::tokens::{IssuerFile, IssuerFileError, IssuerFileProblem};
use config::{ConfigReport, Effective, Origin, Position, ProblemKind};
use std::path::Path;

/// Adds the problems of the files of all layers, if the configuration enables authorization.
pub(crate) fn check_rules(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.authorization;
    if !*values.enabled {
        return;
    }
    if let Some(file) = values.macaroons.secret.as_deref().filter(|_| values.layers.has_macaroons()) {
        check_secret(file, &values.macaroons.secret.origin, report);
    }
    if let Some(file) = values.layers.tokens() {
        check_issuers(file, &values.layers.origin, report);
    }
    if !values.layers.rules {
        return;
    }
    let origin =
        if values.authdb.origin.is_default() { &values.enabled.origin } else { &values.authdb.origin };
    let source = server::authdb_source(values);
    match AccessDatabase::load(&source, AuthdbCheck::ForOwner, &server::SystemNetgroups) {
        Ok(database) => {
            for warning in database.warnings() {
                add(ProblemKind::Doubtful, database.path(), warning, report);
            }
            if database.is_empty() {
                let what = format!("acc.authdb: {} has no rules", database.path().display());
                let allowed = "nothing is allowed to anyone; write rules";
                report.add(ProblemKind::Doubtful, origin.clone(), what, allowed);
            }
        }
        Err(AuthdbError::Invalid { path, problems }) => {
            problems.iter().for_each(|problem| add(ProblemKind::Contradiction, &path, problem, report));
        }
        Err(error) => {
            let allowed = match &error {
                AuthdbError::Unsafe { .. } => "only the owner may write the rules",
                _ => "name a readable file with acc.authdb",
            };
            report.add(ProblemKind::Contradiction, origin.clone(), format!("acc.authdb: {error}"), allowed);
        }
    }
}

/// Adds the problem of the file with the secret of macaroons.
fn check_secret(file: &Path, origin: &Origin, report: &mut ConfigReport) {
    if let Err(error) = MacaroonSecret::load(file, AuthdbCheck::ForOwner) {
        let what = format!("macaroons.secretkey: {error}");
        report.add(ProblemKind::Contradiction, origin.clone(), what, "");
    }
}

/// Adds the problems of an issuer file.
fn check_issuers(file: &Path, origin: &Origin, report: &mut ConfigReport) {
    let mut add = |kind, path: &Path, problems: &[IssuerFileProblem]| {
        let file: std::sync::Arc<str> = path.display().to_string().into();
        for problem in problems {
            let position = Position { file: file.clone(), line: problem.line, column: 1 };
            report.add(kind, Origin::File(position), problem.what.clone(), "");
        }
    };
    match IssuerFile::load(file, AuthdbCheck::ForOwner) {
        Ok(file) => add(ProblemKind::Doubtful, &file.path, &file.warnings),
        Err(IssuerFileError::Invalid { path, problems }) => {
            add(ProblemKind::Contradiction, &path, &problems);
        }
        Err(error) => {
            let allowed = "name a readable file with config=, which only its owner may write";
            report.add(ProblemKind::Contradiction, origin.clone(), format!("ofs.authlib: {error}"), allowed);
        }
    }
}

fn add(kind: ProblemKind, path: &Path, problem: &AuthdbProblem, report: &mut ConfigReport) {
    let AuthdbProblem { at, what } = problem;
    let file = path.display().to_string().into();
    let position = Position { file, line: at.line, column: at.column };
    report.add(kind, Origin::File(position), what.clone(), "");
}
