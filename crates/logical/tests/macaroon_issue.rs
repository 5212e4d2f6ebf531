//! Tests of macaroons that clients get: nobody passes on more than it has itself, nor for longer.

#![allow(clippy::unwrap_used)]

mod support;

use auth::access::{AccessPolicy, AuditedDecisions, AuthdbCheck, Authorizer, CredentialLayer};
use auth::macaroons::{Activity, MacaroonPolicy, MacaroonSecret, MacaroonSettings, MacaroonVerdict};
use auth::tokens::OnMissing;
use base::{ErrorKind, Identity, LogicalPath, LoginNames};
use logical::{AuthorizationRole, AuthorizedFiles};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::issuer::{TestIssuer, login_with, rules};
use support::{Client, Server, reading, target};
use vfs::{Answer, Caller, IssuedMacaroon, MacaroonOrder, Operation, Value};

const DAY: Duration = Duration::from_secs(86_400);

fn site(lifetime_max: Option<Duration>, on_missing: OnMissing) -> Arc<MacaroonPolicy> {
    let (check, site) = (AuthdbCheck::None, "Test-Site".to_owned());
    let settings = MacaroonSettings { secret: "/s".into(), check, site, lifetime_max, on_missing };
    Arc::new(MacaroonPolicy::new(settings, MacaroonSecret::new(&[7; 64])))
}

/// A server with macaroons over tokens over rules, and a client without a name.
struct Site {
    issuer: TestIssuer,
    macaroons: Arc<MacaroonPolicy>,
    server: Server,
    client: Client,
}

impl Site {
    fn with(macaroons: Arc<MacaroonPolicy>, issuer: TestIssuer, rules: Option<Arc<Authorizer>>) -> Self {
        let layers =
            vec![CredentialLayer::Macaroons(macaroons.clone()), CredentialLayer::Tokens(issuer.tokens())];
        let policy = Arc::new(AccessPolicy::new(layers, rules, AuditedDecisions::default()));
        let server = Server::new();
        server.memory.put("/data/sub/f", b"x");
        let role = (AuthorizationRole::Server, false);
        let exports = vec![LogicalPath::parse(b"/data").unwrap()];
        let files = AuthorizedFiles::before(server.logical.clone(), Some(policy), role, exports);
        let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
        let caller = Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false));
        Self { issuer, macaroons, server, client: Client::new(files, caller) }
    }

    fn new(rules_text: &str) -> Self {
        Self::with(site(Some(DAY), OnMissing::PassThrough), TestIssuer::new(), Some(rules(rules_text)))
    }

    /// Asks for a macaroon with a credential.
    fn ask(&self, at: &str, credential: &str, order: &MacaroonOrder) -> Result<IssuedMacaroon, ErrorKind> {
        self.ask_as(None, &format!("{at}?authz={credential}"), order)
    }

    fn ask_as(
        &self,
        caller: Option<&Arc<Caller>>,
        at: &str,
        order: &MacaroonOrder,
    ) -> Result<IssuedMacaroon, ErrorKind> {
        let operation = Operation::IssueMacaroon(target(at), Box::new(order.clone()));
        let call = match caller {
            Some(caller) => self.client.call_as(caller, operation),
            None => self.client.call(operation),
        };
        match call.answer() {
            Answer::Value(Value::Macaroon(issued)) => Ok(*issued),
            Answer::Error(error) => Err(error.kind),
            _ => panic!("another answer"),
        }
    }

    /// Returns the activities that a bearer of a token with this scope, of the group `/g`, can pass on.
    fn passed_on(&self, scope: &str, at: &str) -> String {
        let token = self.issuer.token_in(&["/g"], "alice", scope, 600);
        match self.ask(at, &token, &MacaroonOrder::default()) {
            Ok(issued) => Activity::list(&issued.activities),
            Err(kind) => format!("{kind:?}"),
        }
    }
}

