//! Options of `sec.protocol ztn`, the login by bearer tokens, and the settings without which nobody
//! could log in.

use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries;
use crate::effective::{AuthProtocol, Effective, TokenExpiry, TokenLibrary, ZtnOptions};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::values::{self, between};

/// Maximum of `-maxsz` in bytes. The credentials of a client cannot express more than 64 KiB, but
/// XRootD accepts larger values.
const TOKEN_BYTES_MAX: u64 = 512 << 10;

const ALLOWED_OPTIONS: &str = "allowed: -maxsz size, -expiry {ignore|optional|required}, \
                               -tokenlib {libXrdAccSciTokens.so|libXrdMacaroons.so|none}";

/// Reads the options of ztn.
pub(super) fn ztn_options(
    tokens: &[DirectiveToken],
    draft: &mut Draft<'_>,
) -> Result<ZtnOptions, DirectiveFault> {
    let mut options = ZtnOptions::default();
    let mut expiry = None;
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        let mut value = |what: &str| {
            let what = format!("{what} of ztn option '{}' not specified", token.text);
            rest.next().ok_or_else(|| DirectiveFault::at(token, what, ALLOWED_OPTIONS))
        };
        match token.text.as_str() {
            "-maxsz" => {
                let bytes = values::size(value("size")?, "ztn token size", between(1, TOKEN_BYTES_MAX))?;
                options.token_bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
            "-expiry" => {
                let value = value("value")?;
                options.expiry = TokenExpiry::from_name(&value.text).ok_or_else(|| {
                    let what = format!("invalid expiry '{}' of ztn", value.text);
                    DirectiveFault::at(value, what, "allowed: ignore, optional, required")
                })?;
                expiry = Some(value);
            }
            "-tokenlib" => options.library = token_library(value("library")?)?,
            text => {
                let what = format!("unknown option '{text}' of ztn");
                return Err(DirectiveFault::at(token, what, ALLOWED_OPTIONS));
            }
        }
    }
    let verifies = options.library != TokenLibrary::None;
    if let Some(value) = expiry.filter(|_| verifies && options.expiry != TokenExpiry::Required) {
        let what =
            format!("sec.protocol: ztn -expiry {}: tokens must have an expiry all the same", value.text);
        let allowed = "it applies only with -tokenlib none; remove it";
        draft.note(ProblemKind::Doubtful, value, what, allowed);
    }
    Ok(options)
}

/// Reads a library that verifies tokens. Libraries other than the built-in ones stop the start.
fn token_library(library: &DirectiveToken) -> Result<TokenLibrary, DirectiveFault> {
    match libraries::base_name(&library.text) {
        "none" if library.text == "none" => Ok(TokenLibrary::None),
        "libXrdAccSciTokens" => Ok(TokenLibrary::SciTokens),
        "libXrdMacaroons" => Ok(TokenLibrary::Macaroons),
        _ => {
            let what = format!("unsupported token library '{}' of ztn", library.text);
            let allowed = "the verification of tokens is built in; omit -tokenlib, or write -tokenlib none";
            Err(DirectiveFault::at(library, what, allowed).of(ProblemKind::ForeignLibrary))
        }
    }
}

/// Reports a login by tokens without encryption or without issuers.
pub(crate) fn check_token_login(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    let known = security.protocols.iter().find_map(|known| match known.value {
        AuthProtocol::Ztn(options) => Some((known, options.library)),
        _ => None,
    });
    let Some((protocol, library)) = known.filter(|_| *security.enabled) else { return };
    let mut add = |what: &str, allowed: &str| {
        report.add(
            ProblemKind::BadValue,
            protocol.origin.clone(),
            format!("sec.protocol ztn: {what}"),
            allowed,
        );
    };
    if effective.network.tls.is_none() {
        add(
            "tokens are sent over encrypted connections only, and xrd.tls is missing",
            "add xrd.tls with the certificate and key of this host, or remove this line",
        );
    }
    let (enabled, layers) = (*effective.authorization.enabled, &effective.authorization.layers);
    let (tokens, macaroons) = (layers.tokens().is_some(), layers.has_macaroons());
    match library {
        TokenLibrary::Macaroons if !enabled || !macaroons => add(
            "macaroons do not count",
            "add ofs.authorize and ofs.authlib ++ libXrdMacaroons.so, or remove this line",
        ),
        TokenLibrary::None if enabled && macaroons => {}
        TokenLibrary::SciTokens | TokenLibrary::None if !enabled || !tokens => add(
            "no issuer of tokens is trusted",
            "add ofs.authorize and ofs.authlib ++ libXrdAccSciTokens.so config=/path, or remove this line",
        ),
        _ => {}
    }
}
