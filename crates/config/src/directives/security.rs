//! Directives of authentication and authorization: `sec.`, `acc.`.
//!
//! They are not in force yet. Nearly all of them stop the start, because the server would otherwise
//! serve data unprotected.

use super::arguments::Arguments;
use super::authorization::{
    audit, authdb, encoding, lookup_lifetime, netgroup_domain, path_match, refresh, space_character,
};
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::{option_without_effect, unprotected};
use super::standing::{Standing, UsageFrequency};

pub(super) const SECTION: Section = Section {
    title: "Access: sec., acc.",
    about: "Authentication other than by host, and authorization, are not in force yet. A directive that asks for \
            them stops the start, so that nothing is ever served unprotected.",
    directives: &[
        Directive::new(&["sec.protocol"], UsageFrequency::Most, "[/libdir] name [parameters]", protocol)
            .default("none")
            .help("Authentication protocols. Only `host`, which trusts the host name, is accepted.")
            .example("host")
            .stops_with("/usr/lib64 gsi -certdir:/etc/grid-security/certificates")
            .standing(Standing::NotYet),
        Directive::new(&["sec.protparm"], UsageFrequency::Common, "name parameters", parameters)
            .default("none")
            .help("Parameters of a later sec.protocol.")
            .example("host -x")
            .stops_with("gsi -gmapopt:11")
            .standing(Standing::NotYet),
        Directive::new(
            &["sec.protbind"],
            UsageFrequency::Common,
            "{host|*} {none|[only] protocol…}",
            binding,
        )
        .default("all protocols")
        .help("Protocols offered to classes of clients. `none` and `host` are accepted.")
        .example("* none")
        .stops_with("*.example.org only krb5")
        .standing(Standing::NotYet),
        Directive::new(
            &["sec.level"],
            UsageFrequency::Common,
            "[all|local|remote] [relaxed] {none|compatible|standard|intense|pedantic} [force]",
            level,
        )
        .default("none")
        .help("Requests that must be signed. `none` is accepted.")
        .example("all none")
        .stops_with("local relaxed standard")
        .standing(Standing::NotYet),
        Directive::guard(
            &["sec.entitylib"],
            UsageFrequency::Rare,
            "[++] /library [parameters]",
            "++ libXrdVoms.so",
        )
        .default("none")
        .help("Plug-in that adds attributes to a client's identity."),
        Directive::idle(&["sec.trace"], UsageFrequency::Rare, "{all|auth|debug|off}…")
            .default("off")
            .help("Log level of authentication.")
            .example("debug"),
        Directive::idle(&["auth.trace"], UsageFrequency::Rare, "[option]…")
            .default("none")
            .help("Not used by XRootD either.")
            .example("all"),
        Directive::new(&["acc.authdb"], UsageFrequency::Most, "path", authdb)
            .default("/etc/xrootd/authdb, or /opt/xrd/etc/Authfile if that does not exist")
            .help("File of access rules; see [authorization.md](authorization.md). The server does not start with a \
                   file that has an error.")
            .example("/etc/xrootd/authdb"),
        Directive::new(&["acc.authrefresh"], UsageFrequency::Common, "time", refresh)
            .default("12h")
            .help("Interval at which the server reads a changed rule file again, at least 60s. `scalla admin reload` \
                   reads it at once. A file with an error leaves the earlier rules in force.")
            .example("1h"),
        Directive::new(&["acc.audit"], UsageFrequency::Common, "{none|deny|grant}…", audit)
            .default("none")
            .help("Decisions that are logged, with the positions of the deciding rules.")
            .example("deny"),
        Directive::new(&["acc.encoding"], UsageFrequency::Rare, "[space c] [pct path]", encoding)
            .default("paths and names as written")
            .help("Spelling of the rule file: `space` sets a character that stands for a blank in names, `pct path` \
                   decodes `%XX` in paths.")
            .example("space + pct path"),
        Directive::new(&["acc.spacechar"], UsageFrequency::Rare, "c", space_character)
            .default("none")
            .help("Character that stands for a blank in names of the rules; `acc.encoding space`.")
            .example("+"),
        Directive::new(&["acc.pathmatch"], UsageFrequency::Rare, "{component|prefix}", path_match)
            .default("component")
            .help("Paths that a rule path covers with what it grants. `component`: `/data` covers `/data` and \
                   `/data/x`. `prefix`, as in XRootD: also `/data2`. XRootD does not have this directive.")
            .example("prefix"),
        Directive::new(&["acc.gidlifetime"], UsageFrequency::Rare, "time", lookup_lifetime)
            .default("12h")
            .help("Time after which the netgroups of the rules are looked up again, at least 60s.")
            .example("1h"),
        Directive::idle(&["acc.gidretran"], UsageFrequency::Rare, "gid…")
            .default("none")
            .help("Group ids that are ignored. The groups of a client come from its authentication, not from the \
                   accounts of this host.")
            .example("100 101"),
        Directive::new(&["acc.nisdomain"], UsageFrequency::Rare, "domain", netgroup_domain)
            .default("all domains")
            .help("Domain of netgroups.")
            .example("example.org"),
        Directive::idle(&["acc.pgo"], UsageFrequency::Rare, "(flag)")
            .default("off")
            .help("Uses only the primary group of a user; see acc.gidretran."),
    ],
};

fn protocol(arguments: &mut Arguments<'_>, _draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("protocol name")?;
    if token.text.starts_with('/') {
        token = arguments.need("protocol name")?;
    }
    if token.text == "host" { Ok(()) } else { Err(unprotected(token, &format!("'{}'", token.text))) }
}

fn parameters(arguments: &mut Arguments<'_>, _draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("protocol name")?;
    if token.text == "host" { Ok(()) } else { Err(unprotected(token, &format!("'{}'", token.text))) }
}

fn binding(arguments: &mut Arguments<'_>, _draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    arguments.need("protbind host")?;
    let mut token = arguments.need("protbind protocol")?;
    loop {
        if !matches!(token.text.as_str(), "none" | "only" | "host") {
            return Err(unprotected(token, &format!("'{}'", token.text)));
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn level(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut level = None;
    let mut token = arguments.need("security level")?;
    loop {
        match token.text.as_str() {
            "all" | "local" | "remote" | "relaxed" | "force" => {}
            "none" => level = Some(token),
            "compatible" | "standard" | "intense" | "pedantic" => {
                return Err(unprotected(token, &format!("'{}'", token.text)));
            }
            _ => return Err(arguments.invalid(token, "security level")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    match level {
        Some(token) => {
            option_without_effect(arguments, token, draft);
            Ok(())
        }
        None => Err(arguments.invalid(token, "security level")),
    }
}
