//! kXR_auth: logins that ask for authentication, what passes before it, refusals, and bindings of
//! protocols to hosts.

#![allow(clippy::unwrap_used)]

mod support;

use auth::ServerProtocol;
use config::AuthBinding;
use session::{
    BearerLogin, CREDENTIAL_BYTES_MAX, DriverTask, LOGIN_ATTEMPTS_MAX, LoginPolicy,
    PENDING_LOGINS_PER_HOST_MAX, Settings, TakeResult,
};
use std::sync::Arc;
use support::logins::*;
use support::*;

fn refusal(reply: &Reply) -> u16 {
    reply.error().0
}

#[test]
fn a_client_authenticates_and_is_served() {
    let mut bench = Bench::greeted(guarded(&["sss", "unix"], Vec::new()));
    let reply = bench.reply_to(&login(5));
    assert_eq!(reply.body[16..], *b"&P=sss,0.+013:/k&P=unix");
    assert!(!bench.session.is_active() && bench.session.caller().entity().is_none());
    let reply = bench.authenticates(&auth_request("unix", "d").stream(9));
    assert_eq!((reply.stream, reply.status, reply.body.len()), (9, OK, 0));
    let caller = bench.session.caller();
    assert!(caller.entity().is_some() && caller.accepts_deferred_reply);
    assert_eq!((caller.identity.user(), caller.identity.pid), ("tester", 4711));
    bench.operation(&by_path(STAT, "/data/f"));
}

#[test]
fn a_host_that_needs_no_authentication_is_served_at_once() {
    for settings in [
        guarded(&["unix"], vec![binding("*", false, &[])]),
        guarded(&["unix"], vec![binding("*", false, &["host"])]),
        guarded(&["unix", "host"], Vec::new()),
    ] {
        let mut bench = Bench::with(settings, 5);
        let entity = bench.session.caller().entity().cloned().unwrap();
        assert_eq!((&*entity.protocol, &*entity.host, &entity.name), ("host", "[::ffff:192.0.2.1]", &None));
        bench.operation(&by_path(STAT, "/data/f"));
    }
}

#[test]
fn credentials_of_a_host_are_accepted_only_where_host_is_bound() {
    let host = auth_request("host", "");
    let mut bound = Bench::with(guarded(&["unix"], vec![binding("*", false, &["host"])]), 5);
    assert_eq!(bound.reply_to(&host).status, OK);
    assert_eq!(bound.refused(&auth_request("host", "x")), (3006, "Invalid request code".to_owned()));
    assert_eq!(bound.refused(&auth_request("unix", "d")).0, 3006);
    let mut free = Bench::with(guarded(&["unix"], vec![binding("*", false, &[])]), 5);
    assert_eq!(free.refused(&host).0, 3006);
    let mut other = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    assert_eq!(refusal(&other.authenticates(&host)), 3030);
    assert!(!other.session.is_active());
}

#[test]
fn an_exchange_can_take_several_rounds() {
    let mut bench = Bench::unauthenticated(guarded(&["gsi"], Vec::new()));
    let reply = bench.authenticates(&auth_request("gsi", "c"));
    assert_eq!((reply.status, reply.text().as_str()), (AUTHMORE, "challenge 1"));
    assert!(bench.session.is_authenticating());
    assert_eq!(bench.authenticates(&auth_request("gsi", "r")).status, OK);
    assert!(bench.session.is_active());
}

#[test]
fn another_protocol_drops_the_exchange_and_counts_as_an_attempt() {
    let mut bench = Bench::unauthenticated(guarded(&["gsi", "unix"], Vec::new()));
    bench.authenticates(&auth_request("gsi", "c"));
    assert_eq!(refusal(&bench.authenticates(&auth_request("unix", "x"))), 3030);
    // The second round of gsi is the first one of a new exchange.
    let todo = bench.ask(&auth_request("gsi", "r"));
    assert_eq!(bench.finish_step(todo), [1], "the third failure");
    assert_eq!(refusal(&bench.reply()), 3030);
    assert!(!bench.session.is_active());
}

#[test]
fn an_exchange_without_a_challenge_is_refused() {
    let mut bench = Bench::unauthenticated(guarded(&["gsi"], Vec::new()));
    assert_eq!(refusal(&bench.authenticates(&auth_request("gsi", "e"))), 3030);
}

