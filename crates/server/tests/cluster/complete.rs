//! Tests of servers with complete inventories (`scalla.inventory complete`): a manager queries none
//! of them for a name outside of their inventories.

use crate::NOT_FOUND;
use crate::site::{Node, Site, until};
use client::xroot::request::{Mv, Request};
use server::cluster::NodeRole;

fn complete_server(site: &Site, name: &str, manager: &Node) -> Node {
    site.node_with(name, NodeRole::Server, &[manager], |settings| settings.complete_inventory = true)
}

fn has_complete_children(manager: &Node, count: usize) {
    manager.until("they have told all names", move |engine| {
        engine.resolver().unwrap().cell().complete().len() == count
    });
}

/// Returns the number of paths that the manager has queried.
fn asked(manager: &Node) -> u64 {
    manager.look(|engine| engine.resolver().unwrap().stats().cache.misses)
}

#[test]
fn no_server_is_queried_for_a_name_outside_of_all_inventories() {
    let site = Site::new();
    let manager = site.manager("manager");
    let a = complete_server(&site, "a", &manager);
    let b = complete_server(&site, "b", &manager);
    manager.has_children(2);
    let mut client = manager.client();
    // Servers that join again meanwhile, as on a machine that is too busy for their messages, have to be queried.
    let joined = || manager.look(|engine| format!("{:?}", engine.resolver().unwrap().cell().bounces()));
    let mut paths = (0..).map(|number| format!("/none/{number}"));
    for attempt in 1.. {
        assert!(attempt < 20, "the servers join again and again");
        has_complete_children(&manager, 2);
        let before = (joined(), asked(&manager));
        for path in paths.by_ref().take(100) {
            assert_eq!(client.size(&path).unwrap_err().0, NOT_FOUND);
        }
        let after = (joined(), asked(&manager));
        if after.0 == before.0 {
            assert_eq!(after.1, before.1);
            break;
        }
    }
    // A file that a client creates is known with its directories.
    client.create("/deep/new").unwrap();
    until("the new file is known", || client.size("/deep/new").is_ok());
    until("its directory is known", || client.size("/deep").is_ok());
    // A name that was not reported is missing.
    a.put("/by/hand", "");
    b.put("/by/hand", "");
    assert_eq!(client.size("/by/hand").unwrap_err().0, NOT_FOUND);
}

#[test]
fn a_manager_that_comes_back_knows_all_names() {
    let site = Site::new();
    let manager = site.manager("manager");
    let a = complete_server(&site, "a", &manager);
    a.put("/d/f", "here");
    std::fs::create_dir_all(a.path("/empty/inner")).unwrap();
    manager.has_children(1);
    let (data, cluster) = (manager.running.address(), manager.cluster_address());
    drop(manager);
    let manager = site.manager_again("manager", data, cluster);
    has_complete_children(&manager, 1);
    let mut client = manager.client();
    assert_eq!(client.read("/d/f").unwrap(), "here");
    for directory in ["/d", "/empty", "/empty/inner"] {
        client.size(directory).unwrap();
    }
    assert_eq!(client.size("/none").unwrap_err().0, NOT_FOUND);
}

#[test]
fn after_a_directory_was_renamed_servers_are_queried() {
    let site = Site::new();
    let manager = site.manager("manager");
    let a = complete_server(&site, "a", &manager);
    manager.has_children(1);
    has_complete_children(&manager, 1);
    let mut client = manager.client();
    // The manager has never queried this server.
    a.client().create("/old/f").unwrap();
    a.client().call(&Request::Mv(Mv { arg1len: 4, args: b"/old /new" })).unwrap();
    until("the new name is known", || client.size("/new/f").is_ok());
}

#[test]
fn an_inventory_is_incomplete_if_a_directory_has_two_paths() {
    let site = Site::new();
    let manager = site.manager("manager");
    let a = site.server("a", &[&manager]);
    manager.has_children(1);
    a.put("/d/f", "");
    std::os::unix::fs::symlink("d", a.path("/link")).unwrap();
    let (data, cluster) = (manager.running.address(), manager.cluster_address());
    drop((manager, a));
    let manager = site.manager_again("manager", data, cluster);
    let _a = complete_server(&site, "a", &manager);
    manager.until("it has told its files", |engine| !engine.resolver().unwrap().cell().listed().is_empty());
    assert!(manager.look(|engine| engine.resolver().unwrap().cell().complete().is_empty()));
    manager.client().size("/link/f").unwrap();
}
