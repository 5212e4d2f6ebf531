//! Tests of servers that share one file system, with a manager that sees it too (`cms.dfs lookup
//! central`).

use crate::site::{Node, Site};
use crate::wire_peer::Peer;
use cluster::{LookupLimits, SharedFilePolicy};
use server::cluster::{NodeRole, Settings};
use std::num::NonZeroU32;
use std::time::Duration;
use wire::cms::flags::{HaveModifier, SelectOptions};
use wire::cms::message::Have;
use wire::cms::{Code, Message, StreamId};

const READ: SelectOptions = SelectOptions::READ;

fn sees_itself(settings: &mut Settings) {
    settings.policy.shared = Some(SharedFilePolicy { central: true, ..SharedFilePolicy::default() });
}

/// Starts a manager that stats files itself, and an XRootD server that answers no query.
fn manager_and_silent_server(site: &Site, rules: LookupLimits) -> (Node, Peer) {
    let manager = site.node_with("shared", NodeRole::Manager, &[], |settings| {
        sees_itself(settings);
        settings.looks = rules;
    });
    let server = Peer::server(&manager, "s-real@there x", 1095);
    manager.has_children(1);
    (manager, server)
}

#[test]
fn the_manager_stats_files_itself_and_queries_no_server() {
    let site = Site::new();
    let (manager, _server) = manager_and_silent_server(&site, LookupLimits::default());
    manager.put("/d/f", "");
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/d/f");
    assert_eq!(redirector.answer(), "127.0.0.1:1095");
    redirector.select(2, b"/d/late");
    assert_eq!(redirector.answer(), "error 1", "without waiting for the silence of the server");
    manager.put("/d/late", "");
    redirector.select(3, b"/d/late");
    assert_eq!(redirector.answer(), "error 1", "remembered");
    redirector.select_for(4, b"/d/late", READ | SelectOptions::REFRESH);
    assert_eq!(redirector.answer(), "127.0.0.1:1095");
}

#[test]
fn clients_create_read_and_remove_files_through_it() {
    let site = Site::new();
    // Equal names, so that both have the same directory.
    let manager = site.node_with("shared", NodeRole::Manager, &[], sees_itself);
    let server = site.server_in("shared", "server", &[&manager]);
    manager.has_children(1);
    let mut client = manager.client();
    assert_eq!(client.create("/new/file").unwrap(), server.port());
    assert!(manager.has("/new/file"));
    assert_eq!(client.size("/new/file").unwrap(), 0);
    assert_eq!(client.create("/new/file").unwrap_err().0, crate::ITEM_EXISTS);
    std::fs::write(manager.path("/new/beside"), "by hand").unwrap();
    assert_eq!(client.read("/new/beside").unwrap(), "by hand");
    client
        .call(&client::xroot::request::Request::Rm(client::xroot::request::Rm { path: b"/new/file" }))
        .unwrap();
    assert_eq!(client.read("/new/file").unwrap_err().0, crate::NOT_FOUND);
}

#[test]
fn names_in_a_missing_directory_are_missing_until_somebody_has_one() {
    let site = Site::new();
    let rules = LookupLimits { missing_hold: Duration::from_secs(3600), ..LookupLimits::default() };
    let (manager, mut server) = manager_and_silent_server(&site, rules);
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/gone/f");
    assert_eq!(redirector.answer(), "error 1");
    // The directory is checked in its turn. After that, a file created in it is not seen.
    crate::site::until("the directory is known to be missing", || {
        manager.put("/gone/g", "");
        redirector.select_for(2, b"/gone/g", READ | SelectOptions::REFRESH);
        let missing = redirector.answer() == "error 1";
        std::fs::remove_dir_all(manager.path("/gone")).unwrap();
        missing || {
            redirector.select_for(3, b"/gone/f", READ | SelectOptions::REFRESH);
            redirector.answer();
            false
        }
    });
    manager.put("/gone/g", "");
    manager.put("/gone/h", "");
    server.say(StreamId::NONE, Message::Have(Have { modifier: HaveModifier::ONLINE, path: b"/gone/g" }));
    crate::site::until("the word of the server is heard", || {
        redirector.select_for(4, b"/gone/h", READ | SelectOptions::REFRESH);
        redirector.answer() == "127.0.0.1:1095"
    });
}

#[test]
fn look_ups_take_turns_and_excess_clients_must_retry() {
    let site = Site::new();
    let (rate, wait_max) = (NonZeroU32::new(2), Duration::from_secs(60));
    let rules = LookupLimits { rate, even: true, queue_max: 1, wait_max, ..LookupLimits::default() };
    let (manager, _server) = manager_and_silent_server(&site, rules);
    ["/a", "/b", "/c"].iter().for_each(|path| manager.put(path, ""));
    let mut redirector = Peer::redirector(&manager);
    for (number, path) in [(1, b"/a"), (2, b"/b"), (3, b"/c")] {
        redirector.select_for(number, path, READ);
    }
    let answers = [(); 3].map(|()| redirector.answer());
    assert_eq!(answers, ["127.0.0.1:1095", "wait 5", "127.0.0.1:1095"]);
}

#[test]
fn a_server_answers_its_parents_at_the_configured_rate() {
    let site = Site::new();
    let manager = site.manager("manager");
    let rules = LookupLimits {
        rate: NonZeroU32::new(2),
        queue_max: 10,
        wait_max: site.silence,
        even: true,
        ..LookupLimits::default()
    };
    let server = site.node_with("server", NodeRole::Server, &[&manager], |settings| settings.looks = rules);
    manager.has_children(1);
    ["/a", "/b", "/c"].iter().for_each(|path| server.put(path, path));
    let mut redirector = Peer::redirector(&manager);
    let begun = std::time::Instant::now();
    for (number, path) in [(1, b"/a"), (2, b"/b"), (3, b"/c")] {
        redirector.select_for(number, path, READ);
    }
    for _ in 0..3 {
        assert_eq!(redirector.answer(), format!("127.0.0.1:{}", server.port()));
    }
    // The rate limit sets a minimum time, which does not depend on the speed of the machine.
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_path_of_unknown_state_is_queried_from_a_server() {
    let site = Site::new();
    let (manager, mut server) = manager_and_silent_server(&site, LookupLimits::default());
    // The state of a link to itself cannot be determined.
    std::os::unix::fs::symlink("loop", manager.path("/loop")).unwrap();
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/loop");
    assert!(server.next_of(Code::STATE, |_| ()).is_some());
    server.say(
        StreamId::of_path(b"/loop"),
        Message::Have(Have { modifier: HaveModifier::ONLINE, path: b"/loop" }),
    );
    assert_eq!(redirector.answer(), "127.0.0.1:1095");
}
