//! Files that are missing on disk and may be in mass storage.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use base::{Error, ErrorKind, LogicalPath};
use logical::config::ExportConfig;
use logical::{
    HasLeft, RecordChange, RecordedFile, RecordedNeed, StageNotice, StageRequest, StagedFiles, Stager,
    StagerReply,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use storage::faulty::{FaultRule, FaultyCall, InjectedFault};
use storage::{Backend as _, Metadata};
use support::{Client, Server, caller, creating, path, reading, replacing, target, targets, updating, waits};
use vfs::{
    Answer, Caller, Locality, OpenRequest, Operation, PrepareNotice, PrepareRequest, Started, TapeFile,
    TapeRequest, TapeState, TapeWork, Value,
};

/// A mass storage that brings files in when a test orders it.
#[derive(Default)]
struct Tape {
    waiting: Mutex<Vec<(StageRequest, StagerReply<()>)>>,
    /// Rings for each fetch.
    bell: Condvar,
    prepared: Mutex<BTreeMap<String, Vec<StageRequest>>>,
    notice: Mutex<Option<StageNotice>>,
    recorded: Mutex<BTreeMap<String, Vec<RecordedFile>>>,
    remote: Option<Metadata>,
    /// It makes the files that clients create.
    makes_new: bool,
}

impl Tape {
    /// Waits for a fetch.
    fn wait(&self) {
        let waiting = self.waiting.lock().unwrap();
        drop(self.bell.wait_while(waiting, |waiting| waiting.is_empty()).unwrap());
    }

    /// Ends all fetches with this result, and returns their requests.
    fn finish(&self, result: &Result<(), (ErrorKind, &str)>) -> Vec<StageRequest> {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        let finish = |(request, reply): (StageRequest, StagerReply<()>)| {
            reply(result.map_err(|(kind, text)| Error::new(kind, text)));
            request
        };
        waiting.into_iter().map(finish).collect()
    }
}

impl Stager for Tape {
    fn fetch(&self, request: StageRequest, _: HasLeft, reply: StagerReply<()>) {
        self.waiting.lock().unwrap().push((request, reply));
        self.bell.notify_all();
    }

    fn submit(
        &self,
        id: &str,
        requests: Vec<StageRequest>,
        notice: Option<StageNotice>,
        reply: StagerReply<()>,
    ) {
        *self.notice.lock().unwrap() = notice;
        self.prepared.lock().unwrap().insert(id.to_owned(), requests);
        reply(Ok(()));
    }

    fn cancel(&self, id: &str, reply: StagerReply<()>) {
        self.prepared.lock().unwrap().remove(id);
        reply(Ok(()));
    }

    fn query(&self, id: &str, reply: StagerReply<Option<String>>) {
        let found = self.prepared.lock().unwrap().get(id).map(|requests| format!("{id} {}", requests.len()));
        reply(Ok(found));
    }

    fn record(&self, id: &str, files: Vec<RecordedFile>, reply: StagerReply<()>) {
        self.recorded.lock().unwrap().insert(id.to_owned(), files);
        reply(Ok(()));
    }

    fn change_record(&self, id: &str, change: RecordChange, reply: StagerReply<()>) {
        if change == RecordChange::Forget {
            self.recorded.lock().unwrap().remove(id);
        }
        reply(Ok(()));
    }

    fn recorded_state(&self, id: &str, _: Option<&LogicalPath>) -> Result<Option<TapeState>, Error> {
        let state = TapeState { created: 1, started: 1, completed: None, files: Vec::new(), is_last: true };
        Ok(self.recorded.lock().unwrap().contains_key(id).then_some(state))
    }

    fn stages_new_files(&self) -> bool {
        self.makes_new
    }

    fn has_catalog(&self) -> bool {
        self.remote.is_some()
    }

    fn remote_status(&self, path: &LogicalPath) -> Result<Option<Metadata>, Error> {
        Ok(self.remote.clone().filter(|_| path.as_bytes().ends_with(b"on-tape")))
    }
}

/// A server with `/data`, which stages, and `/nolock`, which does not.
fn site(tape: Tape) -> (Server, Arc<Tape>, Client) {
    let server = Server::with(|config| {
        for export in config.exports.iter_mut().filter(|export| export.prefix == path("/data")) {
            export.stage = true;
        }
    });
    let tape = Arc::new(tape);
    let client = Client::new(StagedFiles::before(server.logical.clone(), tape.clone()), caller("ann", 1));
    (server, tape, client)
}

#[test]
fn an_open_of_a_missing_file_waits_until_it_is_there() {
    let (server, tape, client) = site(Tape::default());
    let call = client.open("/data/f", reading());
    assert!(call.was_notified());
    server.memory.put("/data/f", b"content");
    let requests = tape.finish(&Ok(()));
    // A late answer cannot be a handle, so the client repeats its request at once.
    assert!(matches!(call.answer(), Answer::Wait { seconds: 0, .. }));
    assert_eq!(client.open("/data/f", reading()).file().size_now(), Some(7));
    assert_eq!(requests[0].path, path("/data/f"));
    assert!(requests[0].client.starts_with("ann.1"), "{}", requests[0].client);
    // A file that is there is opened at once.
    client.open("/data/f", reading()).file();
    assert!(tape.finish(&Ok(())).is_empty());
}

#[test]
fn a_failure_names_its_reason_and_a_missing_file_is_missing() {
    let (_server, tape, client) = site(Tape::default());
    let call = client.open("/data/f", reading());
    tape.finish(&Err((ErrorKind::FsError, "no drive")));
    assert_eq!(
        call.refusal(),
        (ErrorKind::FsError, "Unable to open /data/f; staging failed: no drive".to_owned())
    );
    let call = client.open("/data/f", reading());
    tape.finish(&Err((ErrorKind::NotFound, "not on tape")));
    let (kind, text) = call.refusal();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("no such file"), "{text}");
    // It came, and was removed before an old client could open it.
    let old = Arc::new(Caller::new(caller("old", 3).identity.clone(), false, false));
    let call = client.open_as(&old, "/data/f", reading());
    tape.finish(&Ok(()));
    assert_eq!(call.refusal().0, ErrorKind::NotFound);
}

