//! Random clients, children and faults against a model of the files that each child really has.
//!
//! Children reply late and in any order, join and leave, are real daemons or our own. In every case
//! each client gets an answer, and it is not sent to an absent or tried child. A file that a
//! connected child has and always had is never reported as missing, and no file is created in a
//! second place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

const CHILDREN: u8 = 4;
const PATHS: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    Read { path: u8, tried: Option<u8> },
    Create { path: u8 },
    Locate { path: u8 },
    Hear { child: u8 },
    Lose { child: u8 },
    Return { child: u8 },
    Replace { child: u8, holds: u8 },
    Pass { tenths: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let (path, child) = (0..PATHS, 0..CHILDREN);
    prop_oneof![
        4 => (path.clone(), prop::option::of(child.clone())).prop_map(|(path, tried)| Step::Read { path, tried }),
        3 => path.clone().prop_map(|path| Step::Create { path }),
        1 => path.prop_map(|path| Step::Locate { path }),
        12 => child.clone().prop_map(|child| Step::Hear { child }),
        1 => child.clone().prop_map(|child| Step::Lose { child }),
        2 => child.clone().prop_map(|child| Step::Return { child }),
        1 => (child, 0..1u8 << PATHS).prop_map(|(child, holds)| Step::Replace { child, holds }),
        2 => (0..80u16).prop_map(|tenths| Step::Pass { tenths }),
    ]
}

struct World {
    stage: Stage,
    holds: Vec<BTreeSet<u8>>,
    /// The queries that each child has not read yet.
    inbox: Vec<VecDeque<String>>,
    legacy: Vec<bool>,
    connected: Vec<bool>,
    /// Queries that real daemons lost with their connection after the query had timed out.
    excused: BTreeSet<(u8, String)>,
    /// Waiting clients: their requests, and their tried children.
    waiting: BTreeMap<u64, (Step, Vec<u8>)>,
    next: u64,
}

fn name(path: u8) -> String {
    format!("/f{path}")
}