const NOTHING: &str = "NotAuthorized";

#[test]
fn a_bearer_passes_on_what_its_scopes_allow_below_the_path() {
    let site = Site::new("");
    for (scope, at, expected) in [
        ("storage.read:/sub", "/data/sub", "READ_METADATA,DOWNLOAD,LIST"),
        ("storage.read:/", "/data/sub/f", "READ_METADATA,DOWNLOAD,LIST"),
        ("storage.create:/", "/data/sub/", "READ_METADATA,UPLOAD"),
        // It does not include changes of the owner.
        ("storage.modify:/", "/data", "READ_METADATA,UPLOAD,DELETE,MANAGE"),
        ("storage.read:/ storage.create:/sub", "/data", "READ_METADATA,DOWNLOAD,LIST"),
        // Looking at the directories above is no right to all that is in them.
        ("storage.read:/sub", "/data", NOTHING),
        ("storage.read:/sub", "/", NOTHING),
        ("storage.read:/sub", "/data/subx", NOTHING),
        ("storage.stage:/", "/data", NOTHING),
    ] {
        assert_eq!(site.passed_on(scope, at), expected, "{scope} {at}");
    }
}

#[test]
fn rules_below_the_path_that_take_rights_away_count() {
    let site = Site::new(
        "g /g /data/a a /data/b/x/ lr-r /data/b a /data/c/x/ a /data/c lr /data/d lrwid /data/e r /data/f lrwin\n",
    );
    let all = "READ_METADATA,UPLOAD,DOWNLOAD,DELETE,MANAGE,UPDATE_METADATA,LIST";
    for (at, expected) in [
        ("/data/a", all),
        ("/data/a/x/y", all),
        ("/data/b", "READ_METADATA"),
        ("/data/b/x", "READ_METADATA"),
        ("/data/b/y", all),
        // More rights below change nothing.
        ("/data/c", "READ_METADATA,DOWNLOAD,LIST"),
        ("/data/c/x/y", all),
        // Uploads include renames.
        ("/data/d", "READ_METADATA,DOWNLOAD,DELETE,UPDATE_METADATA,LIST"),
        // Every activity includes the status.
        ("/data/e", NOTHING),
        ("/data/f", "READ_METADATA,UPLOAD,DOWNLOAD,LIST"),
        ("/data", NOTHING),
        ("/other", NOTHING),
    ] {
        assert_eq!(site.passed_on("storage.stage:/", at), expected, "{at}");
    }
}

#[test]
fn only_a_valid_token_gets_a_macaroon() {
    let site = Site::new("u * /data a\n");
    let order = MacaroonOrder::default();
    let token = site.issuer.token("storage.read:/");
    let own = site.ask("/data/sub", &token, &order).unwrap();
    let own = String::from_utf8(own.text.expose().to_vec()).unwrap();
    let cut = &own[..own.len() - 1];
    let expired = site.issuer.token_for("storage.read:/", -1);
    for (credential, expected) in [
        ("", ErrorKind::AuthFailed),
        ("abc", ErrorKind::AuthFailed),
        (cut, ErrorKind::AuthFailed),
        (&own, ErrorKind::NotAuthorized),
        (&expired, ErrorKind::NotAuthorized),
    ] {
        assert_eq!(site.ask("/data/sub", credential, &order).unwrap_err(), expected, "{credential}");
    }
    let twice = site.ask("/data/sub", &format!("{token}&authz={token}"), &order);
    assert_eq!(twice.unwrap_err(), ErrorKind::ArgInvalid);
}

#[test]
fn rights_of_everybody_by_onmissing_are_not_passed_on() {
    for on_missing in [OnMissing::PassThrough, OnMissing::Allow, OnMissing::Deny] {
        let rules = rules("g /g /data/sub lr\n");
        let site = Site::with(site(Some(DAY), on_missing), TestIssuer::new(), Some(rules));
        // It is about the use of macaroons only.
        assert_eq!(site.passed_on("storage.stage:/", "/data/sub"), "READ_METADATA,DOWNLOAD,LIST");
        assert_eq!(site.passed_on("storage.stage:/", "/data"), NOTHING, "{on_missing:?}");
    }
}