/// An open for update needs a thread, and for others it is not known either how long they take.
#[test]
fn an_open_of_a_file_that_is_there_returns_a_handle_without_a_notice() {
    let (server, tape, client) = site(Tape::default());
    server.memory.put("/data/f", b"content");
    let call = client.open("/data/f", updating());
    assert!(matches!(call.started, Started::Pending), "it needs a thread");
    let (answer, was_notified) = call.answer_and_notice();
    assert!(matches!(answer, Answer::Value(Value::Opened(_))) && !was_notified);
    assert!(tape.finish(&Ok(())).is_empty());
    // A missing one is brought in.
    let call = client.open("/data/g", updating());
    tape.wait();
    tape.finish(&Ok(()));
    let (answer, was_notified) = call.answer_and_notice();
    assert!(matches!(answer, Answer::Wait { seconds: 0, .. }) && was_notified);
}

#[test]
fn only_missing_files_of_exports_that_stage_are_fetched() {
    let (_server, tape, client) = site(Tape::default());
    client.open("/data/new", creating()).file();
    for name in ["/nolock/f", "/ro/f", "/data/x/"] {
        client.open(name, reading()).error();
    }
    assert!(tape.finish(&Ok(())).is_empty());
    // A client that does not want to wait starts the copy.
    let (kind, text) = client.open("/data/f", OpenRequest { no_wait: true, ..reading() }).refusal();
    assert_eq!(kind, ErrorKind::InProgress, "{text}");
    assert_eq!(tape.finish(&Ok(())).len(), 1);
}

