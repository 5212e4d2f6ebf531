//! The refusals that `vectors/security/requirements.json` requires of a server, each by its id.
//!
//! A case with bytes is sent to a session with the protocols host, unix, sss and ztn, with the keys of the
//! vectors; `auth::krb5::recorded` and `auth::gsi::recorded` have theirs. Credentials of a protocol that is
//! not in force are refused like those of an unknown one, and a configuration that asks for such a protocol
//! does not start.
//! Cases in words are listed with the test that shows them.

#![allow(clippy::unwrap_used)]

mod support;

use auth::sss::{Keytab, SssServer, SssServerSettings};
use auth::unix::UnixServer;
use auth::ztn::{ZtnServer, ZtnServerSettings};
use auth::{Entity, ServerProtocol, SystemRng};
use base::Clock;
use config::{AuthBinding, TlsRequirements};
use serde_json::Value;
use session::{DriverTask, LoginPolicy, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::logins::binding;
use support::*;

/// Tests that show the cases without bytes, as ranges of ids. The names are those of
/// `docs/conformance.md`.
const SHOWN_ELSEWHERE: [(&str, &str, &str); 29] = [
    ("S006", "S007", "every_prefix_and_changed_byte_of_credentials_is_refused"),
    ("S008", "S009", "authentication::requests_before_authentication_are_refused"),
    ("S010", "S010", "authentication::sessions_are_ended_and_joined_only_after_authentication"),
    ("S011", "S011", "authentication::refusals_are_delayed_and_limited"),
    ("S012", "S012", "xroot::logins::a_client_that_does_not_authenticate_is_closed"),
    ("S013", "S013", "authentication::another_protocol_drops_the_exchange_and_counts_as_an_attempt"),
    ("S014", "S014", "config::security::faults_have_a_position"),
    ("S046", "S048", "auth::sss"),
    ("S049", "S054", "auth::krb5::recorded"),
    ("S055", "S055", "checks/interop/test_krb5.py::test_ticket_for_another_address"),
    ("S056", "S058", "auth::krb5::recorded"),
    // Protocols that are not in force: a configuration that asks for one does not start.
    ("S064", "S064", "auth::sut::tests::fields_are_limited"),
    ("S070", "S075", "auth::grid::tests"),
    ("S076", "S084", "auth::gsi::recorded"),
    ("S085", "S085", "auth::gsi::recorded::delegation::proxies_that_were_not_requested_are_refused"),
    ("S086", "S086", "auth::gsi::recorded::certificates_are_those_that_the_client_announced"),
    ("S087", "S092", CLIENT),
    ("S101", "S104", "auth::tokens::tests::logins::tokens_that_must_be_refused_do_not_log_in"),
    ("S105", "S105", "auth::ztn::server::tests::malformed_credentials_are_refused"),
    ("S106", "S106", "token_authorization::the_token_of_the_login_counts_until_it_expires"),
    ("S107", "S108", CLIENT),
    ("S109", "S120", "signing"),
    ("S121", "S126", "tls"),
    ("S127", "S131", CLIENT),
    ("S132", "S138", "auth::access"),
    ("S139", "S144", "auth::tokens, token_authorization"),
    ("S145", "S145", "auth::macaroons::tests::the_cases_have_the_computed_answers"),
    ("S146", "S146", NOT_IN_FORCE),
    ("S147", "S147", "checks/interop/test_secrets.py"),
];

/// The part that a case concerns is not in force, and directives that ask for it stop the start:
/// `config::directives::guards_are_in_the_tables`.
const NOT_IN_FORCE: &str = "not in force";

/// The case concerns a client.
const CLIENT: &str = "client";

fn vectors(name: &str) -> Value {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security").join(name);
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// A clock that shows the begin of all time, because the packets of the vectors are old.
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn today(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// Returns the protocols that are in force, with the keys of the vectors.
fn protocols(forwarded: &[&str]) -> Vec<Arc<dyn ServerProtocol>> {
    let lines: Vec<String> = vectors("sss.json")["keys"]["keytab_lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| text(key, "line").to_owned())
        .collect();
    let keys = Keytab::parse(lines.join("\n").as_bytes()).unwrap();
    let mut settings = SssServerSettings::new("/nowhere".into());
    settings.forwarded_protocols = forwarded.iter().map(|id| (*id).to_owned()).collect();
    let sss = SssServer::with_keys(settings, keys, None, Box::new(SystemRng), Arc::new(StoppedClock));
    // Tokens with valid credentials are not among the cases with bytes.
    let ztn = ZtnServer::new(ZtnServerSettings::default(), None);
    vec![Arc::new(UnixServer), Arc::new(sss), Arc::new(ztn)]
}

fn settings(forwarded: &[&str], bindings: Vec<AuthBinding>) -> Settings {
    let order = ["unix", "sss", "ztn"];
    let policy = LoginPolicy::new(protocols(forwarded), &order, bindings, false, "h.example.org");
    let tls = Some(TlsRequirements::default());
    Settings { login: Some(Arc::new(policy.unwrap())), tls, ..Settings::default() }
}

/// Returns a session after a login over an encrypted connection.
fn unauthenticated_over_tls(settings: Settings) -> Bench {
    let mut bench = Bench::greeted(settings);
    // The client wants TLS before its login.
    let todo = bench.ask(&Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 0x0f).u8(9, 3));
    assert!(matches!(todo, DriverTask::StartTls));
    bench.reply();
    let offers = bench.reply_to(&login(5)).body.split_off(16);
    assert!(offers.ends_with(b"&P=ztn,0:4096:"), "{offers:?}");
    bench
}

/// The result of one request.
enum Outcome {
    Refused(u16),
    Authenticated(Entity),
}

/// Sends one kXR_auth at a time of the clock.
fn send(bench: &mut Bench, request: &[u8], clock: u64) -> Outcome {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(clock);
    let mut todo = bench.feed(request);
    if let DriverTask::Authenticate(task) = todo {
        todo = bench.session.authenticated(task.run(now), &mut bench.out);
    }
    assert!(matches!(todo, DriverTask::Nothing | DriverTask::LoginRefused { .. }), "{}", name(&todo));
    let reply = bench.reply();
    if reply.status == OK {
        return Outcome::Authenticated(bench.session.caller().entity().cloned().unwrap());
    }
    assert!(bench.session.is_authenticating() && bench.session.caller().entity().is_none());
    let (code, text) = reply.error();
    assert!(!text.contains("ztn security protocol is not supported"), "{text}");
    Outcome::Refused(code)
}

fn ids(first: &str, last: &str) -> impl Iterator<Item = String> {
    let number = |id: &str| id[1..].parse::<u32>().unwrap();
    (number(first)..=number(last)).map(|number| format!("S{number:03}"))
}

#[test]
fn every_case_with_bytes_is_refused_or_has_its_identity() {
    let cases = vectors("requirements.json")["cases"].as_array().unwrap().clone();
    let mut sent = 0;
    for case in cases.iter().filter(|case| case.get("send_hex").is_some()) {
        let id = text(case, "id");
        let forwarded: &[&str] =
            if case["config"][0] == "-p gsi:krb5:unix" { &["gsi", "krb5", "unix"] } else { &[] };
        let bindings = match id {
            "S005" => vec![binding("*", true, &["sss"])],
            _ => Vec::new(),
        };
        let settings = settings(forwarded, bindings);
        let clock = case["clock"].as_u64().unwrap_or(1_795_187_117);
        let request = unhex(text(case, "send_hex"));
        if id == "S029" {
            let first = send(&mut Bench::unauthenticated(settings.clone()), &request, clock);
            assert!(matches!(first, Outcome::Authenticated(_)), "{id}: first presentation");
        }
        let mut bench = match text(case, "layer") {
            "tls" => unauthenticated_over_tls(settings),
            _ => Bench::unauthenticated(settings),
        };
        let outcome = send(&mut bench, &request, clock);
        check(id, case, &outcome);
        sent += 1;
    }
    assert!(sent >= 54, "{sent}");
}

/// Compares the outcome of a case with its expectation.
fn check(id: &str, case: &Value, outcome: &Outcome) {
    match (case["expect"]["error"].as_u64(), outcome) {
        (Some(error), Outcome::Refused(code)) => assert_eq!(u64::from(*code), error, "{id}"),
        (Some(_), Outcome::Authenticated(entity)) => panic!("{id}: authenticated as {entity:?}"),
        // These two may also be refused.
        (None, Outcome::Refused(3030)) if matches!(id, "S038" | "S039") => {}
        (None, Outcome::Refused(code)) => panic!("{id}: refused with {code}"),
        (None, Outcome::Authenticated(entity)) => check_identity(id, entity),
    }
}

/// Compares an identity with the words of the case.
fn check_identity(id: &str, entity: &Entity) {
    assert_eq!(&*entity.protocol, "sss", "{id}");
    let name = entity.name.as_deref().unwrap_or_default();
    let groups = entity.groups.as_deref().unwrap_or_default();
    match id {
        "S040" => assert_eq!(name, "alice", "{id}"),
        "S041" => assert_eq!((name, groups), ("alice", "staff"), "{id}"),
        "S042" => {
            assert_eq!((name, groups), ("alice", "staff"), "{id}");
            let rest = [&entity.vorg, &entity.role, &entity.endorsements, &entity.capabilities];
            assert!(rest.iter().all(|field| field.is_none()) && entity.attributes.is_empty(), "{id}");
        }
        "S043" => {
            assert_eq!(name, "bob", "{id}");
            assert!(entity.attributes.iter().all(|(key, _)| !auth::is_reserved_attribute(key)), "{id}");
        }
        "S044" => assert_eq!((entity.uid, entity.gid), (None, None), "{id}"),
        "S038" | "S039" => {}
        _ => panic!("{id}: authenticated as {entity:?}"),
    }
}

#[test]
fn every_case_is_sent_or_listed() {
    let cases = vectors("requirements.json")["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 147);
    let mut listed = BTreeMap::new();
    for (first, last, shown) in SHOWN_ELSEWHERE {
        listed.extend(ids(first, last).map(|id| (id, shown)));
    }
    let all: BTreeSet<_> = cases.iter().map(|case| text(case, "id").to_owned()).collect();
    let sent: BTreeSet<_> =
        cases.iter().filter(|c| c.get("send_hex").is_some()).map(|c| text(c, "id").to_owned()).collect();
    for case in &cases {
        let id = text(case, "id");
        assert!(sent.contains(id) || listed.contains_key(id), "{id}: {}", text(case, "given"));
        if listed.get(id) == Some(&CLIENT) {
            assert!(text(case, "area").ends_with("client"), "{id}");
        }
    }
    assert!(listed.keys().all(|id| all.contains(id)));
}

/// Returns the first credentials of each protocol in the recorded exchanges.
fn recorded_credentials() -> Vec<(&'static str, Vec<u8>)> {
    let mut found = Vec::new();
    for (id, file) in [("unix", "unix.json"), ("sss", "sss.json")] {
        for connection in vectors(file)["connections"].as_array().unwrap() {
            let frames = connection["frames"].as_array().unwrap();
            let is_auth = |frame: &&Value| text(frame, "request") == "kXR_auth";
            found.extend(frames.iter().find(is_auth).map(|frame| (id, unhex(text(frame, "hex")))));
        }
    }
    found
}

/// Returns a request with this payload, with the length field set to its size.
fn with_payload(request: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = i32::try_from(payload.len()).unwrap().to_be_bytes();
    [&request[..20], &length, payload].concat()
}

#[test]
fn every_prefix_and_changed_byte_of_credentials_is_refused() {
    let recorded = recorded_credentials();
    assert!(recorded.len() > 10);
    let settings = settings(&[], Vec::new());
    let refused = |request: &[u8]| {
        let outcome = send(&mut Bench::unauthenticated(settings.clone()), request, 1_795_187_117);
        matches!(outcome, Outcome::Refused(3030))
    };
    for (id, request) in &recorded {
        let payload = &request[24..];
        for end in 0..payload.len() {
            // A name in unix credentials may be shorter, but its NUL is required.
            assert!(refused(&with_payload(request, &payload[..end])), "{id} cut at {end}");
        }
        let fixed = if *id == "unix" { "unix\0".len() } else { 16 };
        for at in 0..fixed {
            for bit in 0..8 {
                let mut changed = payload.to_vec();
                changed[at] ^= 1 << bit;
                let case = with_payload(request, &changed);
                // Bytes 4 and 5 of the header of sss are reserved.
                let reserved = *id == "sss" && (4..6).contains(&at);
                assert!(reserved || refused(&case), "{id}: bit {bit} of byte {at}");
            }
        }
    }
}
