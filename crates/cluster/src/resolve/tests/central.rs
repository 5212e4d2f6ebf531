//! Tests of a shared file system in which this node looks itself.

use super::*;
use crate::SharedFilePolicy;
use crate::resolve::LookupOutcome;

const HERE: LookupOutcome = LookupOutcome::Here { pending: false };

fn stage(servers: u8) -> Stage {
    with_parents(servers, false)
}

fn with_parents(servers: u8, has_parents: bool) -> Stage {
    let shared = SharedFilePolicy { central: true, ..SharedFilePolicy::default() };
    Stage::with(cell(servers), Policy { shared: Some(shared), ..Policy::default() }, has_parents)
}

impl Stage {
    /// Returns the look-ups requested since the last call.
    fn looks(&mut self) -> Vec<String> {
        let mut paths = Vec::new();
        self.actions.retain(|action| match action {
            ResolverAction::Look { path } => {
                paths.push(String::from_utf8(path.to_vec()).unwrap());
                false
            }
            _ => true,
        });
        paths
    }

    fn looked(&mut self, path: &str, sight: LookupOutcome) {
        self.machine.lookup_finished(path.as_bytes(), sight, self.now, &mut self.actions);
    }
}

#[test]
fn one_look_up_makes_all_servers_holders() {
    let mut stage = stage(3);
    assert_eq!((stage.read(1, "/f"), stage.read(2, "/f")), (None, None));
    assert_eq!(stage.looks(), ["/f"], "once for all who wait");
    assert_eq!(stage.queried(), SlotMask::EMPTY, "and nobody is asked");
    stage.looked("/f", HERE);
    assert_eq!(stage.answered().len(), 2);
    let mut seen = SlotMask::EMPTY;
    for token in 3..9 {
        seen.insert(slot(sent_to(&stage.read(token, "/f").unwrap())));
    }
    assert_eq!(seen, mask(&[0, 1, 2]));
    assert_eq!(stage.looks(), [""; 0]);
    assert_eq!(stage.machine.stats().queries, 0);
}

#[test]
fn a_missing_file_stays_cached_until_a_refresh_or_an_announcement() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.looked("/f", LookupOutcome::NotHere);
    assert_eq!(code(&stage.answer()), 1);
    assert_eq!(code(&stage.read(2, "/f").unwrap()), 1, "remembered");
    stage.looks();
    let again = SelectOptions { refresh: true, ..SelectOptions::default() };
    assert_eq!(stage.select(3, "/f", again, ""), None);
    assert_eq!(stage.looks(), ["/f"]);
    stage.looked("/f", LookupOutcome::NotHere);
    stage.answer();
    stage.have(1, "/f");
    sent_to(&stage.read(4, "/f").unwrap());
}

#[test]
fn an_incomplete_file_belongs_to_its_creator() {
    let mut stage = stage(2);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.looked("/f", LookupOutcome::NotHere);
    let maker = sent_to(&stage.answer());
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), maker);
    let again = SelectOptions { refresh: true, ..SelectOptions::default() };
    for sight in [LookupOutcome::NotHere, LookupOutcome::Here { pending: true }] {
        assert_eq!(
            stage.select(3, "/f", again, ""),
            Some(ClusterAnswer::clone(&stage.read(4, "/f").unwrap()))
        );
        stage.looked("/f", sight);
        assert_eq!(sent_to(&stage.read(5, "/f").unwrap()), maker, "{sight:?}");
    }
    stage.looks();
    assert_eq!(stage.intend(6, "/g", Intent::Create), None);
    stage.looked("/g", HERE);
    assert_eq!(code(&stage.answer()), 14, "it exists");
}

#[test]
fn a_failed_look_up_falls_back_to_a_query_of_one_server() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.looked("/f", LookupOutcome::Unknown);
    let queried = stage.queried();
    assert_eq!(queried.len(), 1, "one speaks for all");
    stage.have(queried.lowest().unwrap().number(), "/f");
    sent_to(&stage.answer());
    stage.looks();
    // The next time it looks itself again.
    assert_eq!(stage.read(2, "/g"), None);
    assert_eq!((stage.looks(), stage.queried()), (vec!["/g".to_owned()], SlotMask::EMPTY));
}

#[test]
fn a_hung_file_system_is_not_waited_for() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.pass(4.9);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    stage.pass(0.2);
    let queried = stage.queried().lowest().unwrap().number();
    // The late result no longer counts.
    stage.looked("/f", LookupOutcome::NotHere);
    assert_eq!(stage.answered(), []);
    stage.have(queried, "/f");
    sent_to(&stage.answer());
}

#[test]
fn a_refused_look_up_asks_the_client_to_retry() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.looked("/f", LookupOutcome::Refused);
    assert_eq!(stage.answer(), seconds(5));
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    assert_eq!(stage.machine.stats().queries, 0);
    stage.looks();
    assert_eq!(stage.read(2, "/f"), None, "then it is looked at");
    assert_eq!(stage.looks(), ["/f"]);
}

#[test]
fn a_client_that_returns_causes_a_new_look_up() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.looked("/f", HERE);
    let first = sent_to(&stage.answer());
    stage.looks();
    let tried = stage.machine.cell().child(slot(first)).unwrap().interfaces[0].host.to_string();
    assert_eq!(stage.select(2, "/f", SelectOptions::default(), &tried), None);
    assert_eq!(stage.looks(), ["/f"]);
    stage.looked("/f", LookupOutcome::NotHere);
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn parents_receive_the_result_of_a_look_up() {
    let mut stage = with_parents(2, true);
    let ask = StateAsk::default();
    let reply = stage.machine.state(RequestToken(1), b"/f", ask, stage.now, &mut stage.actions);
    assert_eq!((reply, stage.looks()), (None, vec!["/f".to_owned()]));
    stage.looked("/f", HERE);
    let path: Arc<[u8]> = Arc::from(b"/f".as_slice());
    assert_eq!(std::mem::take(&mut stage.actions), [ResolverAction::Announce { path, pending: false }]);
    let reply = stage.machine.state(RequestToken(2), b"/g", ask, stage.now, &mut stage.actions);
    assert_eq!((reply, stage.looks()), (None, vec!["/g".to_owned()]));
    stage.looked("/g", LookupOutcome::NotHere);
    let path: Arc<[u8]> = Arc::from(b"/g".as_slice());
    assert_eq!(
        stage.actions,
        [ResolverAction::Reply { token: RequestToken(2), path, reply: StateReply::NotHere }]
    );
}

#[test]
fn a_server_that_joins_meanwhile_is_a_holder_too() {
    let mut stage = stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.machine.join(
        slot(2),
        server(2),
        &ChildExport::parse_list(b"w /").unwrap(),
        stage.now,
        &mut stage.actions,
    );
    assert_eq!(stage.looks(), ["/f"]);
    stage.looked("/f", HERE);
    sent_to(&stage.answer());
    assert_eq!((stage.looks(), stage.queried()), (Vec::<String>::new(), SlotMask::EMPTY));
}