#[test]
fn a_file_that_a_client_creates_may_be_made_by_the_stager() {
    let (server, tape, client) = site(Tape { makes_new: true, ..Tape::default() });
    let made = |name: &str, request: fn() -> OpenRequest| {
        let call = client.open(name, request());
        tape.wait();
        server.memory.put(name, b"made");
        assert_eq!(tape.finish(&Ok(()))[0].path, path(name));
        let (answer, was_notified) = call.answer_and_notice();
        assert!(matches!(answer, Answer::Wait { seconds: 0, .. }) && was_notified);
        client.open(name, request())
    };
    // As with the real server, a file that must be new is not, and others are replaced.
    assert_eq!(made("/data/new", creating).refusal().0, ErrorKind::ItExists);
    assert_eq!(made("/data/forced", replacing).file().size_now(), Some(0));
    let call = client.open("/data/none", replacing());
    tape.wait();
    tape.finish(&Err((ErrorKind::NotFound, "")));
    let (kind, text) = call.refusal();
    assert!(kind == ErrorKind::NotFound && text.starts_with("Unable to create /data/none"), "{text}");
    let call = client.open("/data/none", creating());
    tape.wait();
    tape.finish(&Err((ErrorKind::FsError, "no drive")));
    assert_eq!(call.refusal().1, "Unable to create /data/none; staging failed: no drive");
    assert!(server.logical.backend().stat(&path("/data/none")).is_err());
    // Files that are there, and those elsewhere, cost no request.
    client.open("/data/forced", replacing()).file();
    client.open("/nolock/f", creating()).file();
    client.open("/ro/f", creating()).error();
    client.open("/data/x/", creating()).error();
    assert!(tape.finish(&Ok(())).is_empty());
}

#[test]
fn clients_that_have_left_and_old_clients_are_answered() {
    let (server, tape, client) = site(Tape::default());
    let old = Arc::new(Caller::new(caller("old", 3).identity.clone(), false, false));
    let waiting = client.open_as(&old, "/data/f", reading());
    assert!(!waiting.was_notified(), "it does not know deferred replies");
    let gone = caller("gone", 4);
    let lost = client.open_as(&gone, "/data/f", reading());
    gone.disconnect();
    server.memory.put("/data/f", b"content");
    assert_eq!(tape.finish(&Ok(())).len(), 2);
    waiting.file();
    assert_eq!(lost.refusal().0, ErrorKind::Cancelled);
}

#[test]
fn a_prepare_request_records_missing_files_before_its_id_is_returned() {
    let (server, tape, client) = site(Tape::default());
    server.memory.put("/data/here", b"");
    let list = targets(&["/data/a", "/data/here", "/nolock/b", "/data/c"]);
    let request = PrepareRequest { stage: true, priority: 2, ..PrepareRequest::default() };
    let id = client.call(Operation::Prepare(request, list)).text();
    let recorded = tape.prepared.lock().unwrap().get(&id).unwrap().clone();
    let of_each: Vec<_> = recorded.iter().map(|request| (request.path.clone(), request.priority)).collect();
    assert_eq!(of_each, [(path("/data/a"), 2), (path("/data/c"), 2)]);
    let query = || Operation::QueryPrepare { id: id.clone().into_bytes(), targets: None };
    assert_eq!(client.call(query()).text(), format!("{id} 2"));
    let cancel = || Operation::CancelPrepare { id: id.clone().into_bytes() };
    // Without authentication, clients of the same host are one owner.
    let elsewhere = base::Identity::new(
        &base::LoginNames { user: "bob", host: "elsewhere", ..base::LoginNames::default() },
        1,
        None,
        "host",
    );
    let elsewhere = Arc::new(Caller::new(elsewhere, true, false));
    assert_eq!(client.call_as(&elsewhere, cancel()).refusal().0, ErrorKind::NotAuthorized);
    assert_eq!(client.call(query()).text(), format!("{id} 2"));
    client.call(cancel()).done();
    assert_eq!(client.call(query()).text(), "No information found.");
    client.call(Operation::CancelPrepare { id: b"bad".to_vec() }).error();
}

#[test]
fn messages_about_prepared_files_go_to_the_address_of_the_client() {
    let (server, tape, _) = site(Tape::default());
    server.memory.put("/data/here", b"");
    let names = base::LoginNames { user: "ann", host: "h", ..base::LoginNames::default() };
    let identity = base::Identity::new(&names, 1, Some("::ffff:192.0.2.7".parse().unwrap()), "host");
    let client = Client::new(
        StagedFiles::before(server.logical.clone(), tape.clone()),
        Arc::new(Caller::new(identity, true, false)),
    );
    let prepare = |by_tcp, on_failure| {
        let notify = Some(PrepareNotice { port: 9, by_tcp, on_failure });
        let request = PrepareRequest { stage: true, notify, ..PrepareRequest::default() };
        let id = client.call(Operation::Prepare(request, targets(&["/data/a", "/data/here"]))).text();
        let files = tape.prepared.lock().unwrap().get(&id).unwrap().len();
        (files, *tape.notice.lock().unwrap())
    };
    let address = "192.0.2.7:9".parse().unwrap();
    // A file that is there is reported too.
    assert_eq!(prepare(false, true), (2, Some(StageNotice { address, on_failure: true })));
    assert_eq!(prepare(false, false), (2, Some(StageNotice { address, on_failure: false })));
    assert_eq!(prepare(true, true), (1, None));
}

