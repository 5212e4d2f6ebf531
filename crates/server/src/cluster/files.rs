//! Messages about files: questions going down, answers going up, and what the location machine wants done.

use super::askers::{Asker, Parent};
use super::engine::Engine;
use super::line::Stage;
use super::questions::Wish;
use super::rights::LoginClass;
use super::settings::Role;
use cluster::tree::{Extensions, LinkId};
use cluster::{Action, LocateOptions, SelectOptions, SlotMask, StateAsk, StateReply};
use wire::cms::flags::{HaveModifier, InventoryModifier, StateModifier, StatsModifier};
use wire::cms::message::{Gone, Have, NotHere, PathBatch, State};
use wire::cms::response::Answer as WireAnswer;
use wire::cms::{ErrorCode, Frame, Message as Wire, StreamId};

impl Engine {
    /// A message that is not about the tree.
    pub(super) fn about_files(&mut self, link: LinkId, stage: Stage, frame: &Frame<'_>, message: &Wire<'_>) {
        let class = LoginClass::of(link, stage);
        if class == LoginClass::Redirector {
            return self.request(link, frame, message);
        }
        if class == LoginClass::Parent {
            return match message {
                Wire::State(state) => self.parent_asks(link, frame.header.streamid, state),
                Wire::Lease(lease) => self.leased(link, lease),
                Wire::Inventory(inventory) if inventory.modifier.contains(InventoryModifier::WANTED) => {
                    self.inventory_wanted(link);
                }
                message => self.order(link, class, frame, message),
            };
        }
        // Nodes that have no place yet say nothing about files.
        let Some(slot) = self.node.slot(link) else { return };
        match message {
            Wire::Have(have) if have.modifier.contains(HaveModifier::LEASED) => {
                self.resolve(|resolver, now, out| resolver.have_leased(slot, have.path, now, out));
            }
            Wire::Have(have) => {
                if let Some(holdings) = &mut self.holdings {
                    holdings.appeared(have.path);
                }
                let pending = have.modifier.contains(HaveModifier::PENDING);
                let own = self.lines.get(&link).is_some_and(|line| line.extensions.is_own());
                if own && have.modifier.contains(HaveModifier::DRAINING) {
                    self.resolve(|resolver, now, out| resolver.have_draining(slot, have.path, now, out));
                } else {
                    self.resolve(|resolver, now, out| resolver.have(slot, have.path, pending, now, out));
                }
            }
            Wire::Gone(gone) => {
                self.resolve(|resolver, now, out| resolver.gone(slot, gone.path, now, out));
            }
            Wire::NotHere(not_here) => {
                self.resolve(|resolver, now, out| resolver.not_here(slot, not_here.path, now, out));
            }
            Wire::Inventory(inventory) => {
                let pending = inventory.modifier.contains(InventoryModifier::PENDING);
                self.resolve(|resolver, now, out| {
                    inventory.paths().for_each(|path| resolver.inventory(slot, path, pending, now, out));
                    if inventory.modifier.contains(InventoryModifier::LAST) {
                        resolver.listed(slot);
                    }
                });
                // Of one that is being emptied more is to be said than this can.
                let drains = self
                    .node
                    .members()
                    .and_then(|members| members.member(slot))
                    .is_some_and(|member| member.condition.drains());
                if !drains {
                    self.pass_on_inventory(frame);
                }
            }
            _ => {}
        }
    }

    /// What a redirector asks.
    fn request(&mut self, link: LinkId, frame: &Frame<'_>, message: &Wire<'_>) {
        let streamid = frame.header.streamid;
        let (path, wish) = match message {
            Wire::Select(select) => {
                let tried = select.avoid.unwrap_or_default().into();
                (select.path, Wish::Select { options: SelectOptions::from(select.options), tried })
            }
            Wire::Locate(locate) => (locate.path, Wish::Locate(LocateOptions::from(locate.options))),
            Wire::Stats(modifier) if !modifier.contains(StatsModifier::SIZE) => {
                let text = self.answer_to_stats();
                let answer = WireAnswer::Data { value: 0, text: Some(text.as_bytes()) };
                return self.respond_with(link, streamid, None, answer);
            }
            message => return self.order(link, LoginClass::Redirector, frame, message),
        };
        let takes_later = match message {
            Wire::Select(select) => select.options.contains(wire::cms::flags::SelectOptions::STAT),
            _ => true,
        };
        self.ask(path, &wish, Asker::Redirector { link, streamid, promised: None, takes_later });
    }

