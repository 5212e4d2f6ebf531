//! What redirectors and parents order: changes of names, totals; and what the administrator orders.

use super::askers::Asker;
use super::engine::Engine;
use super::forward::Forward;
use super::prepares::Waiting;
use super::questions::Wish;
use super::rights::{LoginClass, NameChange, PeerOrder, Permit};
use cluster::tree::{Event, LinkId, Message};
use cluster::{Answer, ErrorCode, LocateOptions, Slot, SlotMask};
use wire::cms::response::Answer as WireAnswer;
use wire::cms::{Frame, Message as Wire, StreamId};

/// Brings the outcome of an order to the client that gave it: nothing when it was passed on, else why it was not.
pub(super) type Tell = Box<dyn FnOnce(Result<(), Answer>) + Send>;

/// Who gave an order, and hears what became of it.
pub(super) enum Client {
    /// A client of this process.
    Here(Tell),
    /// A client of this redirector.
    Redirector(LinkId, StreamId),
    /// A parent, which wants to hear nothing.
    Nobody,
}

/// An order that waits until it is known whether its new name is free, or which node shall prepare a file.
pub(super) enum Order {
    /// Names change.
    Names {
        /// What goes down.
        forward: Forward,
        /// Who wants it.
        client: Client,
    },
    /// A file is prepared, by the node that is chosen.
    Prepare(Waiting),
}

impl Engine {
    /// An order of a redirector, or of a parent.
    pub(super) fn order(&mut self, link: LinkId, class: LoginClass, frame: &Frame<'_>, message: &Wire<'_>) {
        let streamid = frame.header.streamid;
        let redirector = class == LoginClass::Redirector;
        if let (Wire::Statfs(statfs), true) = (message, redirector) {
            return self.tell_space(link, streamid, statfs);
        }
        let Some(order) = PeerOrder::of(message) else {
            if redirector {
                return self.refuse_request(link, streamid);
            }
            return tracing::debug!(
                "{} orders what nobody here does: {}",
                self.name_of(link),
                message.code()
            );
        };
        let Some(permit) = Permit::for_peer(class, self.settings.role, &self.settings.forwarding, message)
        else {
            return self.refuse_order(link, class, streamid, &order);
        };
        self.log_order(link, &order);
        if let Some(executor) = &self.executor {
            if !executor.run(permit, message) {
                tracing::debug!("{} is not executed by servers", message.code());
            }
        } else if let Wire::Prepadd(prepare) = message {
            self.prepare(prepare, None);
        } else if let Some(forward) = Forward::of_message(message) {
            let client = if redirector { Client::Redirector(link, streamid) } else { Client::Nobody };
            self.change_names(permit, forward, client);
        }
    }

    /// Logs a change of names that a peer ordered and this node passes on or executes.
    fn log_order(&self, link: LinkId, order: &PeerOrder<'_>) {
        let Some(change) = order.change.filter(|_| order.is_relayed || self.executor.is_some()) else {
            return;
        };
        let (path, ident) = (base::shown(order.path), base::shown(order.ident));
        tracing::info!("cluster: {} orders {} {path} for {ident}", self.name_of(link), change.name());
    }

    /// Refuses an order that the peer may not give. Only redirectors wait for an answer.
    fn refuse_order(&mut self, link: LinkId, class: LoginClass, streamid: StreamId, order: &PeerOrder<'_>) {
        let name = order.change.map_or("prepare", NameChange::name);
        if class == LoginClass::Redirector {
            self.log_refused_order(link, name, order);
            let text = b"this node does not pass such changes of names on (ofs.forward)";
            let answer = WireAnswer::Error { code: ErrorCode::NOT_PERMITTED, text };
            self.respond_with(link, streamid, None, answer);
        } else {
            tracing::debug!("{} orders {name}, which is not done here", self.name_of(link));
        }
    }

    /// A client of this process wants names changed everywhere.
    pub(crate) fn client_orders(
        &mut self,
        permit: Permit,
        forward: Forward,
        tell: impl FnOnce(Result<(), Answer>) + Send + 'static,
    ) {
        self.change_names(permit, forward, Client::Here(Box::new(tell)));
    }