impl World {
    fn new(legacy: Vec<bool>, holds: Vec<BTreeSet<u8>>) -> Self {
        let slots: Vec<u8> = (0..CHILDREN).filter(|slot| legacy[usize::from(*slot)]).collect();
        Self {
            stage: Stage::new(CHILDREN).legacy(&slots),
            holds,
            inbox: vec![VecDeque::new(); usize::from(CHILDREN)],
            legacy,
            connected: vec![true; usize::from(CHILDREN)],
            excused: BTreeSet::new(),
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    fn holders(&self, path: u8) -> Vec<u8> {
        (0..CHILDREN)
            .filter(|child| {
                self.connected[usize::from(*child)] && self.holds[usize::from(*child)].contains(&path)
            })
            .collect()
    }

    fn take(&mut self, step: Step) {
        let token = self.next;
        self.next += 1;
        let plain = SelectOptions::default();
        let answer = match &step {
            Step::Read { path, tried } => {
                let tried = tried.map(|child| format!("server{child}")).unwrap_or_default();
                self.stage.select(token, &name(*path), plain, &tried)
            }
            Step::Create { path } => self.stage.intend(token, &name(*path), Intent::Create),
            Step::Locate { path } => {
                let path = name(*path);
                let options = LocateFlags::default();
                let Stage { machine, now, actions, .. } = &mut self.stage;
                machine.locate(RequestToken(token), path.as_bytes(), options, *now, actions)
            }
            Step::Hear { child } => return self.hear(*child),
            Step::Lose { child } => return self.lose(*child),
            Step::Return { child } => return self.come_back(*child),
            Step::Replace { child, holds } => return self.replace(*child, *holds),
            Step::Pass { tenths } => {
                self.stage.pass(f64::from(*tenths) / 10.0);
                return self.look();
            }
        };
        let tried = if let Step::Read { tried: Some(child), .. } = step { vec![child] } else { Vec::new() };
        match answer {
            Some(answer) => self.judge(&step, &tried, &answer),
            None => drop(self.waiting.insert(token, (step, tried))),
        }
        self.look();
    }

    /// The child reads one query and replies truthfully.
    fn hear(&mut self, child: u8) {
        let at = usize::from(child);
        let Some(path) = self.inbox[at].pop_front() else { return };
        let number: u8 = path[2..].parse().unwrap();
        if self.holds[at].contains(&number) {
            self.stage.have(child, &path);
        } else if !self.legacy[at] {
            self.stage.not_here(&[child], &path);
        }
        self.look();
    }

    fn lose(&mut self, child: u8) {
        for path in std::mem::take(&mut self.inbox[usize::from(child)]) {
            if self.legacy[usize::from(child)] {
                self.excused.insert((child, path));
            }
        }
        self.connected[usize::from(child)] = false;
        self.stage.change(child, |child| child.state.connected = false);
        self.look();
    }

    fn come_back(&mut self, child: u8) {
        self.connected[usize::from(child)] = true;
        self.stage.change(child, |child| child.state.connected = true);
        self.look();
    }

    /// Another node, with other files, gets the slot, unless it would bring a second replica.
    fn replace(&mut self, child: u8, holds: u8) {
        let at = usize::from(child);
        self.inbox[at].clear();
        self.excused.retain(|(slot, _)| *slot != child);
        self.connected[at] = true;
        self.holds[at] = (0..PATHS).filter(|path| holds >> path & 1 == 1).collect();
        let mut server = server(child);
        server.says_not_here = !self.legacy[at];
        server.takes_leases = !self.legacy[at];
        let exports = ChildExport::parse_list(b"w /").unwrap();
        let Stage { machine, now, actions, .. } = &mut self.stage;
        machine.join(slot(child), server, &exports, *now, actions);
        self.look();
    }

    fn look(&mut self) {
        for action in std::mem::take(&mut self.stage.actions) {
            match action {
                ResolverAction::Ask { to, path, .. } => {
                    for child in to {
                        assert!(self.connected[child.index()], "asked one that is away");
                        let path = String::from_utf8(path.to_vec()).unwrap();
                        self.excused.remove(&(child.number(), path.clone()));
                        self.inbox[child.index()].push_back(path);
                    }
                }
                ResolverAction::Answer { token, answer } => {
                    let (step, tried) = self.waiting.remove(&token.0).expect("answered twice");
                    self.judge(&step, &tried, &answer);
                }
                // The client creates it at once.
                ResolverAction::Lease { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let waiters = self.stage.machine.stats().waiters;
        assert_eq!(waiters, self.waiting.len());
    }

    fn judge(&mut self, step: &Step, tried: &[u8], answer: &ClusterAnswer) {
        match (step, answer) {
            (Step::Read { .. }, ClusterAnswer::Redirect { slot: Some(to), .. }) => {
                assert!(self.connected[to.index()], "sent to one that is away");
                assert!(!tried.contains(&to.number()), "sent back");
            }
            (Step::Create { path }, ClusterAnswer::Redirect { slot: Some(to), .. }) => {
                let heard = |child: &u8| !self.unread(*child, *path);
                let others: Vec<u8> = self.holders(*path).into_iter().filter(heard).collect();
                assert_eq!(others, Vec::<u8>::new(), "made a second time, at {to:?}");
                // The client creates it, and the child reports it.
                self.holds[to.index()].insert(*path);
                self.stage.have(to.number(), &name(*path));
            }
            (
                Step::Read { path, .. } | Step::Locate { path },
                ClusterAnswer::Error(ErrorCode::NO_ENTRY, _),
            ) => {
                let left = |child: &u8| !tried.contains(child) && !self.unread(*child, *path);
                let left: Vec<u8> = self.holders(*path).into_iter().filter(left).collect();
                assert_eq!(left, Vec::<u8>::new(), "{step:?} nowhere");
            }
            _ => {}
        }
    }

    /// Reports whether a real daemon did not read its query before the timeout: then its state
    /// cannot be known.
    fn unread(&self, child: u8, path: u8) -> bool {
        let at = usize::from(child);
        self.legacy[at]
            && (self.inbox[at].contains(&name(path)) || self.excused.contains(&(child, name(path))))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_client_gets_a_true_answer(
        legacy in prop::collection::vec(prop::bool::weighted(0.3), usize::from(CHILDREN)),
        holds in prop::collection::vec(prop::collection::btree_set(0..PATHS, 0..2), usize::from(CHILDREN)),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(legacy, holds);
        for step in steps {
            world.take(step);
        }
        // After the faults every child reads its queries, and time passes.
        for child in 0..CHILDREN {
            world.come_back(child);
        }
        for _ in 0..10 {
            while let Some(child) = (0..CHILDREN).find(|child| !world.inbox[usize::from(*child)].is_empty()) {
                world.hear(child);
            }
            world.stage.pass(5.0);
            world.look();
        }
        prop_assert!(world.waiting.is_empty(), "still waiting: {:?}", world.waiting);
        prop_assert_eq!(world.stage.machine.stats().queries, 0);
        // Every existing file is found.
        for path in 0..PATHS {
            if world.holders(path).iter().all(|child| world.unread(*child, path)) {
                continue;
            }
            let mut answer = world.stage.read(u64::MAX, &name(path));
            world.waiting.insert(u64::MAX, (Step::Read { path, tried: None }, Vec::new()));
            if answer.is_none() {
                let asks: Vec<ResolverAction> = std::mem::take(&mut world.stage.actions);
                for ask in asks {
                    let ResolverAction::Ask { to, .. } = ask else { continue };
                    for child in to.iter().map(Slot::number) {
                        if world.holds[usize::from(child)].contains(&path) {
                            world.stage.have(child, &name(path));
                        } else {
                            world.stage.not_here(&[child], &name(path));
                        }
                    }
                }
                answer = world.stage.answered().pop().map(|(_, answer)| answer);
            }
            let to = sent_to(&answer.expect("answered"));
            prop_assert!(world.holds[usize::from(to)].contains(&path), "sent where it is not");
            world.waiting.clear();
            world.stage.actions.clear();
        }
    }
}