#[test]
fn rights_of_a_place_are_not_passed_on_to_others() {
    let passed_on = |text: &str| Site::new(text).passed_on("storage.stage:/", "/data/sub");
    let own = "g /g /data/sub lr\n";
    let reads = "READ_METADATA,DOWNLOAD,LIST";
    assert_eq!(passed_on(own), reads);
    for place in ["h h.o", "h [192.0.2.1]", "h .o", "u *"] {
        assert_eq!(passed_on(&format!("{place} /data a\n")), NOTHING, "{place}");
        assert_eq!(passed_on(&format!("{own}{place} /data a\n")), reads, "{place}");
    }
    // A right that one host lacks would be passed on to it.
    for place in ["h h.o", "h other.o", "h .x.o", "h [192.0.2.9]", "u *"] {
        let left = passed_on(&format!("{own}{place} /data -r\n"));
        assert!(!left.contains("DOWNLOAD"), "{place}: {left}");
    }
}

#[test]
fn a_request_narrows_and_never_widens() {
    let site = Site::new("");
    let token = site.issuer.token("storage.read:/");
    let ask = |activities: &[Activity]| {
        let order = MacaroonOrder { activities: Some(activities.to_vec()), validity: None };
        site.ask("/data/sub", &token, &order).map(|issued| Activity::list(&issued.activities))
    };
    assert_eq!(ask(&[Activity::List, Activity::Download]).unwrap(), "DOWNLOAD,LIST");
    assert_eq!(ask(&[Activity::Delete, Activity::Manage, Activity::List]).unwrap(), "LIST");
    for nothing in [&[][..], &[Activity::Delete], &[Activity::Upload, Activity::UpdateMetadata]] {
        assert_eq!(ask(nothing).unwrap_err(), ErrorKind::NotAuthorized, "{nothing:?}");
    }
}

#[test]
fn a_macaroon_ends_no_later_than_the_token_and_the_configuration_allow() {
    let ask = |most, token_seconds, wanted: Option<u64>| {
        let site = Site::with(site(most, OnMissing::PassThrough), TestIssuer::new(), None);
        let token = site.issuer.token_for("storage.read:/", token_seconds);
        let order = MacaroonOrder { activities: None, validity: wanted.map(Duration::from_secs) };
        let issued = site.ask("/data/sub", &token, &order).map(|issued| (issued.validity.as_secs(), issued));
        issued.map(|(seconds, issued)| match site.macaroons.verify(issued.text.expose(), SystemTime::now()) {
            MacaroonVerdict::Valid(verified) => {
                let end = SystemTime::now() + issued.validity;
                assert!(verified.expires() <= end && verified.expires() + Duration::from_secs(60) > end);
                seconds
            }
            other => panic!("{other:?}"),
        })
    };
    let hour = Some(Duration::from_secs(3600));
    assert_eq!(ask(hour, 90_000, Some(60)), Ok(60));
    assert_eq!(ask(hour, 90_000, Some(7200)), Ok(3600));
    assert_eq!(ask(hour, 90_000, None), Ok(3600));
    assert_eq!(ask(hour, 90_000, Some(u64::MAX)), Ok(3600));
    assert_eq!(ask(None, 200_000, None), Ok(86_400));
    assert_eq!(ask(None, 200_000, Some(100_000)), Ok(100_000));
    // The token ends in 600 s.
    for wanted in [None, Some(3600), Some(u64::MAX)] {
        let seconds = ask(None, 600, wanted).unwrap();
        assert!((540..=600).contains(&seconds), "{seconds}");
    }
}

