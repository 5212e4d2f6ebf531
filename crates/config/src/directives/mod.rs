//! The tables of directives.
//!
//! There is one table per prefix. The manual, the checks and the nearest-name hint are generated
//! from them, so that a directive is described in one place.

mod arguments;
mod authentication;
mod authorization;
mod cache;
mod cluster;
mod definition;
mod detailed_monitoring;
mod draft;
mod entity_program;
mod export;
mod export_options;
mod fault;
mod grid_login;
mod grid_plugins;
mod gsi_fault;
mod gstreams;
mod http;
mod http_certificates;
mod http_copies;
mod kerberos_login;
mod libraries;
mod login_encryption;
mod macaroons;
mod memory_cache;
mod missing;
mod monitoring;
mod multi_user;
mod name_rules;
mod notification;
mod object_store;
mod ofs;
mod origin;
mod oss;
mod packet_marking;
mod password_login;
mod process;
mod protocol_parameters;
mod proxy;
mod purge;
mod residency;
mod security;
mod shared;
mod standing;
mod third_party;
mod tls;
mod token_login;
mod transfer_monitor;
mod voms;
mod xrd;
mod xrootd;

use crate::effective::Effective;

pub(crate) use arguments::Arguments;
pub(crate) use authentication::check_security;
pub(crate) use authorization::check_authorization;
pub(crate) use cluster::{finish_proxies, read_by_xrootd};
pub use definition::{Directive, Section};
pub(crate) use draft::Draft;
pub(crate) use entity_program::check_entity_names;
pub(crate) use export::resolve;
pub(crate) use export_options::ExportDraft;
pub use export_options::{EXPORT_OPTIONS, OptionEntry};
pub(crate) use fault::DirectiveFault;
pub(crate) use grid_login::{check_list_sources, check_old_clients};
pub(crate) use http::check_http;
pub(crate) use http_certificates::finish_certificate;
pub(crate) use login_encryption::check_tls_protocols;
pub(crate) use macaroons::check_macaroons;
pub(crate) use missing::of as missing;
pub(crate) use multi_user::check_multi_user;
pub(crate) use origin::check_proxy;
pub(crate) use protocol_parameters::ProtocolParameters;
pub(crate) use shared::unprotected;
pub use standing::{Standing, UsageFrequency};
pub(crate) use tls::check_tls;
pub(crate) use token_login::check_token_login;
pub(crate) use voms::check_voms;

/// All tables.
pub static SECTIONS: &[Section] = &[
    process::SECTION,
    xrd::SECTION,
    xrootd::SECTION,
    ofs::SECTION,
    oss::SECTION,
    security::SECTION,
    macaroons::SECTION,
    multi_user::SECTION,
    cluster::SECTION,
    residency::SECTION,
    http::SECTION,
    proxy::SECTION,
];

/// Prefixes of components that are not part of this server. XRootD ignores them unless the
/// component runs.
const OTHER_PREFIXES: [&str; 5] = ["bwm", "odc", "olb", "scitokens", "ssi"];

/// Returns all directives, table by table.
pub fn every_directive() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|section| section.directives)
}

/// Returns the directive with this full name.
#[must_use]
pub fn find_directive(name: &str) -> Option<&'static Directive> {
    every_directive().find(|directive| directive.names.contains(&name))
}

/// Returns the directives whose programs a server with this configuration executes.
pub fn program_directives(effective: &Effective) -> impl Iterator<Item = &'static Directive> {
    every_directive().filter(|directive| directive.has_program.is_some_and(|has| has(effective)))
}

/// Reports whether a directive belongs to a component that is not part of this server.
pub(crate) fn of_another_component(name: &str) -> bool {
    name.split_once('.').is_some_and(|(prefix, _)| OTHER_PREFIXES.contains(&prefix))
}

/// Returns the known name closest to `name`, if at most a third of its characters differ.
#[must_use]
pub fn nearest_directive(name: &str) -> Option<&'static str> {
    base::nearest(name, every_directive().flat_map(|directive| directive.names.iter().copied()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_complete() {
        let mut seen = BTreeSet::new();
        for directive in every_directive() {
            assert!(!directive.names.is_empty());
            for name in directive.names {
                assert!(seen.insert(name), "{name} is in two tables");
                assert!(name.contains('.'), "{name}");
            }
            assert!(!directive.help.is_empty(), "{} has no help", directive.names[0]);
        }
        assert!(seen.len() > 200, "{}", seen.len());
    }

    #[test]
    fn the_nearest_name_is_found() {
        for (name, expected) in [
            ("xrd.prot", Some("xrd.port")),
            ("all.exprot", Some("all.export")),
            ("xrootd.checksum", Some("xrootd.chksum")),
            ("oss.lcoalroot", Some("oss.localroot")),
            ("zzz.qqqqqq", None),
            ("", None),
        ] {
            assert_eq!(nearest_directive(name), expected, "{name}");
        }
    }
}
