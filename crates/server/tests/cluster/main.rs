//! Tests of whole clusters in one process: managers, supervisors, servers, and clients that follow
//! redirects.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test fails at the line of the error

mod complete;
mod health;
mod peers;
mod prepares;
mod shared;
mod site;
mod wire_peer;

use client::xroot::request::{Request, Rm};
use server::cluster::NodeRole;
use site::{Site, place, places};
use wire::cms::flags::SelectOptions;
use wire_peer::Peer;

const NOT_FOUND: u32 = 3011;
const ITEM_EXISTS: u32 = 3018;

#[test]
fn a_client_is_sent_to_the_server_that_has_the_file() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [a, b] = ["a", "b"].map(|name| site.server(name, &[&manager]));
    a.put("/d/only-a", "from a");
    b.put("/d/only-b", "from b");
    manager.has_children(2);
    let mut client = manager.client();
    for _ in 0..2 {
        assert_eq!(client.read("/d/only-a").unwrap(), "from a");
        assert_eq!((client.at, client.hops), (a.port(), 1));
        assert_eq!(client.read("/d/only-b").unwrap(), "from b");
        assert_eq!(client.at, b.port());
    }
    assert_eq!(client.size("/d/only-b").unwrap(), 6);
    assert_eq!(client.read("/d/nowhere").unwrap_err().0, NOT_FOUND);
    assert_eq!(client.hops, 0, "the manager says so itself");
}

#[test]
fn a_file_is_created_once_and_known_immediately_until_it_is_removed() {
    let site = Site::new();
    let manager = site.manager("manager");
    let servers = ["a", "b", "c"].map(|name| site.server(name, &[&manager]));
    manager.has_children(3);
    let mut client = manager.client();
    assert_eq!(client.size("/new/file").unwrap_err().0, NOT_FOUND);
    let port = client.create("/new/file").unwrap();
    let maker = servers.iter().find(|server| server.port() == port).unwrap();
    assert!(maker.has("/new/file"));
    assert_eq!(servers.iter().filter(|server| server.has("/new/file")).count(), 1);
    assert_eq!(client.size("/new/file").unwrap(), 0);
    assert_eq!(client.at, port);
    assert_eq!(client.create("/new/file").unwrap_err().0, ITEM_EXISTS);
    client.call(&Request::Rm(Rm { path: b"/new/file" })).unwrap();
    assert!(!maker.has("/new/file"));
    // The server has removed the file immediately, the manager records it a little later.
    let mut refused = client.size("/new/file");
    while refused.is_ok() || client.at != manager.port() {
        refused = client.size("/new/file");
    }
    assert_eq!(refused.unwrap_err().0, NOT_FOUND);
    client.create("/new/file").unwrap();
}

#[test]
fn locate_tells_holders_exporters_and_nodes() {
    let site = Site::new();
    let manager = site.manager("manager");
    let servers = ["a", "b", "c"].map(|name| site.server(name, &[&manager]));
    let [a, b, c] = &servers;
    a.put("/f", "1");
    c.put("/f", "1");
    manager.has_children(3);
    let mut client = manager.client();
    assert_eq!(client.locate("/f").unwrap(), places("Sw", &[a, c]));
    assert_eq!(client.locate("*/f").unwrap(), places("Sw", &[a, b, c]));
    assert_eq!(client.locate("*").unwrap(), places("Sr", &[a, b, c]));
    assert_eq!(client.locate("/nowhere").unwrap_err().0, NOT_FOUND);
    assert_eq!(client.hops, 0);
}

#[test]
fn a_client_that_returns_is_redirected_elsewhere() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [a, b] = ["a", "b"].map(|name| site.server(name, &[&manager]));
    a.put("/f", "1");
    b.put("/f", "1");
    manager.has_children(2);
    let mut client = manager.client();
    let first = {
        client.read("/f").unwrap();
        client.at
    };
    let other = if first == a.port() { b.port() } else { a.port() };
    let target = format!("/f?tried=127.0.0.1:{first}&triedrc=ioerr");
    for _ in 0..3 {
        client.read(&target).unwrap();
        assert_eq!(client.at, other);
    }
    let target = format!("/f?tried=127.0.0.1:{first},127.0.0.1:{other}&triedrc=ioerr,ioerr");
    assert_eq!(client.read(&target).unwrap_err().0, 3007, "an I/O error");
}

#[test]
fn through_a_supervisor_it_is_one_redirect_more() {
    let site = Site::new();
    let manager = site.manager("manager");
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    let server = site.server("a", &[&supervisor]);
    server.put("/deep/f", "deep");
    supervisor.has_children(1);
    manager.has_children(1);
    let mut client = manager.client();
    assert_eq!(client.locate("/deep/f").unwrap(), [place("Mw", &supervisor)]);
    assert_eq!(client.read("/deep/f").unwrap(), "deep");
    assert_eq!((client.at, client.hops), (server.port(), 2));
    assert_eq!(client.read("/deep/none").unwrap_err().0, NOT_FOUND);
    assert_eq!(client.hops, 0);
    client.create("/deep/new").unwrap();
    assert!(server.has("/deep/new"));
    assert_eq!(client.size("/deep/new").unwrap(), 0);
}

