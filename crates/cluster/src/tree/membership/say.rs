//! What a node tells its parents about itself.

use std::time::Duration;

use super::super::action::Action;
use super::super::address::Address;
use super::super::limits::ANSWERED;
use super::super::link::LinkId;
use super::super::member::{Load, Space};
use super::super::message::{CellReport, Login, Message, Status};
use super::Membership;

use wire::cms::Extensions;
use wire::cms::flags::Mode;
use wire::cms::message::SpaceSums;

/// Cells in one report: with the nodes they may name as arrived, it fits a frame.
const CELLS_PER_REPORT: usize = 32;

/// Nodes named as arrived in one report.
const JOINED_PER_REPORT: usize = 512;

impl Membership {
    pub(super) fn load_message(&self) -> Message {
        let space = self.settings.login.space;
        // How full the disks are is told with the load, and measured with the space.
        let load = Load { disk: space.used_percent, ..self.load };
        Message::Load { load, free_mb: space.free_mb }
    }

    pub(super) fn avail_message(&self) -> Message {
        let space = self.settings.login.space;
        Message::Avail { free_mb: space.free_mb, used_percent: space.used_percent, sums: self.sums }
    }

    /// What a new parent has to know that the login did not say.
    pub(super) fn introduce(&self, link: LinkId, peer: Extensions, out: &mut Vec<Action>) {
        // What changed between the login and its reply.
        out.push(Action::Send { link, message: self.status_message(peer) });
        if self.load != Load::default() {
            out.push(Action::Send { link, message: self.load_message() });
        }
        if self.sums.is_some() {
            out.push(Action::Send { link, message: self.avail_message() });
        }
    }

    /// A parent that is not ours knows no node that moves its clients away but still serves what nobody else has: to it
    /// such a node takes no clients.
    fn status_message(&self, peer: Extensions) -> Message {
        let login = &self.settings.login;
        let serves = !login.mode.contains(Mode::SUSPEND) && (peer.is_own() || !self.draining);
        Message::Status(Status {
            serves: Some(serves),
            data_port: Some(login.data_port).filter(|port| serves && *port != 0),
            stages: Some(!login.mode.contains(Mode::NOSTAGE)),
            drains: self.drains().then_some(true),
            reset: false,
        })
    }

    fn say(&self, message: &Message, out: &mut Vec<Action>) {
        for (link, _) in self.parents() {
            out.push(Action::Send { link, message: message.clone() });
        }
    }

    /// The node serves or not, and where; can bring files online or not. Parents are told when it is news.
    pub fn set_condition(&mut self, serves: bool, stages: bool, data_port: u16, out: &mut Vec<Action>) {
        let login = &mut self.settings.login;
        let before = (login.mode, login.data_port);
        login.data_port = data_port;
        for (bit, set) in [(Mode::SUSPEND, !serves), (Mode::NOSTAGE, !stages)] {
            login.mode = if set { login.mode | bit } else { login.mode.without(bit) };
        }
        if before != (login.mode, login.data_port) {
            self.say_status(None, out);
        }
    }

    /// The node's clients are to move elsewhere, or not any more. Parents are told when it is news.
    pub fn set_draining(&mut self, draining: bool, out: &mut Vec<Action>) {
        if self.draining != draining {
            self.draining = draining;
            self.say_status(Some(self.drains()), out);
        }
    }

    /// The clients of all nodes below are to move elsewhere, or not any more. Parents of our own are told when it is news; others
    /// know no node that serves only what nobody else has.
    pub fn set_drained_below(&mut self, drained: bool, out: &mut Vec<Action>) {
        let before = self.drains();
        self.drained_below = drained;
        if before != self.drains() {
            let status = Status { drains: Some(self.drains()), ..Status::default() };
            for (link, _) in self.parents().filter(|(_, peer)| peer.is_own()) {
                out.push(Action::Send { link, message: Message::Status(status) });
            }
        }
    }

    fn drains(&self) -> bool {
        self.draining || self.drained_below
    }