#[test]
fn malformed_credentials_reach_no_protocol() {
    let raw = |kind: &[u8; 4], payload: &[u8]| Raw::new(AUTH).at(16, kind).payload(payload);
    for request in [
        raw(b"unix", b""),
        raw(b"unix", b"unix"),
        raw(b"unix", b"unixunixunix"),
        raw(b"krb5", b"unix\0d"),
        raw(b"\0\0\0\0", b"\0d"),
        raw(b"abcd", b"abcd\0x"),
        raw(b"unix", b"unixx\0d"),
        raw(b"uni\0", b"unix\0d"),
    ] {
        let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
        let todo = bench.ask(&request);
        assert!(matches!(todo, DriverTask::LoginRefused { .. }), "{} for {request:?}", name(&todo));
        assert_eq!(refusal(&bench.reply()), 3030, "{request:?}");
        assert!(bench.session.is_authenticating());
        assert_eq!(bench.authenticates(&auth_request("unix", "d")).status, OK, "after {request:?}");
    }
}

#[test]
fn the_reason_of_a_refusal_is_not_sent() {
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let (code, text) = bench.authenticates(&auth_request("unix", "x")).error();
    assert_eq!(code, 3030);
    assert!(!text.contains("a reason for the log"), "{text}");
}

#[test]
fn only_bound_protocols_are_accepted() {
    let bindings = vec![binding("*", false, &["sss"])];
    let mut bench = Bench::unauthenticated(guarded(&["unix", "sss"], bindings));
    let (code, text) = bench.authenticates(&auth_request("unix", "d")).error();
    assert_eq!(
        (code, text.as_str()),
        (3030, "[::ffff:192.0.2.1] not allowed to authenticate using unix protocol.")
    );
    assert_eq!(bench.authenticates(&auth_request("sss", "d")).status, OK);
}

#[test]
fn a_protocol_that_needs_tls_is_neither_offered_nor_accepted_without() {
    let policy = |ids: &[&str]| {
        let ztn: Arc<dyn ServerProtocol> =
            Arc::new(FakeProtocol { id: "ztn", tls: true, expensive: false, keyed: false });
        let protocols = vec![ztn, FakeProtocol::named("unix")];
        let policy = LoginPolicy::new(protocols, ids, Vec::new(), false, "h").unwrap();
        Settings { login: Some(Arc::new(policy)), ..Settings::default() }
    };
    let mut bench = Bench::greeted(policy(&["ztn", "unix"]));
    assert_eq!(bench.reply_to(&login(5)).body[16..], *b"&P=unix");
    let (code, text) = bench.authenticates(&auth_request("ztn", "d")).error();
    assert_eq!((code, text.as_str()), (3030, "security protocol 'ztn' disallowed for non-TLS connections."));
    // An empty list of protocols would mean that no authentication is needed.
    let mut bench = Bench::greeted(policy(&["ztn"]));
    assert_eq!(bench.ended_by(&login(5)).0, 3028);
}

#[test]
fn a_protocol_can_be_limited_to_tls() {
    let settings = |ids: &[&'static str], limited: &[&str]| {
        let protocols = ids.iter().map(|id| FakeProtocol::named(id)).collect();
        let mut policy = LoginPolicy::new(protocols, ids, Vec::new(), false, "h").unwrap();
        policy.limit_to_tls(limited.iter().copied()).unwrap();
        assert!(policy.has_tls_protocols());
        let everything = config::TlsOperations::default();
        let tls = Some(config::TlsRequirements { all: everything, capable: everything });
        Settings { login: Some(Arc::new(policy)), tls, ..Settings::default() }
    };
    let mut clear = Bench::greeted(settings(&["sss", "unix"], &["unix"]));
    assert_eq!(clear.reply_to(&login(5)).body[16..], *b"&P=sss,0.+013:/k");
    let refused = clear.authenticates(&auth_request("unix", "d")).error();
    assert_eq!(refused, (3030, "security protocol 'unix' disallowed for non-TLS connections.".to_owned()));
    assert!(!clear.session.is_active());
    assert_eq!(clear.authenticates(&auth_request("sss", "d")).status, OK, "the others stay usable");
    // A list without `only` that is an offer does not lift the limit.
    let mut offers = LoginPolicy::new(
        vec![FakeProtocol::named("sss"), FakeProtocol::named("unix")],
        &["sss"],
        vec![binding("*.org", false, &["unix"])],
        true,
        "h",
    )
    .unwrap();
    offers.limit_to_tls(["unix"]).unwrap();
    let mut clear = Bench::greeted(Settings { login: Some(Arc::new(offers)), ..Settings::default() });
    clear.session.set_peer_host(auth::HostName::Unknown);
    clear.reply_to(&login(5));
    assert_eq!(refusal(&clear.authenticates(&auth_request("unix", "d"))), 3030);
    // With nothing left, the login is refused instead of needing no authentication.
    let mut none = Bench::greeted(settings(&["unix"], &["unix"]));
    assert_eq!(none.ended_by(&login(5)).0, 3028);
    let mut encrypted = Bench::greeted(settings(&["sss", "unix"], &["unix"]));
    let wants_tls = Raw::new(PROTOCOL).i32(4, 0x520).u8(8, 0x0f).u8(9, 3);
    assert!(matches!(encrypted.feed(&wants_tls.bytes()), DriverTask::StartTls));
    encrypted.bytes_on(0);
    assert_eq!(encrypted.reply_to(&login(5)).body[16..], *b"&P=sss,0.+013:/k&P=unix");
    assert_eq!(encrypted.authenticates(&auth_request("unix", "d")).status, OK);
    let mut policy = LoginPolicy::new(Vec::new(), &[], Vec::new(), false, "h").unwrap();
    assert!(policy.limit_to_tls(["unix"]).is_err());
}

