//! Tests of the cluster settings that result from the text of a configuration.

use super::*;
use crate::cluster::health::LoadSampling;
use config::{ConfigInput, Evaluation, MemorySource, Strictness, load};
use std::path::PathBuf;

struct Node {
    effective: Effective,
    admin: PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.admin).ok();
    }
}

fn node(name: &str, text: &str) -> Node {
    let admin = std::env::temp_dir().join(format!("scalla-configured-{name}-{}", std::process::id()));
    let request = ConfigInput {
        file: Some("f".to_owned()),
        evaluation: Evaluation {
            program: "xrootd".to_owned(),
            instance: Some("i".to_owned()),
            host: "disk1.invalid".to_owned(),
            ..Evaluation::default()
        },
        strictness: Strictness::Strict,
        ..ConfigInput::default()
    };
    let text = format!("all.adminpath {}\n{text}", admin.display());
    let loaded = load(&request, &MemorySource::new().with("f", text));
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    Node { effective: loaded.effective, admin }
}

fn told(name: &str, text: &str) -> Settings {
    configured(&node(name, text).effective, 4711).unwrap().unwrap()
}

fn refused(name: &str, text: &str) -> String {
    configured(&node(name, text).effective, 4711).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_server_without_a_manager_is_in_no_cluster() {
    assert!(configured(&node("alone", "all.export /\n").effective, 1).unwrap().is_none());
}

#[test]
fn the_login_of_a_server_has_its_exports_and_its_id() {
    let settings = told(
        "server",
        "all.manager m1.invalid:1213\nall.manager m2.invalid:1213\ncms.ping 30\ncms.vnid =v7\nall.sitename S\n\
         all.export /w\nall.export /r r/o\nall.export /cache cache\nall.export /l local\nall.export /g globalro\n",
    );
    assert_eq!(settings.role, NodeRole::Server);
    assert!(settings.parent.is_none() && settings.listen.port == 0);
    let [child] = settings.children.as_slice() else { panic!("{:?}", settings.children) };
    assert_eq!(
        child.managers,
        [Address::new("m1.invalid", 1213), Address::new("m2.invalid", 1213)],
        "replicated managers are one membership"
    );
    assert_eq!(child.ping.as_secs(), 30);
    let login = &child.login;
    assert_eq!(login.paths, "w /w\nr /r\nr /cache\nr /g");
    assert_eq!(login.id, "*s-v7 1213m11213m2.invalid");
    assert_eq!((login.host.as_deref(), login.site.as_deref()), (Some("disk1.invalid"), Some("S")));
    assert!(login.mode.contains(Mode::SERVER) && !login.mode.contains(Mode::MANAGER));
    assert!(settings.own_addresses.iter().all(|address| address.port() == 4711));
    assert!(refused("local", "all.manager m:1\nall.export /x local\n").contains("every export is local"));
}

#[test]
fn an_id_that_is_not_configured_is_stored() {
    let node = node("kept", "all.manager m.invalid:1\n");
    let id = |effective: &Effective| configured(effective, 1).unwrap().unwrap().children[0].login.id.clone();
    let first = id(&node.effective);
    assert!(first.starts_with("*s-disk1-"), "{first}");
    let mut moved = node.effective.clone();
    moved.host = "another.invalid".to_owned();
    assert_eq!(id(&moved), first, "it holds at another address");
}

#[test]
fn each_site_is_a_membership_of_its_own() {
    let settings =
        told("sites", "all.manager a.invalid:1@A\nall.manager b.invalid:1@B\nall.manager c.invalid:1@A\n");
    let sites: Vec<_> = settings.children.iter().map(|child| (child.site, child.managers.len())).collect();
    assert_eq!(sites, [(0, 2), (1, 1)]);
}

#[test]
fn a_manager_finds_its_port_among_the_managers() {
    let text = "all.role manager\nall.manager elsewhere.invalid:1\nall.manager 127.0.0.1:5001\n";
    let settings = told("own", text);
    assert_eq!(settings.listen.port, 5001);
    let parent = settings.parent.unwrap();
    assert!(parent.replicas, "there is another one");
    assert_eq!(parent.address, Address::new("127.0.0.1", 5001));
    assert_eq!(parent.minimum, Minimum::Percent(80));
    assert!(settings.children.is_empty());
    let named = "all.role manager\nall.manager 127.0.0.1:5001%i\nall.manager 127.0.0.1:5002%other\n";
    assert_eq!(told("named", named).listen.port, 5001, "by instance");
    let two = "all.role manager\nall.manager 127.0.0.1:5001\nall.manager 127.0.0.1:5002\n";
    assert_eq!(told("last", two).listen.port, 5002);
    let chosen = format!("{two}xrd.port 5001 if exec cmsd\n");
    assert_eq!(told("chosen", &chosen).listen.port, 5001);
    let wins = "all.role manager\nall.manager 127.0.0.1:5001\nxrd.port 7 if exec cmsd\n";
    assert_eq!(told("wins", wins).listen.port, 5001, "as with real managers");
    let far = "all.role manager\nall.manager elsewhere.invalid:1\n";
    let text = refused("far", far);
    assert!(text.contains("f:3:1") && text.contains("is none of the managers"), "{text}");
    assert_eq!(told("port", &format!("{far}xrd.port 5003 if exec cmsd\n")).listen.port, 5003);
    assert_eq!(told("bare", "all.role manager\n").listen.port, config::CLUSTER_PORT_DEFAULT);
}

#[test]
fn roles_have_their_parents_and_modes() {
    let supervisor = told("sup", "all.role supervisor\nall.manager m.invalid:1\ncms.superport 5004\n");
    assert_eq!(supervisor.listen.port, 5004);
    assert_eq!(supervisor.parent.as_ref().map(|parent| parent.minimum), Some(Minimum::Count(1)));
    let login = &supervisor.children[0].login;
    assert!(login.mode.contains(Mode::MANAGER | Mode::SERVER) && login.id.starts_with("*u-"), "{}", login.id);
    let below =
        "all.role manager\nall.manager meta top.invalid:1\nall.manager 127.0.0.1:5005\ncms.sched gshr 40\n";
    let manager = told("below", below);
    let login = &manager.children[0].login;
    assert_eq!(manager.children[0].managers, [Address::new("top.invalid", 1)]);
    assert_eq!(login.mode.share_percent(), 40);
    assert!(login.mode.contains(Mode::MANAGER) && !login.mode.contains(Mode::SERVER));
    let sub = told("sub", "all.role manager\nall.manager 127.0.0.1:5006\nall.subcluster of top.invalid:9\n");
    assert!(sub.children[0].login.mode.contains(Mode::SUBMAN));
    let meta = told("meta", "all.role meta manager\nall.manager meta 127.0.0.1:5007\n");
    assert_eq!((meta.role, meta.listen.port, meta.children.len()), (NodeRole::MetaManager, 5007, 0));
}

#[test]
fn numbers_are_passed_to_the_settings_they_control() {
    let text = "all.role manager\nall.manager 127.0.0.1:5008\ncms.ping 7 usage 3\ncms.fxhold noloc 2m 1h\n\
        cms.delay lookup 4 service 6 suspend 8 drop 90 hold 200 servers 3 full 9 nostage 2\n\
        cms.sched cpu 50 fuzz 10 maxload 80 affinity default strong affpath last 2 maxretries 3@h:5\n\
        cms.space linger 2 mwfiles\ncms.conwait 12\n";
    let settings = told("numbers", text);
    let seconds = Duration::from_secs;
    let parent = settings.parent.unwrap();
    assert_eq!((parent.ping, parent.usage, parent.drop), (seconds(7), 3, seconds(90)));
    assert_eq!((parent.hold.as_millis(), parent.minimum), (200, Minimum::Count(3)));
    assert_eq!(settings.resolve.silence, seconds(4), "as lookup without qdl");
    assert_eq!((settings.cache.window, settings.cache.nowhere), (seconds(3600), Some(seconds(120))));
    let policy = &settings.policy;
    assert_eq!((policy.weights.cpu, policy.fuzz, policy.load_max), (50, 10, Some(80)));
    assert_eq!((policy.affinity, policy.affinity_by_client), (ClientAffinity::Strong, true));
    assert_eq!((policy.affinity_path, policy.linger, policy.copies), (AffinityPath::Last(2), 2, true));
    assert_eq!((policy.tried_max, policy.tried_elsewhere.as_ref().map(|e| e.port)), (Some(3), Some(5)));
    assert_eq!((policy.waits.service, policy.waits.full), (seconds(6), Some(seconds(9))));
    assert_eq!(policy.waits.overload, Some(seconds(7 * 3 + 30)));
    let silence = told("qdl", "all.role manager\ncms.delay qdl 1\n").resolve.silence;
    assert_eq!(silence, seconds(1));
}

#[test]
fn both_lists_of_hosts_have_to_agree() {
    let admits = |text: &str, ip: &str| {
        let settings = told("admission", &format!("all.role manager\nxrd.network nodnr\n{text}"));
        let ip = ip.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        settings.admission.is_none_or(|admission| runtime.block_on(admission(ip)))
    };
    assert!(admits("", "10.0.0.1"));
    assert!(admits("cms.allow host 10.*\n", "10.0.0.1"));
    assert!(!admits("cms.allow host 11.*\n", "10.0.0.1"));
    assert!(!admits("cms.allow host 10.*\nxrd.allow host 11.* if exec cmsd\n", "10.0.0.1"));
    assert!(admits("cms.allow host 10.*\nxrd.allow host 11.* if exec xrootd\n", "10.0.0.1"));
}

#[test]
fn the_measurements_depend_on_the_role() {
    let of = |name: &str, text: &str| {
        let node = node(name, text);
        (health(&node.effective), node)
    };
    let (server, _node) = of(
        "measured",
        "all.manager m.invalid:1\ncms.space recalc 20 min 3% 4g 5% 6g\ncms.perf int 30 pgm /bin/p a\n\
         cms.blacklist\ncms.sched fuzz 5\nall.export /a\nall.export /l local\n",
    );
    let program = LoadSampling::Program {
        command: vec!["/bin/p".to_owned(), "a".to_owned()],
        interval: Duration::from_secs(30),
    };
    assert_eq!((server.load, server.fuzz, server.list), (Some(program), 5, None));
    let (rules, paths) = server.space.unwrap();
    assert_eq!((rules.recalculate.as_secs(), rules.least_percent, rules.enough_bytes), (20, 3, 6 << 30));
    assert_eq!(paths.len(), 1, "of what the cluster hears of");
    let (manager, _node) = of("list", "all.role manager\ncms.blacklist check 2m\n");
    assert_eq!((manager.load, manager.space), (None, None));
    let list = manager.list.unwrap();
    assert_eq!((list.path, list.white, list.check.as_secs()), ("cms.blacklist".into(), false, 120));
}

#[test]
fn nodes_of_a_cluster_of_proxies_log_in_as_such() {
    let managers = "all.manager m.invalid:1\nall.manager proxy p.invalid:2\npss.origin o.invalid:3\n";
    let proxy = told("proxy", &format!("{managers}all.role proxy server\ncms.vnid =v\n"));
    let [child] = proxy.children.as_slice() else { panic!("{:?}", proxy.children) };
    assert_eq!(child.managers, [Address::new("p.invalid", 2)]);
    assert!(child.login.mode.contains(Mode::SERVER | Mode::PROXY));
    assert_eq!(child.login.id, "*S-v 2p.invalid");
    assert_eq!(proxy.acceptor(), AcceptorRole::Server);
    let manager = told(
        "proxy-manager",
        "all.role proxy manager\nall.manager proxy localhost:2\nall.manager meta t.invalid:1\npss.origin o.invalid:3\n",
    );
    assert_eq!(manager.parent.as_ref().map(|parent| parent.acceptor), Some(AcceptorRole::ProxyManager));
    assert!(manager.policy.shared.is_some_and(|shared| shared.unchecked && !shared.central));
    assert!(manager.children[0].login.mode.contains(Mode::MANAGER | Mode::PROXY));
    let supervisor = told("proxy-supervisor", &format!("{managers}all.role proxy supervisor\n"));
    assert_eq!(supervisor.acceptor(), AcceptorRole::ProxySupervisor);
    assert!(supervisor.children[0].login.mode.contains(Mode::MANAGER | Mode::SERVER | Mode::PROXY));
}
