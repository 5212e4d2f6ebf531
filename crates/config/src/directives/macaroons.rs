//! Directives of macaroons: `macaroons.`.
//!
//! `ofs.authlib` makes macaroons count; these directives set the secret, the site name and the limits.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::process::site_name_token;
use super::shared::trace;
use super::standing::UsageFrequency;
use crate::effective::{Effective, MissingMacaroon, Trace};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;
use crate::values::{TIME_MAX, between};

/// The options of `macaroons.trace`. Errors, warnings and information are always logged.
const TRACE_OPTIONS: &[&str] = &["debug", "error", "info", "warning"];

pub(super) const SECTION: Section = Section {
    title: "Macaroons: macaroons.",
    about: "They are in force with `ofs.authlib ++ libXrdMacaroons.so`; see \
            [authorization.md](authorization.md#macaroons). All servers of a site have the same secret and \
            site name. Macaroons are issued by `scalla auth macaroon`, and over HTTP with \
            `http.exthandler xrdmacaroons libXrdMacaroons.so`.",
    directives: &[
        Directive::new(&["macaroons.secretkey"], UsageFrequency::Common, "/file", secret_key)
            .default("none; macaroons need it")
            .help(
                "File with the secret: base64 of at least 32 bytes, as of `openssl rand -base64 64`. Only its \
                   owner may have access to it. A changed file is read within a minute, and by `scalla admin \
                   reload`; one that is not usable leaves the earlier secret in force.",
            )
            .example("/etc/xrootd/macaroon-secret"),
        Directive::new(&["macaroons.sitename"], UsageFrequency::Common, "name", site_name)
            .default("all.sitename")
            .help("Site name in macaroons. A macaroon of another site counts as no credential.")
            .example("EXAMPLE"),
        Directive::new(&["macaroons.maxduration"], UsageFrequency::Common, "{time|0|-1}", max_duration)
            .default("24h")
            .help(
                "Maximum time until the expiry of a macaroon. One that expires later is refused. 0 and negative \
                   numbers are no limit. XRootD does not know units of time here.",
            )
            .example("1h"),
        Directive::new(
            &["macaroons.onmissing"],
            UsageFrequency::Common,
            "{passthrough|allow|deny}",
            on_missing,
        )
        .default("passthrough")
        .help("Decision about requests without a macaroon. `passthrough`: the next layer decides.")
        .example("passthrough"),
        Directive::new(
            &["macaroons.trace"],
            UsageFrequency::Common,
            "{all|off|none|[-]{debug|error|info|warning}}…",
            trace_level,
        )
        .default("off")
        .help("Log level of macaroons: `debug` logs why macaroons are refused. Errors are always logged.")
        .example("debug"),
    ],
};

fn secret_key(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("secretkey")?;
    draft.finish(arguments);
    draft.effective.authorization.macaroons.secret.set(Some(path.into()), arguments.origin());
    Ok(())
}

fn site_name(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = site_name_token(arguments)?;
    draft.finish(arguments);
    draft.effective.authorization.macaroons.site.set(Some(token.text.clone()), arguments.origin());
    Ok(())
}

/// `{time|0|-number}`.
fn max_duration(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let is_unlimited = |text: &str| {
        let digits =
            text.strip_prefix('-').unwrap_or(if text.bytes().all(|b| b == b'0') { text } else { "" });
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let value = if arguments.peek().is_some_and(is_unlimited) {
        arguments.next();
        None
    } else {
        Some(arguments.time("maxduration", between(1, TIME_MAX))?)
    };
    draft.finish(arguments);
    draft.effective.authorization.macaroons.lifetime_max.set(value, arguments.origin());
    Ok(())
}

fn on_missing(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("onmissing value")?;
    let value =
        MissingMacaroon::from_name(&token.text).ok_or_else(|| arguments.invalid(token, "onmissing value"))?;
    draft.finish(arguments);
    draft.effective.authorization.macaroons.on_missing.set(value, arguments.origin());
    Ok(())
}

fn trace_level(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let Trace { mut options, all } = trace(arguments, TRACE_OPTIONS, draft)?;
    options.retain(|option| *option == "debug");
    draft.effective.authorization.macaroons.trace.set(Trace { options, all }, arguments.origin());
    Ok(())
}

/// Reports macaroons without a secret or a site name, and settings without macaroons.
pub(crate) fn check_macaroons(effective: &Effective, report: &mut ConfigReport) {
    let authorization = &effective.authorization;
    let values = &authorization.macaroons;
    if !*authorization.enabled || !authorization.layers.has_macaroons() {
        let settings: [(&str, &Origin); 4] = [
            ("macaroons.secretkey", &values.secret.origin),
            ("macaroons.sitename", &values.site.origin),
            ("macaroons.maxduration", &values.lifetime_max.origin),
            ("macaroons.onmissing", &values.on_missing.origin),
        ];
        for (name, origin) in settings.into_iter().filter(|(_, origin)| !origin.is_default()) {
            let what = format!("{name} has no effect, because macaroons do not count");
            let allowed = "add ofs.authorize and ofs.authlib ++ libXrdMacaroons.so, or remove it";
            report.add_about(name, ProblemKind::Doubtful, origin.clone(), what, allowed);
        }
        return;
    }
    let mut missing = |what: &str, allowed: &str| {
        let what = format!("ofs.authlib: macaroons have no {what}");
        report.add(ProblemKind::BadValue, authorization.layers.origin.clone(), what, allowed);
    };
    if values.secret.is_none() {
        missing(
            "secret",
            "make one with (umask 077; openssl rand -base64 -out FILE 64), and add macaroons.secretkey FILE",
        );
    }
    if effective.macaroon_site().is_none_or(str::is_empty) {
        missing("site", "add all.sitename with the name that all servers of the site have");
    }
}