#[test]
fn refusals_are_delayed_and_limited() {
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let mut delays = Vec::new();
    for _ in 0..LOGIN_ATTEMPTS_MAX {
        let todo = bench.ask(&auth_request("unix", "x"));
        delays.extend(bench.finish_step(todo));
        assert_eq!(refusal(&bench.reply()), 3030);
        assert!(bench.session.has_room());
    }
    assert_eq!(delays, [0, 0, 1, 2, 3, 4, 5, 5, 5, 5]);
    let todo = bench.ask(&auth_request("unix", "x"));
    assert_eq!(bench.finish_step(todo), [0]);
    assert_eq!(refusal(&bench.reply()), 3030);
    assert!(bench.session.is_ending());
}

#[test]
fn requests_before_authentication_are_refused() {
    for code in (2990..3050).chain([0, u16::MAX]) {
        for argument in [&b""[..], b"/data/f", &[1; 32]] {
            let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
            let request = Raw::new(code).payload(argument);
            let bytes = request.bytes();
            let TakeResult::Took { todo, .. } =
                bench.session.take(&bytes, base::Charge::NONE, &mut bench.out)
            else {
                panic!("{request:?} is not taken")
            };
            match code {
                PROTOCOL | PING => {
                    assert!(matches!(todo, DriverTask::Nothing), "{request:?}");
                    assert_eq!(bench.reply().status, OK);
                }
                AUTH => assert!(matches!(todo, DriverTask::LoginRefused { .. })),
                // Of the own session, or of none.
                ENDSESS => assert!(matches!(todo, DriverTask::Nothing)),
                READ | READV | PGREAD | WRITE | WRITEV | PGWRITE | CLOSE | SYNC | CHKPOINT | CLONE => {
                    assert!(matches!(todo, DriverTask::Nothing), "{} for {request:?}", name(&todo));
                    assert_eq!(refusal(&bench.reply()), 3004, "{request:?}");
                    assert_eq!(bench.authenticates(&auth_request("unix", "d")).status, OK);
                }
                _ => {
                    assert!(matches!(todo, DriverTask::Close), "{} for {request:?}", name(&todo));
                    let text = "Invalid request; user not authenticated".to_owned();
                    assert_eq!(bench.reply().error(), (3006, text), "{request:?}");
                }
            }
        }
    }
}

#[test]
fn sessions_are_ended_and_joined_only_after_authentication() {
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    assert_eq!(bench.session.bind(address(), false).unwrap_err().text, "session not logged in");
    assert_eq!(bench.ended_by(&Raw::new(ENDSESS).at(4, b"another session.")).0, 3006);
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    assert!(matches!(bench.ask(&Raw::new(ENDSESS).at(4, &OWN_ID)), DriverTask::Close));
    let mut bench = Bench::authenticated(guarded(&["unix"], Vec::new()), "unix");
    assert!(bench.session.bind(address(), false).is_ok());
    // Authentication is over.
    for id in ["unix", "sss", "host"] {
        assert_eq!(bench.refused(&auth_request(id, "d")), (3006, "Invalid request code".to_owned()));
    }
    assert!(bench.session.is_active());
}

