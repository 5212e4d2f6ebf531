//! Directives of authorization: `ofs.authorize`, `ofs.authlib`, and the functions of `acc.`, whose
//! table is in `security`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries;
use super::shared::{RESTRICTS, STOPS_UNPROTECTED, unprotected};
use crate::effective::{
    AccessAudit, AuthorizationLayers, CredentialLayer, Effective, ISSUER_FILE_DEFAULT, RulePathMatch,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;
use crate::values::{DAY, between};
use std::path::PathBuf;

/// Minimum of `acc.authrefresh` and `acc.gidlifetime`, in seconds.
const LIFETIME_MIN: u64 = 60;
/// Maximum of `acc.authrefresh` and `acc.gidlifetime`, in seconds.
const LIFETIME_MAX: u64 = 365 * DAY;

/// `ofs.authorize [1]`.
pub(super) fn authorize(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    arguments.take("1");
    if let Some(token) = arguments.next() {
        // Another word could mean that authorization is off.
        return Err(arguments.invalid(token, "argument"));
    }
    draft.effective.authorization.enabled.set(true, arguments.origin());
    Ok(())
}

/// `ofs.authlib [++] library [parameters]`: macaroons, tokens and the built-in rules. With `++` the layer is on top
/// of those before, and at first of the rules; otherwise it replaces them.
pub(super) fn library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let is_on_top = arguments.peek() == Some("++");
    let library = libraries::library(arguments)?;
    let before = draft.effective.authorization.layers.value.clone();
    let layers = match libraries::base_name(&library.text) {
        "default" | "libXrdAcc" => {
            if is_on_top && !before.credentials.is_empty() {
                let what = "the rules cannot be on top of tokens, because they ask no layer below";
                return Err(DirectiveFault::at(library, what, "name tokens last, with ++"));
            }
            AuthorizationLayers::default()
        }
        "libXrdAccSciTokens" => {
            let tokens = CredentialLayer::Tokens(issuer_file(arguments)?);
            if !is_on_top {
                AuthorizationLayers { credentials: vec![tokens], rules: false }
            } else if before.tokens().is_some() {
                let what = "tokens are named twice";
                return Err(DirectiveFault::at(library, what, "name all issuers in one file"));
            } else {
                on_top(tokens, before)
            }
        }
        "libXrdMacaroons" => macaroons(library, arguments, is_on_top.then_some(before))?,
        _ => return Err(unprotected(library, &format!("'{}'", library.text))),
    };
    draft.effective.authorization.layers.set(layers, arguments.origin());
    Ok(())
}

/// Returns layers with another one on top.
fn on_top(layer: CredentialLayer, mut layers: AuthorizationLayers) -> AuthorizationLayers {
    layers.credentials.insert(0, layer);
    layers
}

/// Reads the parameters of `libXrdMacaroons.so`. Without `++` (`before` is `None`) they name the layer
/// below, and no parameters name the rules.
fn macaroons(
    library: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    before: Option<AuthorizationLayers>,
) -> Result<AuthorizationLayers, DirectiveFault> {
    let below = arguments.next();
    let layers = match (before, below) {
        (Some(before), None) if before.has_macaroons() => {
            return Err(DirectiveFault::at(library, "macaroons are named twice", "remove one of the lines"));
        }
        (Some(before), None) => before,
        (Some(_), Some(below)) => {
            let what = format!("'{}' follows libXrdMacaroons.so", below.text);
            return Err(DirectiveFault::at(below, what, "with ++, name the layer below in a line before"));
        }
        (None, None) => AuthorizationLayers::default(),
        (None, Some(below)) => match libraries::base_name(&below.text) {
            "default" | "libXrdAcc" => AuthorizationLayers::default(),
            "libXrdAccSciTokens" => {
                let tokens = CredentialLayer::Tokens(issuer_file(arguments)?);
                AuthorizationLayers { credentials: vec![tokens], rules: false }
            }
            _ => return Err(unprotected(below, &format!("'{}'", below.text))),
        },
    };
    Ok(on_top(CredentialLayer::Macaroons, layers))
}

/// Reads the parameters of `libXrdAccSciTokens.so`: `[config=path]`.
fn issuer_file(arguments: &mut Arguments<'_>) -> Result<PathBuf, DirectiveFault> {
    let mut file = PathBuf::from(ISSUER_FILE_DEFAULT);
    while let Some(token) = arguments.next() {
        match token.text.strip_prefix("config=") {
            Some(path) if path.starts_with('/') => file = path.into(),
            _ => {
                let what = format!("invalid parameter '{}' of libXrdAccSciTokens.so", token.text);
                return Err(DirectiveFault::at(token, what, "allowed: config=/path"));
            }
        }
    }
    Ok(file)
}