#[test]
fn a_stat_of_a_file_in_mass_storage_has_the_flag_offline() {
    let plain = site(Tape::default());
    plain.0.memory.put("/data/f", b"12");
    let remote = Metadata {
        size: 99,
        mode: 0o100_640,
        offline: true,
        ..plain.0.logical.backend().stat(&path("/data/f")).unwrap()
    };
    assert_eq!(plain.2.call(Operation::Stat(target("/data/on-tape"))).refusal().0, ErrorKind::NotFound);
    let (_server, _, client) = site(Tape { remote: Some(remote), ..Tape::default() });
    let stat = client.call(Operation::Stat(target("/data/on-tape"))).stat();
    assert_eq!((stat.size, stat.offline, stat.mode), (99, true, 0o640));
    assert_eq!(client.call(Operation::Stat(target("/data/none"))).refusal().0, ErrorKind::NotFound);
    assert_eq!(client.call(Operation::Stat(target("/nolock/on-tape"))).refusal().0, ErrorKind::NotFound);
}

/// The system refuses opens of a file for which another process has a lease, and those of one that is
/// being purged.
#[test]
fn an_open_of_a_file_with_a_lease_is_repeated_by_the_client() {
    const TRY_AGAIN: i32 = 11;
    let (server, rules) = Server::with_rules();
    server.memory.put("/data/x", b"1");
    rules.add(FaultRule::new(&[FaultyCall::Open], InjectedFault::Error(TRY_AGAIN)).times(2));
    for request in [updating(), replacing()] {
        let (seconds, text) = waits(&server, "/data/x", request);
        assert_eq!(seconds, 1);
        assert!(text.contains("/data/x is in use by another process"), "{text}");
    }
    server.open("/data/x", updating()).file();
}

/// On most file systems, reads change the access time once a day at most.
#[test]
fn opens_and_long_uses_are_recorded_where_files_are_purged() {
    let server = Server::with(|config| {
        let export = ExportConfig::new(path("/purge"));
        let access_interval = Some(Duration::from_secs(60));
        config.exports.push(ExportConfig { purge: true, access_interval, ..export });
    });
    for name in ["/purge/x", "/data/y"] {
        server.memory.put(name, b"1");
    }
    let accessed = |name: &str| server.memory.stat(&path(name)).unwrap().accessed;
    let start = accessed("/purge/x");
    let open = |name: &str| server.open(name, reading()).file();
    server.after(59);
    server.close(&open("/purge/x")).done();
    assert_eq!(accessed("/purge/x"), start);
    server.after(1);
    for name in ["/purge/x", "/data/y"] {
        server.close(&open(name)).done();
    }
    assert_eq!((accessed("/purge/x") - start, accessed("/data/y") - start), (60, 0));
    let file = open("/purge/x");
    server.after(1000);
    server.close(&file).done();
    assert_eq!(accessed("/purge/x") - start, 1060);
}

fn tape_request(work: TapeWork) -> Operation {
    Operation::Tape(Box::new(TapeRequest::new(base::Cgi::new(b""), work)))
}

/// Stages these files, and returns the id.
fn stage(client: &Client, paths: &[&str]) -> String {
    let files = paths.iter().map(|name| TapeFile { path: path(name), lifetime: 5 });
    match client.call(tape_request(TapeWork::Stage(files.collect()))).answer() {
        Answer::Value(Value::Text(id)) => String::from_utf8(id).unwrap(),
        _ => panic!("no id"),
    }
}

