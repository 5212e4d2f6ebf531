//! Tests of a server inside the test's own process.

#![allow(clippy::unwrap_used)] // a test fails at the line of the error

use base::Identity;
use config::{DirectorySetting, Effective, Port, Setting};
use server::{RunningServer, StartError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-running-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("data")).unwrap();
        Self(path)
    }

    fn configuration(&self) -> Effective {
        let mut effective = Effective::for_directory(&self.0.join("data"), false);
        effective.network.port = Setting::from_command_line(Port::Any);
        let admin = DirectorySetting { path: self.0.join("admin"), group: false };
        effective.process.admin_path = Setting::from_command_line(admin);
        effective
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn drain(running: &mut RunningServer) -> Vec<Identity> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(running.drain(Duration::from_secs(30)))
}

/// Sends the handshake of the xroot protocol and receives the reply.
fn greet(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    let mut hello = vec![0; 12];
    hello.extend([0, 0, 0, 4, 0, 0, 0x07, 0xdc]);
    stream.write_all(&hello).unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], [0, 0, 0, 0, 0, 0, 0, 8]);
    stream
}

#[test]
fn a_server_serves_and_closes_its_port_when_drained() {
    let scratch = Scratch::new("serve");
    let mut running = RunningServer::listen(&scratch.configuration()).unwrap();
    let address = running.address();
    let _client = greet(address);
    assert_eq!(running.connections(), 1);
    assert!(drain(&mut running).is_empty());
    assert!(TcpStream::connect(("127.0.0.1", address.port())).is_err());
}

#[test]
fn a_port_is_served_once() {
    let scratch = Scratch::new("port");
    let mut running = RunningServer::listen(&scratch.configuration()).unwrap();
    let mut second = scratch.configuration();
    second.network.port = Setting::from_command_line(Port::Number(running.address().port()));
    match RunningServer::listen(&second) {
        Err(StartError::Port { port, owner, .. }) => {
            assert_eq!(port, running.address().port());
            assert_eq!(owner.map(|owner| owner.pid), Some(std::process::id()));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two servers on one port"),
    }
    drain(&mut running);
}

#[test]
fn connections_of_another_protocol_are_closed_and_counted() {
    let scratch = Scratch::new("protocol");
    let mut running = RunningServer::listen(&scratch.configuration()).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", running.address().port())).unwrap();
    stream.write_all(b"EHLO somebody.example.org, how are you\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    assert_eq!(running.refused().unknown, 1);
    drain(&mut running);
}

#[test]
fn the_error_names_the_object_that_cannot_be_served() {
    let scratch = Scratch::new("missing");
    let mut effective = scratch.configuration();
    effective.storage.local_root = Setting::from_command_line(Some(scratch.0.join("nowhere")));
    let error = RunningServer::listen(&effective).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("/nowhere: no such file or directory"), "{error}");
}

#[test]
fn a_server_does_not_start_on_journals_that_another_user_planted() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("planted");
    for (journal, name) in [(".ofs/chkpnt", "7.checkpoint"), (".ofs/posc", "pending")] {
        let directory = scratch.0.join("admin").join(journal);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(name), "SCKP").unwrap();
        std::os::unix::fs::chown(directory.join(name), Some(65_534), None).unwrap();
        for planted in [directory.join(name), directory.clone()] {
            std::os::unix::fs::chown(&planted, Some(65_534), None).unwrap();
            let Err(error) = RunningServer::listen(&scratch.configuration()) else { panic!("it runs") };
            let text = error.to_string();
            let owner = "belongs to nobody (uid 65534), but this server runs as root (uid 0); start it as";
            assert!(text.contains(&format!("{} {owner}", planted.display())), "{text}");
        }
        std::fs::remove_dir_all(scratch.0.join("admin")).unwrap();
    }
}