#[test]
fn large_data_before_authentication_ends_the_session() {
    for code in [WRITE, PGWRITE, WRITEV, READV] {
        let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
        assert_eq!(bench.ended_by(&Raw::new(code).dlen(i32::MAX)).0, 3002, "{code}");
    }
    let most = "d".repeat(CREDENTIAL_BYTES_MAX - "unix\0".len());
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    assert_eq!(bench.authenticates(&auth_request("unix", &most)).status, OK);
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let over = i32::try_from(CREDENTIAL_BYTES_MAX + 1).unwrap();
    assert_eq!(bench.ended_by(&Raw::new(AUTH).at(16, b"unix").dlen(over)).0, 3002);
}

#[test]
fn a_client_without_a_session_id_cannot_authenticate() {
    let mut bench = Bench::greeted(guarded(&["unix"], Vec::new()));
    assert_eq!(bench.ended_by(&login(0)).0, 3030);
}

#[test]
fn clients_of_one_host_that_are_not_authenticated_have_a_limit() {
    let settings = guarded(&["unix"], Vec::new());
    let mut benches: Vec<_> =
        (0..PENDING_LOGINS_PER_HOST_MAX).map(|_| Bench::unauthenticated(settings.clone())).collect();
    let mut more = Bench::greeted(settings.clone());
    assert_eq!(more.ended_by(&login(5)).0, 3024);
    // Success and end both make room.
    assert_eq!(benches[0].authenticates(&auth_request("unix", "d")).status, OK);
    benches.push(Bench::unauthenticated(settings.clone()));
    benches[1].session.end();
    benches.push(Bench::unauthenticated(settings.clone()));
    drop(benches);
    assert_eq!(settings.pending_logins.count(), 0);
}

#[test]
fn an_expensive_step_is_marked_for_the_driver() {
    let slow: Arc<dyn ServerProtocol> =
        Arc::new(FakeProtocol { id: "gsi", tls: false, expensive: true, keyed: false });
    let policy = LoginPolicy::new(vec![slow], &["gsi"], Vec::new(), false, "h").unwrap();
    let mut bench = Bench::unauthenticated(Settings { login: Some(Arc::new(policy)), ..Settings::default() });
    let DriverTask::Authenticate(task) = bench.ask(&auth_request("gsi", "d")) else { panic!() };
    assert!(task.is_expensive() && !bench.session.has_room());
    let todo = bench.session.refuse_step("no thread", &mut bench.out);
    bench.finish_step(todo);
    assert_eq!(refusal(&bench.reply()), 3030);
    assert!(bench.session.has_room() && bench.session.is_authenticating());
}

#[test]
fn a_step_that_waits_for_others_is_repeated_with_the_same_credentials() {
    let now = std::time::SystemTime::UNIX_EPOCH;
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let DriverTask::Authenticate(task) = bench.ask(&auth_request("unix", "w")) else { panic!() };
    let task = task.run(now).into_later().unwrap();
    assert!(!bench.session.has_room() && bench.out_is_empty());
    let result = task.run(now).into_later().unwrap_err();
    assert!(matches!(bench.session.authenticated(result, &mut bench.out), DriverTask::Nothing));
    assert!(bench.reply().status == OK && bench.session.is_active());
    // A driver that cannot wait refuses.
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let DriverTask::Authenticate(task) = bench.ask(&auth_request("unix", "w")) else { panic!() };
    let todo = bench.session.authenticated(task.run(now), &mut bench.out);
    bench.finish_step(todo);
    assert_eq!(refusal(&bench.reply()), 3030);
    assert!(bench.session.has_room() && bench.session.is_authenticating());
}

#[test]
fn the_result_of_a_step_after_the_end_is_dropped() {
    let mut bench = Bench::unauthenticated(guarded(&["unix"], Vec::new()));
    let DriverTask::Authenticate(task) = bench.ask(&auth_request("unix", "d")) else { panic!() };
    bench.session.end();
    let todo = bench.session.authenticated(task.run(std::time::SystemTime::UNIX_EPOCH), &mut bench.out);
    assert!(matches!(todo, DriverTask::Nothing) && bench.out_is_empty());
    assert!(bench.session.is_finished() && bench.session.caller().entity().is_none());
}

