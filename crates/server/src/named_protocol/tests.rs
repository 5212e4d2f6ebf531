//! Tests of identities that a file of rules completes.

use super::*;
use auth::unix::UnixServer;
use config::{EntityMapFile, EntityProgram};
use std::path::PathBuf;
use std::sync::mpsc;

/// A file of rules that is removed in the end.
struct RuleFile(PathBuf);

impl RuleFile {
    fn new(name: &str, rules: &str) -> Self {
        let file = Self(std::env::temp_dir().join(format!("scalla-named-{name}-{}", std::process::id())));
        file.write(rules);
        file
    }

    fn write(&self, rules: &str) {
        std::fs::write(&self.0, rules).unwrap();
    }

    fn security(&self, refuses_others: bool) -> SecurityConfig {
        let mut security = SecurityConfig::default();
        security.enabled.value = true;
        security.entity_map.value = Some(EntityMapFile { path: self.0.clone(), refuses_others });
        security
    }
}

impl Drop for RuleFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn protocols(security: &SecurityConfig) -> Vec<Arc<dyn ServerProtocol>> {
    with_names(vec![Arc::new(UnixServer), Arc::new(UnixServer)], security).unwrap()
}

fn log_in(protocol: &Arc<dyn ServerProtocol>, host: &str) -> Result<Entity, String> {
    let address = "192.0.2.1:1".parse().unwrap();
    let peer = LoginPeer { address, host: host.to_owned(), login_id: "x".to_owned(), is_tls: false };
    let mut login = protocol.begin(&peer);
    assert_eq!(login.cost(), StepCost::Expensive, "a file can have thousands of rules");
    loop {
        match login.step(b"unix\0alice staff\0", SystemTime::now()) {
            ServerStep::Done(entity) => return Ok(entity),
            ServerStep::Refused(refused) => return Err(refused.reason().to_owned()),
            ServerStep::Later => {
                let (wake, woken) = mpsc::channel();
                login.wake_when_ready(Box::new(move || wake.send(()).unwrap()));
                woken.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            ServerStep::Continue(_) => panic!("unix has one step"),
        }
    }
}

#[test]
fn rules_name_clients_by_all_protocols_and_a_reload_replaces_them_once() {
    let file = RuleFile::new("reload", "host=*.lab.org -> user=lab\nname=alice group=staff -> user=ann\n");
    let protocols = protocols(&file.security(true));
    let name = |host: &str| log_in(&protocols[1], host).unwrap().name.clone().unwrap();
    assert_eq!((&*name("c.lab.org"), &*name("c.org")), ("lab", "ann"));
    assert!(protocols.iter().all(|protocol| protocol.needs_host_name()));
    file.write("name=bob -> keep\n");
    assert_eq!(protocols[1].refresh(), Ok(()), "the first protocol reads the file");
    assert_eq!(&*name("c.org"), "ann");
    assert_eq!(protocols[0].refresh(), Ok(()));
    let refused = log_in(&protocols[1], "c.org").unwrap_err();
    assert!(refused.contains("no rule matches alice (unix) at c.org (sec.entitymap)"), "{refused}");
    assert!(!protocols[1].needs_host_name());
    file.write("nonsense\n");
    assert!(protocols[0].refresh().unwrap_err().contains(":1: a rule has the form"));
    assert!(log_in(&protocols[0], "c.org").is_err(), "the earlier rules are in force");
    assert!(protocols[0].state().contains("as read earlier") && protocols[1].state().is_empty());
    assert_eq!((protocols[0].periodic_refreshes().len(), protocols[1].periodic_refreshes().len()), (1, 0));
}

#[test]
fn a_file_that_cannot_be_used_stops_the_start() {
    let file = RuleFile::new("start", "-> keep\nuser=a\n");
    let Err(StartError::Security(text)) = with_names(Vec::new(), &file.security(false)).map(drop) else {
        panic!("it starts")
    };
    assert!(text.contains(":2: a rule has the form") && text.starts_with("sec.entitymap: "), "{text}");
}

#[test]
fn the_program_has_the_names_of_the_map() {
    let file = RuleFile::new("program", "name=alice -> user=ann groups=lab\n");
    let mut security = file.security(false);
    let script = "echo name=$ENTITY_NAME-$ENTITY_GROUPS";
    let arguments = ["-c", script].map(str::to_owned).to_vec();
    security.entity_program.value = Some(EntityProgram { path: "/bin/sh".into(), arguments });
    let entity = log_in(&protocols(&security)[0], "h").unwrap();
    assert_eq!((entity.name.as_deref(), entity.map_line), (Some("ann-lab"), Some(1)));
}