#[test]
fn a_tape_request_has_an_error_for_each_file() {
    let (server, tape, client) = site(Tape::default());
    server.memory.put("/data/here", b"x");
    let id = stage(&client, &["/data/here", "/data/f", "/nolock/f", "/other/f"]);
    let recorded = tape.recorded.lock().unwrap();
    let files = &recorded[&id];
    let needs: Vec<_> = files.iter().map(|file| file.need.clone()).collect();
    assert_eq!(needs[..2], [RecordedNeed::OnDisk, RecordedNeed::Transfer]);
    for (need, reason) in needs[2..].iter().zip(["does not stage files", "is disallowed"]) {
        assert!(matches!(need, RecordedNeed::Refused(text) if text.contains(reason)), "{need:?}");
    }
    assert!(files.iter().all(|file| file.lifetime == 5));
}

#[test]
fn bearers_of_tokens_share_no_places_with_others_of_their_host() {
    let (_server, tape, client) = site(Tape::default());
    let login = stage(&client, &["/data/f"]);
    let mut request = TapeRequest::new(
        base::Cgi::new(b""),
        TapeWork::Stage(vec![TapeFile { path: path("/data/f"), lifetime: 5 }]),
    );
    // As the authorization does for the token of a request.
    request.owner = Some("0123".to_owned());
    let Answer::Value(Value::Text(id)) = client.call(Operation::Tape(Box::new(request))).answer() else {
        panic!("no id");
    };
    let id = String::from_utf8(id).unwrap();
    assert!(id.ends_with(".0123"));
    let recorded = tape.recorded.lock().unwrap();
    let owner = |id: &str| recorded[id][0].request.owner.clone();
    assert_eq!((&*owner(&login), &*owner(&id)), ("host localhost", "bearer 0123"));
}

#[test]
fn a_tape_request_belongs_to_its_client() {
    let (_server, tape, client) = site(Tape::default());
    let (first, second) = (stage(&client, &["/data/f"]), stage(&client, &["/data/f"]));
    let number = |id: &str| id.split('.').nth(1).unwrap().parse::<u64>().unwrap();
    assert!(number(&first).abs_diff(number(&second)) > 1, "nobody can guess it");
    let elsewhere = Arc::new(Caller::new(
        base::Identity::new(
            &base::LoginNames { user: "ann", host: "elsewhere", ..base::LoginNames::default() },
            1,
            None,
            "host",
        ),
        true,
        false,
    ));
    let paths = || vec![path("/data/f")];
    let works = |id: &str| {
        let id = id.to_owned();
        [
            TapeWork::State { id: id.clone(), after: None },
            TapeWork::Cancel { id: id.clone(), paths: paths() },
            TapeWork::Release { id: id.clone(), paths: paths() },
            TapeWork::Forget { id },
        ]
    };
    for work in works(&first) {
        let refused = client.call_as(&elsewhere, tape_request(work.clone())).refusal();
        assert_eq!(refused.0, ErrorKind::NotAuthorized, "{work:?}");
    }
    assert_eq!(tape.recorded.lock().unwrap().len(), 2);
    for work in works(&first) {
        let answer = client.call(tape_request(work.clone())).answer();
        assert!(matches!(answer, Answer::Value(_)), "{work:?}");
    }
    for id in [first.as_str(), "unknown"] {
        let state = TapeWork::State { id: id.to_owned(), after: None };
        assert_eq!(client.call(tape_request(state)).refusal().0, ErrorKind::NotFound, "{id}");
    }
}

#[test]
fn places_of_files_are_known_one_by_one() {
    let status = || {
        let (server, _, _) = site(Tape::default());
        server.memory.put("/data/x", b"x");
        server.logical.backend().stat(&path("/data/x")).unwrap()
    };
    let (server, _tape, client) = site(Tape { remote: Some(status()), ..Tape::default() });
    server.memory.put("/data/here", b"x");
    let paths = ["/data/here", "/data/on-tape", "/data/none", "/nolock/none", "/other/f", "/data"];
    let work = TapeWork::Locate(paths.iter().map(|name| path(name)).collect());
    let Answer::Value(Value::Localities(located)) = client.call(tape_request(work)).answer() else {
        panic!("no places")
    };
    let places: Vec<_> = located.iter().map(|file| file.locality.clone().ok()).collect();
    let known = [Locality::Disk, Locality::Tape, Locality::None, Locality::None].map(Some);
    assert_eq!((&places[..4], &places[4..]), (&known[..], &[None, None][..]));
}