/// Returns the offer to a host, and the protocols that it may use.
fn offer(policy: &Arc<LoginPolicy>, host: &str) -> (String, Vec<&'static str>) {
    let settings = Settings { login: Some(policy.clone()), ..Settings::default() };
    let mut bench = Bench::greeted(settings);
    bench.session.set_peer_host(auth::HostName::Known(host.into()));
    let reply = bench.reply_to(&login(5));
    let token = String::from_utf8(reply.body[16..].to_vec()).unwrap();
    let mut usable = Vec::new();
    for id in policy.protocols().iter().map(|protocol| protocol.id()).chain(["host"]) {
        let accepted = if bench.session.is_active() {
            id == "host" && bench.reply_to(&auth_request("host", "")).status == OK
        } else {
            let mut own = Bench::greeted(Settings { login: Some(policy.clone()), ..Settings::default() });
            own.session.set_peer_host(auth::HostName::Known(host.into()));
            own.reply_to(&login(5));
            own.authenticates(&auth_request(id, "d")).status == OK
        };
        usable.extend(accepted.then_some(id));
    }
    (token, usable)
}

/// Creates the policy of configuration lines.
fn policy_of(lines: &[&str]) -> Arc<LoginPolicy> {
    let text = format!("xrootd.seclib default\n{}\n", lines.join("\n").replace(" -s KT", " -s /k"));
    let request = config::ConfigInput { file: Some("f".to_owned()), ..config::ConfigInput::default() };
    let loaded = config::load(&request, &config::MemorySource::new().with("f", &text));
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let security = loaded.effective.security;
    let order: Vec<&'static str> = security.protocols.iter().map(|protocol| protocol.id()).collect();
    let mut ids = order.clone();
    ids.retain(|id| *id != "host");
    ids.sort_unstable();
    ids.dedup();
    let protocols = ids.into_iter().map(FakeProtocol::named).collect();
    let bindings: Vec<AuthBinding> = security.bindings.into_iter().map(|binding| binding.value).collect();
    let offers = *security.binding_offers;
    Arc::new(LoginPolicy::new(protocols, &order, bindings, offers, "own.example.net").unwrap())
}

/// Describes the login of a client that can only send a token, without and with encryption.
fn bearer(policy: &LoginPolicy, host: &str) -> [&'static str; 2] {
    [false, true].map(|is_tls| match policy.bearer_login(host, is_tls) {
        BearerLogin::NotNeeded => "not needed",
        BearerLogin::Token(protocol) => protocol.id(),
        BearerLogin::NeedsTls => "needs TLS",
        BearerLogin::Impossible => "impossible",
    })
}

#[test]
fn clients_with_nothing_but_a_token_log_in_by_ztn_or_not_at_all() {
    let protocols = || ["ztn", "unix"].map(FakeProtocol::named).to_vec();
    let policy = |order: &[&str]| LoginPolicy::new(protocols(), order, Vec::new(), false, "h").unwrap();
    assert_eq!(bearer(&policy(&[]), "c"), ["not needed"; 2]);
    assert_eq!(bearer(&policy(&["host"]), "c"), ["not needed"; 2]);
    assert_eq!(bearer(&policy(&["unix"]), "c"), ["impossible"; 2]);
    assert_eq!(bearer(&policy(&["unix", "ztn"]), "c"), ["ztn"; 2], "this ztn needs no TLS itself");
    let mut limited = policy(&["ztn"]);
    limited.limit_to_tls(["ztn"]).unwrap();
    assert_eq!(bearer(&limited, "c"), ["needs TLS", "ztn"]);
    // The binding of a host decides.
    let bound = policy_of(&["sec.protocol unix", "sec.protbind farm* none", "sec.protbind safe* only unix"]);
    assert_eq!(bearer(&bound, "farm1"), ["not needed"; 2]);
    assert_eq!(bearer(&bound, "safe1"), ["impossible"; 2]);
    assert_eq!(bearer(&bound, "other"), ["impossible"; 2]);
}

#[test]
fn the_bindings_of_the_vectors() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security/names.json");
    let vectors: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let strings = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let cases = vectors["protbind"].as_array().unwrap();
    assert!(cases.len() >= 8);
    for case in cases {
        let lines = strings(&case["config"]);
        let policy = policy_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let (token, mut usable) = offer(&policy, case["peer"].as_str().unwrap());
        let token = token.replace("0.+013:/k", "<sss parms>");
        assert_eq!(token, case["token"].as_str().unwrap(), "{case}");
        usable.sort_unstable();
        let mut expected = strings(&case["may_use"]);
        expected.sort_unstable();
        assert_eq!(usable, expected, "{case}");
    }
}