    /// A frame that cannot be read. Redirectors are told, nodes are not.
    pub(super) fn unreadable(&mut self, link: LinkId, stage: Stage, frame: &Frame<'_>) {
        match stage {
            Stage::Anonymous => self.ended(link),
            Stage::Redirector => self.refuse_request(link, frame.header.streamid),
            Stage::Asking | Stage::Node => {}
        }
    }

    /// Tells a redirector that nobody here does what it asked for.
    pub(super) fn refuse_request(&mut self, link: LinkId, streamid: StreamId) {
        let text = b"badly formed or unsupported request";
        self.respond_with(link, streamid, None, WireAnswer::Error { code: ErrorCode::INVALID, text });
    }

    /// A parent asks whether a path is here.
    fn parent_asks(&mut self, link: LinkId, streamid: StreamId, state: &State<'_>) {
        let has = |bit| state.modifier.contains(bit);
        if has(StateModifier::NO_REPLY) {
            self.renew(state.path);
            let children = self.resolver.as_ref().map(|resolver| resolver.cell().connected());
            self.freshen(children.unwrap_or_default(), state.path);
        }
        let extensions = self.lines.get(&link).map(|line| line.extensions).unwrap_or_default();
        let parent = Parent {
            link,
            streamid,
            path: state.path.into(),
            definite: has(StateModifier::DEFINITE) && extensions.contains(Extensions::NOT_HERE),
        };
        if self.resolver.is_none() {
            // What was asked without wanting an answer has none.
            if !has(StateModifier::NO_REPLY) {
                self.look(parent);
            }
            return;
        }
        let ask = StateAsk {
            refresh: has(StateModifier::REFRESH),
            quiet: has(StateModifier::NO_REPLY),
            // A manager's parents are meta managers.
            via_meta: has(StateModifier::META) || self.settings.role == Role::Manager,
        };
        let token = self.askers.token();
        let reply = self.resolve(|resolver, now, out| resolver.state(token, state.path, ask, now, out));
        match reply.flatten() {
            Some(reply) => self.answer_parent(&parent, reply),
            None if ask.quiet => {}
            None => {
                let now = self.now();
                self.askers.wait_above(token, parent, now);
            }
        }
    }

    /// Tells a parent what it asked for. Silence is the only "not here" that real ones know.
    pub(super) fn answer_parent(&mut self, parent: &Parent, reply: StateReply) {
        let message = match reply {
            StateReply::Have { pending } => {
                let modifier = self.modifier(&parent.path, pending);
                return self.put(parent.link, |peer, out| {
                    have(&parent.path, modifier, peer).encode(parent.streamid, peer, out)
                });
            }
            StateReply::NotHere if parent.definite => {
                self.tell_ended_lease(parent);
                Wire::NotHere(NotHere { path: &parent.path })
            }
            StateReply::NotHere => return,
        };
        self.put(parent.link, |peer, out| message.encode(parent.streamid, peer, out));
    }

    /// Connections to parents.
    pub(super) fn parents(&self) -> Vec<LinkId> {
        let memberships = self.node.memberships().iter();
        memberships.flat_map(|membership| membership.parents().map(|(link, _)| link)).collect()
    }

    /// Tells all parents that a path is here now, though none asked.
    pub(super) fn announce(&mut self, path: &[u8], pending: bool) {
        let modifier = self.modifier(path, pending);
        for link in self.parents() {
            self.put(link, |peer, out| have(path, modifier, peer).encode(StreamId::NONE, peer, out));
        }
    }