pub(super) fn authdb(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("authdb")?;
    draft.finish(arguments);
    draft.effective.authorization.authdb.set(Some(path.into()), arguments.origin());
    Ok(())
}

pub(super) fn refresh(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.time("authrefresh", between(LIFETIME_MIN, LIFETIME_MAX))?;
    draft.finish(arguments);
    draft.effective.authorization.refresh.set(value, arguments.origin());
    Ok(())
}

/// `acc.audit {none|deny|grant}…`.
pub(super) fn audit(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = AccessAudit::default();
    let mut token = arguments.need("audit option")?;
    loop {
        match token.text.as_str() {
            "none" => value = AccessAudit::default(),
            "deny" => value.denials = true,
            "grant" => value.grants = true,
            _ => return Err(arguments.invalid(token, "audit option")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.authorization.audit.set(value, arguments.origin());
    Ok(())
}

/// `acc.encoding [space c] [pct path]`.
pub(super) fn encoding(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.authorization.encoding.value;
    let mut token = arguments.need("encoding option")?;
    loop {
        match token.text.as_str() {
            "space" => value.space = Some(space(arguments, "encoding space")?),
            "pct" => {
                let what = arguments.need("encoding pct value")?;
                if what.text != "path" {
                    return Err(arguments.invalid(what, "encoding pct value"));
                }
                value.decode_paths = true;
            }
            _ => return Err(arguments.invalid(token, "encoding option")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.authorization.encoding.set(value, arguments.origin());
    draft.effective.authorization.encoding_directive = "acc.encoding";
    Ok(())
}

/// `acc.spacechar c`.
pub(super) fn space_character(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = draft.effective.authorization.encoding.value;
    value.space = Some(space(arguments, "spacechar")?);
    draft.finish(arguments);
    draft.effective.authorization.encoding.set(value, arguments.origin());
    draft.effective.authorization.encoding_directive = "acc.spacechar";
    Ok(())
}

fn space(arguments: &mut Arguments<'_>, what: &str) -> Result<u8, DirectiveFault> {
    let token = arguments.need(&format!("{what} character"))?;
    match token.text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(*byte),
        _ => {
            let what = format!("invalid {what} character '{}'", token.text);
            Err(DirectiveFault::at(token, what, "allowed: one printable ASCII character"))
        }
    }
}

/// `acc.pathmatch {component|prefix}`.
pub(super) fn path_match(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("pathmatch value")?;
    let value = match token.text.as_str() {
        "component" => RulePathMatch::Component,
        "prefix" => RulePathMatch::Prefix,
        _ => return Err(arguments.invalid(token, "pathmatch value")),
    };
    draft.finish(arguments);
    draft.effective.authorization.path_match.set(value, arguments.origin());
    Ok(())
}

pub(super) fn lookup_lifetime(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let value = arguments.time("gidlifetime", between(LIFETIME_MIN, LIFETIME_MAX))?;
    draft.finish(arguments);
    draft.effective.authorization.lookup_lifetime.set(value, arguments.origin());
    Ok(())
}

pub(super) fn netgroup_domain(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let token = arguments.need("nisdomain value")?;
    draft.finish(arguments);
    let value = Some(token.text.clone());
    draft.effective.authorization.netgroup_domain.set(value, arguments.origin());
    Ok(())
}

/// Reports settings of authorization that are not in force, because `ofs.authorize` is not set, or
/// because `ofs.authlib` replaces the rules.
pub(crate) fn check_authorization(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.authorization;
    let rules: [(&str, &Origin); 6] = [
        ("acc.authdb", &values.authdb.origin),
        ("acc.authrefresh", &values.refresh.origin),
        (values.encoding_directive, &values.encoding.origin),
        ("acc.pathmatch", &values.path_match.origin),
        ("acc.gidlifetime", &values.lookup_lifetime.origin),
        ("acc.nisdomain", &values.netgroup_domain.origin),
    ];
    let mut settings = Vec::new();
    let (missing, remedy) = match (*values.enabled, values.layers.rules) {
        (true, true) => return,
        (true, false) => {
            settings.extend(rules);
            ("because ofs.authlib replaces the rules", "write ofs.authlib ++")
        }
        (false, _) => {
            settings.extend(rules);
            settings.push(("acc.audit", &values.audit.origin));
            settings
                .extend(values.layers.credentials.first().map(|_| ("ofs.authlib", &values.layers.origin)));
            ("without ofs.authorize", "add ofs.authorize")
        }
    };
    for (name, origin) in settings.into_iter().filter(|(_, origin)| !origin.is_default()) {
        let what = format!("{name}: {RESTRICTS} {missing}");
        let allowed = format!("{STOPS_UNPROTECTED}; {remedy}, or remove it");
        report.add_about(name, ProblemKind::Unprotected, origin.clone(), what, allowed);
    }
}