#[test]
fn lists_can_be_offers() {
    let lines = ["sec.protocol unix", "sec.protocol sss", "sec.bindmode offer"];
    let bound = |binding: &str| offer(&policy_of(&[&lines[..], &[binding]].concat()), "a.example.org");
    let (token, usable) = bound("sec.protbind * unix");
    assert_eq!((token.as_str(), usable), ("&P=unix", vec!["sss", "unix"]));
    let (token, usable) = bound("sec.protbind * only unix");
    assert_eq!((token.as_str(), usable), ("&P=unix", vec!["unix"]));
    let (token, usable) = bound("sec.protbind *.example.net host");
    assert_eq!((token.as_str(), usable), ("&P=unix&P=sss,0.+013:/k", vec!["sss", "unix"]));
    let (token, usable) = bound("sec.protbind *.example.org host");
    assert_eq!((token.as_str(), usable), ("", vec!["host"]));
}

#[test]
fn patterns_ignore_case_and_know_the_own_host() {
    let policy = policy_of(&[
        "sec.protocol unix",
        "sec.protocol sss",
        "sec.protbind LocalHost unix",
        "sec.protbind node*.Example.ORG sss",
        "sec.protbind * none",
    ]);
    assert_eq!(offer(&policy, "OWN.example.net").0, "&P=unix");
    assert_eq!(offer(&policy, "Node7.example.org").0, "&P=sss,0.+013:/k");
    assert_eq!(offer(&policy, "localhost").0, "&P=unix");
    assert_eq!(offer(&policy, "other.example.net").0, "");
}

#[test]
fn the_name_of_a_host_is_requested_only_where_it_decides() {
    let asks = |settings: Settings, request: &Raw| {
        let bench = Bench::greeted(settings);
        bench.session.needs_peer_host(&bench.session.front(&request.bytes()).unwrap())
    };
    let protocol = Raw::new(PROTOCOL);
    let by_name = || guarded(&["unix"], vec![binding("*.org", false, &[])]);
    assert!(asks(by_name(), &login(5)));
    assert!(!asks(by_name(), &protocol) && !asks(by_name(), &Raw::new(BIND)));
    assert!(!asks(guarded(&["unix"], vec![binding("*", false, &["unix"])]), &login(5)));
    assert!(!asks(Settings::default(), &login(5)));
    let mut bench = Bench::greeted(by_name());
    bench.session.set_peer_host(auth::HostName::Unknown);
    assert!(!bench.session.needs_peer_host(&bench.session.front(&login(5).bytes()).unwrap()));
}

#[test]
fn rules_by_host_await_its_name() {
    let with_rules = |needs: bool| Settings {
        host_rules: Some(session::HostRules(Arc::new(move || needs))),
        selects_by_address: true,
        ..Settings::default()
    };
    for needs in [true, false] {
        let bench = Bench::greeted(with_rules(needs));
        assert_eq!(bench.session.needs_peer_host(&bench.session.front(&login(5).bytes()).unwrap()), needs);
    }
    let mut bench = Bench::greeted(with_rules(true));
    bench.session.set_peer_host(auth::HostName::Known("h1.example.org".into()));
    assert_eq!(bench.reply_to(&login(5)).status, OK);
    let entity = bench.session.caller().entity().unwrap();
    assert_eq!(entity.host_name.known().map(|name| &**name), Some("h1.example.org"));
    assert_eq!(&*entity.address, "[::ffff:192.0.2.1]");
}

#[test]
fn a_failed_look_up_does_not_select_the_binding_of_the_address() {
    let lines = ["sec.protocol unix", "sec.protbind *.example.org unix", "sec.protbind * none"];
    let settings = Settings { login: Some(policy_of(&lines)), ..Settings::default() };
    let mut bench = Bench::greeted(settings);
    bench.session.set_peer_host(auth::HostName::Failed);
    assert_eq!(bench.ended_by(&login(5)).0, 3024);
}

#[test]
fn a_list_of_protocols_that_cannot_be_sent_is_an_error() {
    struct Long;
    impl ServerProtocol for Long {
        fn id(&self) -> &'static str {
            "long"
        }
        fn parameters(&self) -> String {
            "x".repeat(4096)
        }
        fn credential_bytes_min(&self) -> usize {
            5
        }
        fn begin(&self, _: &auth::LoginPeer) -> Box<dyn auth::ServerLogin> {
            unreachable!("it cannot be offered")
        }
    }
    let error = LoginPolicy::new(vec![Arc::new(Long)], &["long"], Vec::new(), false, "h").unwrap_err();
    assert!(error.text.contains("have 4104 bytes; at most 4096"), "{}", error.text);
    let error = LoginPolicy::new(Vec::new(), &["unix"], Vec::new(), false, "h").unwrap_err();
    assert_eq!(error.text, "no authentication protocol 'unix'");
}