    /// How a path is here, as parents are told.
    fn modifier(&mut self, path: &[u8], pending: bool) -> HaveModifier {
        let now = self.now();
        let leased = match &mut self.resolver {
            Some(resolver) => pending && resolver.is_leased(path, now),
            None => pending && self.leases.is_running(path),
        };
        let draining = self.resolver.as_ref().is_some_and(|resolver| resolver.is_draining(path, now));
        match (pending, draining) {
            (true, _) if leased => HaveModifier::PENDING | HaveModifier::LEASED,
            (true, _) => HaveModifier::PENDING,
            (false, true) => HaveModifier::ONLINE | HaveModifier::DRAINING,
            (false, false) => HaveModifier::ONLINE,
        }
    }

    /// Tells all parents that a path is not here any more.
    pub(super) fn retract(&mut self, path: &[u8]) {
        for link in self.parents() {
            self.put(link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
        }
    }

    /// Does one thing that the location machine wants done.
    pub(super) fn perform_about_files(&mut self, action: Action) {
        match action {
            Action::Ask { to, path, refresh, via_meta } => self.ask_children(to, &path, refresh, via_meta),
            Action::Look { path } => {
                if let Some(holdings) = &mut self.holdings {
                    holdings.ask(path);
                }
            }
            Action::Lease { slot, path, time } => self.send_lease(slot, &path, time),
            Action::Answer { token, answer } => {
                if let Some(asker) = self.askers.take(token) {
                    self.deliver(asker, answer);
                }
            }
            Action::Reply { token, reply, path: _ } => {
                if let Some(parent) = self.askers.take_above(token) {
                    self.answer_parent(&parent, reply);
                }
            }
            Action::Announce { path, pending } => self.announce(&path, pending),
            Action::Retract { path } => self.retract(&path),
        }
    }

    fn ask_children(&mut self, to: SlotMask, path: &[u8], refresh: bool, via_meta: bool) {
        let mut modifier = StateModifier::NONE;
        if refresh {
            modifier |= StateModifier::REFRESH;
        }
        if via_meta {
            modifier |= StateModifier::META;
        }
        let streamid = StreamId::of_path(path);
        for slot in to {
            let Some(link) = self.link_of(slot) else { continue };
            self.put(link, |peer, out| {
                let definite = peer.contains(Extensions::NOT_HERE);
                let modifier = if definite { modifier | StateModifier::DEFINITE } else { modifier };
                Wire::State(State { modifier, path }).encode(streamid, peer, out)
            });
        }
    }

    /// Has whoever is at the end of this connection tell what is there.
    pub(super) fn want_inventory(&mut self, link: LinkId) {
        let nothing = PathBatch::default();
        let message = Wire::Inventory(nothing.message(InventoryModifier::WANTED));
        self.put(link, |peer, out| message.encode(StreamId::NONE, peer, out));
    }

    /// A parent that did not know this node wants to know what is here: a server says it, an inner node has its children say it.
    fn inventory_wanted(&mut self, link: LinkId) {
        if self.resolver.is_none() {
            return self.new_parent(link);
        }
        let members = self.node.members().into_iter().flat_map(|members| members.members());
        let able = |link: &LinkId| {
            self.lines.get(link).is_some_and(|line| line.extensions.contains(Extensions::INVENTORY))
        };
        let links: Vec<LinkId> = members.filter_map(|(_, member)| member.link).filter(able).collect();
        links.into_iter().for_each(|link| self.want_inventory(link));
        self.end_broken();
    }

    /// What a child has its parent's parents want to know too. It only saves questions: none waits for it.
    fn pass_on_inventory(&mut self, frame: &Frame<'_>) {
        for link in self.parents() {
            let room = |line: &super::line::Line| {
                line.extensions.contains(Extensions::INVENTORY)
                    && line.outbox.waiting() < self.settings.outbox_bytes_max / 2
            };
            if self.lines.get(&link).is_some_and(room) {
                self.put(link, |_, out| {
                    frame.relay(frame.header, out);
                    Ok(())
                });
            }
        }
    }
}

/// What a real node would not understand is not told to it.
fn have(path: &[u8], modifier: HaveModifier, peer: Extensions) -> Wire<'_> {
    let modifier = if peer.is_own() { modifier } else { modifier.without(HaveModifier::DRAINING) };
    let leases = peer.contains(Extensions::LEASES);
    let modifier = if leases { modifier } else { modifier.without(HaveModifier::LEASED) };
    Wire::Have(Have { modifier, path })
}
