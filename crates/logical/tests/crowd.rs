//! Randomised test of many clients on few names, from seeds: no state is left behind, no call waits
//! for ever, and acknowledged data exists.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::thread;
use support::{Client, Server, caller, creating, reading, replacing, target, updating};
use vfs::{Answer, CheckpointWork, FileOperation, OpenFile, OpenRequest, Operation, Value};

const CLIENTS: u32 = 8;
const STEPS: u32 = 400;

/// A pseudo-random generator; the same seed gives the same numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn step(client: &Client, dice: &mut Dice, open: &mut Vec<Arc<dyn OpenFile>>) {
    let directory = ["/data", "/nolock"][dice.roll(2) as usize];
    let name = format!("{directory}/{}", dice.roll(4));
    let request = OpenRequest { posc: dice.roll(2) == 0, force: dice.roll(4) == 0, ..OpenRequest::default() };
    let any = |dice: &mut Dice, open: &Vec<Arc<dyn OpenFile>>| {
        (!open.is_empty()).then(|| open[dice.roll(open.len() as u64) as usize].clone())
    };
    match dice.roll(12) {
        0..=3 => {
            let kind = [creating(), replacing(), updating(), reading()][dice.roll(4) as usize].clone_flags();
            let request = OpenRequest { posc: request.posc, force: request.force, ..kind };
            if let Answer::Value(Value::Opened(opened)) = client.open(&name, request).answer() {
                open.push(opened.file);
            }
        }
        4..=5 => {
            if let Some(file) = any(dice, open) {
                let _ = client.write(&file, dice.roll(100), &[dice.0 as u8; 10]).answer();
            }
        }
        6..=7 => {
            if !open.is_empty() {
                let file = open.swap_remove(dice.roll(open.len() as u64) as usize);
                match dice.roll(3) {
                    0 => drop(client.abandon(&file).answer()),
                    1 => drop(file),
                    _ => drop(client.close(&file).answer()),
                }
            }
        }
        8 => drop(client.call(Operation::Remove(target(&name))).answer()),
        9 => {
            let to = target(&format!("{directory}/{}", dice.roll(4)));
            drop(client.call(Operation::rename(target(&name), to)).answer());
        }
        10 => {
            if let Some(file) = any(dice, open) {
                let work = [CheckpointWork::Begin, CheckpointWork::Commit, CheckpointWork::RollBack]
                    [dice.roll(3) as usize];
                drop(client.on_file(&file, FileOperation::Checkpoint(work)).answer());
            }
        }
        _ => drop(client.call(Operation::Checksum(target(&name))).answer()),
    }
}

/// Copies the options without templates, which cannot be cloned.
trait Flags {
    fn clone_flags(&self) -> OpenRequest;
}

impl Flags for OpenRequest {
    fn clone_flags(&self) -> OpenRequest {
        let Self { read, write, new, delete, mode, .. } = *self;
        OpenRequest { read, write, new, delete, mode, ..Self::default() }
    }
}

#[test]
fn many_clients_leave_no_state_behind() {
    for seed in 1..=4_u64 {
        let server = Server::with(|config| config.checksums.types = vec![digest::Algorithm::Adler32]);
        let crowd: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client::new(server.logical.clone(), caller("crowd", number));
                let mut dice = Dice(seed << 32 | u64::from(number + 1) << 8 | 0x55);
                thread::spawn(move || {
                    let mut open = Vec::new();
                    for _ in 0..STEPS {
                        step(&client, &mut dice, &mut open);
                    }
                    for file in open {
                        drop(client.abandon(&file).answer());
                    }
                })
            })
            .collect();
        crowd.into_iter().for_each(|client| client.join().unwrap());
        server.settle();
        server.after(601);
        while server.logical.status().checksums > 0 {
            thread::yield_now();
        }
        assert_eq!(server.logical.status(), logical::LogicalStatus::default(), "seed {seed}");
        assert_eq!(server.checkpoints.len(), 0, "seed {seed}");
        // No remaining file has a mark that would never be removed.
        for directory in ["/data", "/nolock"] {
            for name in 0..4 {
                let path = format!("{directory}/{name}");
                if let Some(mode) = server.memory.mode(&path) {
                    assert_eq!(mode & 0o1000, 0, "seed {seed} {path}");
                }
            }
        }
        let next = server.restarted();
        assert_eq!(next.logical.status(), logical::LogicalStatus::default(), "seed {seed}");
    }
}