#[test]
fn a_restarted_manager_knows_the_locations_of_files() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [a, b] = ["a", "b"].map(|name| site.server(name, &[&manager]));
    a.put("/a/f", "a");
    b.put("/b/f", "b");
    manager.has_children(2);
    let (data, cluster) = (manager.running.address(), manager.cluster_address());
    drop(manager);
    let manager = site.manager_again("manager", data, cluster);
    // The request is sent before any node has reconnected; the client waits and is served.
    let mut client = manager.client();
    assert_eq!(client.read("/a/f").unwrap(), "a");
    assert_eq!(client.read("/b/f").unwrap(), "b");
    manager.until("the nodes told what they have", |engine| {
        engine.resolver().unwrap().stats().cache.locations >= 2
    });
}

#[test]
fn a_manager_that_comes_back_above_supervisors_knows_what_is_below_them() {
    let site = Site::new();
    let manager = site.manager("manager");
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    let server = site.server("a", &[&supervisor]);
    server.put("/deep/f", "deep");
    supervisor.has_children(1);
    manager.has_children(1);
    let (data, cluster) = (manager.running.address(), manager.cluster_address());
    drop(manager);
    let manager = site.manager_again("manager", data, cluster);
    manager.until("the servers told what they have, though they had never left", |engine| {
        engine.resolver().unwrap().stats().cache.locations >= 1
    });
    assert_eq!(manager.client().read("/deep/f").unwrap(), "deep");
}

#[test]
fn requests_of_a_redirector_end_with_its_connection() {
    let site = Site::new();
    let manager = site.manager("manager");
    let mut redirector = Peer::redirector(&manager);
    let options = SelectOptions::CREATE | SelectOptions::WRITE;
    redirector.select_for(1, b"/new", options);
    manager.until("it is held: no server is there", |engine| engine.resolver().unwrap().stats().held == 1);
    drop(redirector);
    let since = std::time::Instant::now();
    manager.until("it is not held any more", |engine| engine.resolver().unwrap().stats().held == 0);
    assert!(since.elapsed() < cluster::HOLD, "not only because it was held for long enough");
}

#[test]
fn a_child_stays_out_of_use_when_its_manager_comes_back() {
    let site = Site::new();
    let place = |settings: &mut server::cluster::Settings| {
        settings.place_file = Some(site.directory().join("place"));
    };
    let manager = site.node_with("manager", NodeRole::Manager, &[], place);
    let mut real = Peer::server(&manager, "s-real@there x", 1095);
    let own = site.server("own", &[&manager]);
    manager.has_children(2);
    for slot in 0..2 {
        assert!(
            manager.running.cluster().unwrap().order_child(server::cluster::NodeOrder::Drain, slot)
                == Some(true)
        );
    }
    let drained = |engine: &server::cluster::ClusterEngine| {
        let members = engine.node().members().unwrap().members();
        members.filter(|(_, member)| member.condition.draining && member.link.is_some()).count() == 2
    };
    manager.until("both are drained", drained);
    let kept = site.directory().join("drained");
    site::until("the orders are on disk", || {
        std::fs::read_to_string(&kept).is_ok_and(|text| text.lines().count() == 2)
    });
    let (data, cluster) = (manager.running.address(), manager.cluster_address());
    drop(manager);
    while real.next(|_| ()).is_some() {}
    let manager = site.manager_again_with("manager", data, cluster, place);
    let _real = Peer::server(&manager, "s-real@there x", 1095);
    manager.until("both are drained still", drained);
    for slot in 0..2 {
        assert!(
            manager.running.cluster().unwrap().order_child(server::cluster::NodeOrder::Undrain, slot)
                == Some(true)
        );
    }
    site::until("the own one was told", || !own.look(|engine| engine.node().memberships()[0].is_draining()));
}

#[test]
fn a_lost_server_is_missed_and_its_other_copies_are_read() {
    let site = Site::new();
    let manager = site.manager("manager");
    let [a, b] = ["a", "b"].map(|name| site.server(name, &[&manager]));
    a.put("/f", "1");
    b.put("/f", "1");
    manager.has_children(2);
    let mut client = manager.client();
    client.read("/f").unwrap();
    let gone = a.port();
    drop(a);
    manager.until("a is lost", |engine| engine.node().members().unwrap().online().len() == 1);
    for _ in 0..4 {
        assert_eq!(client.read("/f").unwrap(), "1");
        assert_ne!(client.at, gone);
    }
}