#[test]
fn the_macaroon_gives_its_bearer_these_rights_only() {
    let site = Site::new("u * /data/public a\n");
    let token = site.issuer.token("storage.read:/sub");
    let issued = site.ask("/data/sub/", &token, &MacaroonOrder::default()).unwrap();
    let text = String::from_utf8(issued.text.expose().to_vec()).unwrap();
    let at = |name: &str| format!("{name}?authz={text}");
    site.client.open(&at("/data/sub/f"), reading()).file();
    for denied in ["/data/f", "/data/public/f"] {
        assert_eq!(site.client.open(&at(denied), reading()).error().kind, ErrorKind::NotAuthorized);
    }
    let removed = site.client.call(Operation::Remove(target(&at("/data/sub/f"))));
    assert_eq!(removed.error().kind, ErrorKind::NotAuthorized);
    assert!(site.server.memory.content("/data/sub/f").is_some());
    let MacaroonVerdict::Valid(verified) = site.macaroons.verify(issued.text.expose(), SystemTime::now())
    else {
        panic!("not valid")
    };
    let caveats: Vec<&str> = verified.caveats().collect();
    assert_eq!(caveats[..2], ["activity:READ_METADATA,DOWNLOAD,LIST", "path:/data/sub"]);
    assert!(caveats[2].starts_with("before:") && caveats.len() == 3, "{caveats:?}");
}

#[test]
fn the_name_is_that_of_the_token() {
    let issuer = TestIssuer { settings: "map_subject = true\n", ..TestIssuer::new() };
    let site = Site::with(site(Some(DAY), OnMissing::PassThrough), issuer, None);
    let token = site.issuer.token_of("bob", "storage.read:/", 600);
    let issued = site.ask("/data", &token, &MacaroonOrder::default()).unwrap();
    match site.macaroons.verify(issued.text.expose(), SystemTime::now()) {
        MacaroonVerdict::Valid(verified) => assert_eq!(verified.name(), Some("bob")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_token_of_the_login_counts() {
    let site = Site::new("");
    let order = MacaroonOrder::default();
    let caller = |seconds, at| {
        let token = site.issuer.token_for("storage.read:/", seconds);
        login_with(CredentialLayer::Tokens(site.issuer.tokens()), &token, at)
    };
    let now = SystemTime::now();
    let issued = site.ask_as(Some(&caller(600, now)), "/data/sub", &order).unwrap();
    assert_eq!(Activity::list(&issued.activities), "READ_METADATA,DOWNLOAD,LIST");
    assert!(issued.validity <= Duration::from_secs(600));
    let gone = caller(-1, now - Duration::from_secs(60));
    assert_eq!(site.ask_as(Some(&gone), "/data/sub", &order).unwrap_err(), ErrorKind::AuthFailed);
    // A request with a token of its own has nothing of that of the login.
    let other = site.issuer.token("storage.read:/other");
    let own = format!("/data/sub?authz={other}");
    let asked = site.ask_as(Some(&caller(600, now)), &own, &order);
    assert_eq!(asked.unwrap_err(), ErrorKind::NotAuthorized);
}

#[test]
fn a_server_without_macaroons_issues_none() {
    let server = Server::new();
    let operation = || Operation::IssueMacaroon(target("/data"), Box::default());
    let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
    let caller = Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false));
    let client = Client::new(server.logical.clone(), caller);
    assert_eq!(client.call(operation()).error().kind, ErrorKind::Unsupported);
    let policy = AccessPolicy::new(Vec::new(), Some(rules("u * /data a\n")), AuditedDecisions::default());
    let role = (AuthorizationRole::Server, false);
    let files = AuthorizedFiles::before(server.logical.clone(), Some(Arc::new(policy)), role, Vec::new());
    let caller = Arc::new(Caller::new(Identity::new(&names, 1, None, "host"), true, false));
    assert_eq!(Client::new(files, caller).call(operation()).error().kind, ErrorKind::Unsupported);
}