    /// Passes an order on to all it concerns, once it is known that nobody has the new name.
    fn change_names(&mut self, _permit: Permit, forward: Forward, client: Client) {
        match forward.must_be_free.clone() {
            Some(new) => {
                let wish = Wish::Locate(LocateOptions { asap: true, ..LocateOptions::default() });
                self.ask(&new, &wish, Asker::Order(Box::new(Order::Names { forward, client })));
            }
            None => self.pass_on(&forward, client),
        }
    }

    /// What was asked for an order is known.
    pub(super) fn ordered(&mut self, order: Order, answer: Answer) {
        match (order, answer) {
            (Order::Names { forward, client }, Answer::Error(ErrorCode::NO_ENTRY, _)) => {
                self.pass_on(&forward, client);
            }
            (Order::Names { client, .. }, Answer::Located(_)) => {
                let text = "the new name is there already";
                self.outcome(client, Err(Answer::Error(ErrorCode::RW_CONFLICT, text.into())));
            }
            (Order::Names { client, .. }, answer) => self.outcome(client, Err(answer)),
            (Order::Prepare(waiting), answer) => self.prepared(&waiting, answer),
        }
    }

    fn pass_on(&mut self, forward: &Forward, client: Client) {
        let Some(resolver) = &mut self.resolver else { return };
        forward.forget.iter().for_each(|path| resolver.forget(path));
        let cell = resolver.cell();
        let slots = match &forward.path {
            None => cell.connected(),
            Some(path) => {
                cell.paths().rights(path).map(|rights| rights.write).unwrap_or_default() & cell.connected()
            }
        };
        if slots.is_empty() && forward.frame.is_some() {
            let text = "No server exports the path for writing.";
            return self.outcome(client, Err(Answer::Error(ErrorCode::NO_ENTRY, text.into())));
        }
        // Servers that share their files do it once for all.
        let slots = if self.settings.policy.shared.is_some() { one_of(slots) } else { slots };
        if let Some(frame) = &forward.frame {
            self.send_down(slots, frame, forward.own_only);
        }
        self.outcome(client, Ok(()));
    }

    /// Sends a frame to children.
    pub(super) fn send_down(&mut self, slots: SlotMask, frame: &[u8], own_only: bool) {
        for slot in slots {
            let Some(link) = self.link_of(slot) else { continue };
            if own_only && !self.lines.get(&link).is_some_and(|line| line.extensions.is_own()) {
                continue;
            }
            self.put(link, |_, out| {
                out.extend_from_slice(frame);
                Ok(())
            });
        }
        self.end_broken();
    }

    fn outcome(&mut self, client: Client, outcome: Result<(), Answer>) {
        match (client, outcome) {
            (Client::Here(tell), outcome) => tell(outcome),
            (Client::Redirector(link, streamid), Ok(())) => {
                self.respond_with(link, streamid, None, WireAnswer::Data { value: 0, text: None });
            }
            (Client::Redirector(link, streamid), Err(answer)) => {
                self.deliver(
                    Asker::Redirector { link, streamid, promised: None, takes_later: false },
                    answer,
                );
            }
            (Client::Nobody, Ok(())) => {}
            (Client::Nobody, Err(answer)) => tracing::debug!("an order of a parent was not done: {answer:?}"),
        }
    }

    /// Takes no clients any more, or takes them again.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended = suspended;
        if self.resolver.is_some() {
            self.drive(|node, now, out| node.suspend(suspended, now, out));
        } else {
            self.move_clients();
            let login = self.node.memberships().first().map(|membership| membership.login().clone());
            let Some(login) = login else { return };
            let stages = !login.mode.contains(cluster::tree::Mode::NOSTAGE);
            self.drive(|node, _, out| node.set_condition(!suspended, stages, login.data_port, out));
        }
    }

    /// The clients of this node are to move elsewhere, while it still serves what nobody else has.
    pub(super) fn drain(&mut self, draining: bool) {
        self.draining = draining;
        self.drive(|node, _, out| node.set_draining(draining, out));
    }

    /// Leaves the cluster: parents need not wait for this node's silence to grow long.
    pub(super) fn leave(&mut self) {
        for link in self.parents() {
            self.put(link, |peer, out| cluster::tree::encode(&Message::Disc, peer, out));
        }
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            if let Some(line) = self.lines.remove(&link) {
                line.close();
            }
            self.node.handle(Event::Closed { link }, self.now(), &mut Vec::new());
        }
    }
}

/// One of several, always the same while they are there.
fn one_of(slots: SlotMask) -> SlotMask {
    slots.lowest().map(Slot::mask).unwrap_or_default()
}