    /// What the parents know about the files here is void, whether they asked or were told unasked: those of our own are told.
    pub fn void(&self, out: &mut Vec<Action>) {
        for (link, _) in self.parents().filter(|(_, peer)| peer.is_own()) {
            let message = Message::Status(Status { reset: true, ..Status::default() });
            out.push(Action::Send { link, message });
        }
    }

    /// Whether the node's clients are to move elsewhere.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    fn say_status(&self, drains: Option<bool>, out: &mut Vec<Action>) {
        for (link, peer) in self.parents() {
            let message = match self.status_message(peer) {
                Message::Status(status) => {
                    Message::Status(Status { drains: drains.or(status.drains), ..status })
                }
                other => other,
            };
            out.push(Action::Send { link, message });
        }
    }

    /// What the node says of itself at its next login.
    pub fn login(&self) -> &Login {
        &self.settings.login
    }

    /// The node's paths, told at the next login.
    pub fn set_paths(&mut self, paths: String) {
        self.settings.login.paths = paths;
    }

    /// The node's space, as it was said last.
    pub fn space(&self) -> Space {
        self.settings.login.space
    }

    /// The node's space. Parents are told if `tell`.
    pub fn set_space(&mut self, space: Space, tell: bool, out: &mut Vec<Action>) {
        self.settings.login.space = space;
        if tell {
            self.say(&self.avail_message(), out);
        }
    }

    /// Space of all nodes below together, for an inner node; told with the next word of space.
    pub fn set_sums(&mut self, sums: SpaceSums) {
        self.sums = Some(sums);
    }

    /// Where clients of the cluster begin, as the parent said.
    pub fn door(&self) -> Option<&Address> {
        self.door.as_ref()
    }

    /// Whether this connection is one to a parent of our own.
    pub fn is_own(&self, link: LinkId) -> bool {
        self.parents().any(|(parent, peer)| parent == link && peer.is_own())
    }

    /// Space of all nodes below together, as it was said last.
    pub fn sums(&self) -> Option<SpaceSums> {
        self.sums
    }

    /// The node's load, as it was said last.
    pub fn load(&self) -> Load {
        self.load
    }

    /// The node's load. Parents are told if `tell`.
    pub fn set_load(&mut self, load: Load, tell: bool, out: &mut Vec<Action>) {
        self.load = load;
        if tell {
            self.say(&self.load_message(), out);
        }
    }

    /// A parent asked whether a file is here.
    pub fn asked(&mut self, link: LinkId, now: Duration) {
        if let Some(which) = self.which(link)
            && let Some(line) = self.line(which)
        {
            line.asked = Some(now);
        }
    }

    /// What the parents know about the files here is void: those that asked since they were told last are told, and those that
    /// need not ask because they have the names of all files.
    pub fn reset(&mut self, now: Duration, out: &mut Vec<Action>) {
        let message = Message::Status(Status { reset: true, ..Status::default() });
        for line in self.roots.iter_mut().chain(&mut self.inner) {
            let Some(link) = line.link.filter(|_| line.is_attached()) else { continue };
            if line.asked.is_none() && !line.extensions.contains(Extensions::COMPLETE) {
                continue;
            }
            out.push(Action::Send { link, message: message.clone() });
            line.asked.take_if(|asked| now > *asked + ANSWERED);
        }
    }

    /// Tells parents of our own about cells: all of them, or the one on `only`.
    pub fn report(&self, reports: &[CellReport], only: Option<LinkId>, out: &mut Vec<Action>) {
        for (link, extensions) in self.parents() {
            if !extensions.is_own() || only.is_some_and(|only| only != link) {
                continue;
            }
            for part in parts(reports) {
                out.push(Action::Send { link, message: Message::Occupancy(part.to_vec()) });
            }
        }
    }
}

/// Cuts reports into those that fit a frame.
fn parts(mut reports: &[CellReport]) -> Vec<&[CellReport]> {
    let mut parts = Vec::new();
    while !reports.is_empty() {
        let mut joined = 0;
        let fitting = reports.iter().take(CELLS_PER_REPORT).take_while(|report| {
            joined += report.joined.len();
            joined <= JOINED_PER_REPORT
        });
        let (part, rest) = reports.split_at(fitting.count().max(1));
        parts.push(part);
        reports = rest;
    }
    parts
}
