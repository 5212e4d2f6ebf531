//! The rules of `select`: the decision for a client from the known location of a path.
//!
//! The rules are pure functions: they send no query, mark nothing and count nothing, so that they
//! can be tested by themselves and used by readers. Source: cms protocol 3, section "select". Where
//! it lets real managers delay the client during a query, the verdict is [`SelectDecision::Await`]
//! and the client gets its answer when the query has ended.

use base::Rng;

use crate::cache::CachedLocation;
use crate::cell::{Cell, ClientOrigin};
use crate::meters::AccessKind;
use crate::paths::Rights;
use crate::request::{ClientAffinity, ClusterAnswer, ErrorCode, Intent, RetryReason, SelectOptions};
use crate::selection::{Chooser, ForeignTarget, Need, UnavailableReasons, WaitTimes};
use crate::slots::{Slot, SlotMask};
use crate::tried_children::TriedChildren;

use super::effective_location::effective_location;

/// The decision on a request.
#[derive(Debug)]
pub(crate) enum SelectDecision {
    /// The answer for the client.
    Answer(ClusterAnswer),
    /// The client is redirected to a child.
    Child {
        slot: Slot,
        kind: AccessKind,
        client: ClientOrigin,
        /// The redirect creates the file there, so further clients are sent there too.
        place: bool,
    },
    /// Replies of children are outstanding.
    Await,
    /// The decision depends on children that are expected to reconnect; after the deadline the
    /// client gets this answer.
    Hold(ClusterAnswer),
}

/// A `select` without its path, as it is stored while it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) options: SelectOptions,
    pub(crate) avoided: TriedChildren,
}

/// The input of a verdict.
pub(crate) struct SelectInput<'a> {
    cell: &'a Cell,
    chooser: &'a Chooser,
    location: &'a CachedLocation,
    path: &'a [u8],
    question: &'a Question,
    rights: Rights,
    affinity: ClientAffinity,
    /// The eligible children that have the file.
    have: SlotMask,
    /// The children at which the file is only being staged.
    pending: SlotMask,
    /// The children that are draining, and inner nodes below which only draining nodes have the
    /// file.
    draining: SlotMask,
    /// The children that may serve this client.
    allowed: SlotMask,
    /// Replies are outstanding.
    open: bool,
}

/// Judges a `select` by the known location.
pub(crate) fn judge(
    cell: &Cell,
    chooser: &Chooser,
    location: &CachedLocation,
    path: &[u8],
    question: &Question,
    rng: &mut dyn Rng,
) -> SelectDecision {
    if let Some(answer) = turned_away(chooser, question) {
        return SelectDecision::Answer(answer);
    }
    let Some(rights) = cell.paths().rights(path) else {
        return not_exported(cell, &chooser.policy().waits, "No server exports this path.");
    };
    let writes = question.options.intent.writes();
    let exported = if writes { rights.write } else { rights.read };
    if exported.is_empty() {
        let text = "No server exports this path for writing.";
        return not_exported(cell, &chooser.policy().waits, text);
    }
    let seen =
        effective_location(cell, chooser.policy(), location, rights, question.options.intent.creates());
    let case = SelectInput {
        cell,
        chooser,
        location,
        path,
        question,
        rights,
        affinity: chooser.affinity(question.options.affinity),
        have: seen.have,
        pending: seen.pending,
        draining: cell.draining() | location.draining,
        allowed: exported - question.avoided.never,
        open: seen.open,
    };
    if case.allowed.is_empty() {
        return case.nobody_left();
    }
    if writes { case.write(rng) } else { case.read(rng) }
}

/// Returns the verdict for a path without an exporter. While the quorum is missing, a child that
/// exports it may still join.
pub(super) fn not_exported(cell: &Cell, waits: &WaitTimes, text: &'static str) -> SelectDecision {
    if cell.quorum() {
        SelectDecision::Answer(ClusterAnswer::error(ErrorCode::NO_ENTRY, text))
    } else {
        SelectDecision::Hold(ClusterAnswer::wait(waits.service))
    }
}

/// Returns the answer for clients that tried too many children, or want a second source where there
/// is only one.
fn turned_away(chooser: &Chooser, question: &Question) -> Option<ClusterAnswer> {
    let policy = chooser.policy();
    let to =
        |elsewhere: &Option<ForeignTarget>, code, text| {
            Some(elsewhere.as_ref().map_or(ClusterAnswer::error(code, text), |place| {
                ClusterAnswer::Redirect { slot: None, host: place.host.clone(), port: place.port }
            }))
        };
    if policy.one_source && question.options.another_source {
        return to(&policy.source_elsewhere, ErrorCode::NOT_PERMITTED, "A second source is not given.");
    }
    if let Some(shared) = policy.shared
        && question.avoided.never.len() >= shared.tries_max.max(1)
        // Servers that cannot reach the files are no sign that others cannot.
        && !(shared.unchecked && question.options.reason == RetryReason::Server)
    {
        return Some(ClusterAnswer::error(
            question.options.reason.code(),
            "Other servers see the same files.",
        ));
    }
    if policy.tried_max.is_some_and(|most| question.avoided.tokens > most) {
        return to(&policy.tried_elsewhere, question.options.reason.code(), "Too many servers were tried.");
    }
    None
}

impl SelectInput<'_> {
    fn read(&self, rng: &mut dyn Rng) -> SelectDecision {
        let options = &self.question.options;
        let pending = self.pending;
        let holders = self.have & self.allowed;
        if self.open && self.chooser.wants_all(self.affinity) {
            return SelectDecision::Await;
        }
        let online = holders - pending;
        // A reader may have to wait for a file that is being staged, so complete replicas are
        // preferred.
        let whole = if options.online { online } else { holders };
        let need = self.need(AccessKind::Read, false);
        let excuses = match self.first_fit(&[online, whole], need, rng) {
            // A child that is not draining, or one that is certainly reachable, may still reply
            // that it has the file.
            Ok(slot) if self.location.querying && self.is_makeshift(slot) => return SelectDecision::Await,
            Ok(slot) => return self.child(slot, AccessKind::Read, false),
            Err(excuses) => excuses,
        };
        if self.open {
            return SelectDecision::Await;
        }
        if !options.online
            && let Some(verdict) = self.stage(self.rights.stage & (self.allowed - self.have), rng)
        {
            return verdict;
        }
        self.refused(&excuses)
    }

    /// Returns the verdict if no child is fit. A request waits for children that are absent or
    /// suspended for a short time.
    fn refused(&self, excuses: &UnavailableReasons) -> SelectDecision {
        match excuses.answer(self.waits()) {
            Some(answer) if excuses.is_passing() => SelectDecision::Hold(answer),
            Some(answer) => SelectDecision::Answer(answer),
            None => self.nobody_left(),
        }
    }

    fn write(&self, rng: &mut dyn Rng) -> SelectDecision {
        let options = &self.question.options;
        // Only after every child has replied it is certain that no other replica exists.
        if self.open {
            return SelectDecision::Await;
        }
        if options.replica {
            let free = self.allowed - self.have - self.cell.draining();
            if free.is_empty() {
                let text = "Every server that could take a copy has one.";
                return SelectDecision::Answer(ClusterAnswer::error(ErrorCode::NO_REPLICAS, text));
            }
            return self.take(free, rng);
        }
        if self.have.is_empty() {
            return self.write_new(rng);
        }
        if options.intent == Intent::Create {
            // The child that was chosen to create the file may not know it yet, and may itself be
            // the one that sends the request. The state becomes clear soon: the child reports the
            // file, or is queried when the placement is stale.
            if self.location.placed.is_some_and(|slot| self.have == slot.mask()) {
                return SelectDecision::Answer(ClusterAnswer::wait(self.waits().lookup));
            }
            return SelectDecision::Answer(ClusterAnswer::error(
                ErrorCode::RW_CONFLICT,
                "The file exists already.",
            ));
        }
        if !(options.copies || self.chooser.policy().copies) {
            // With a shared file system all servers see one file.
            let one = self.chooser.policy().shared.is_some();
            if !options.name_only && !one && self.have.len() > 1 {
                let text = "The file has several copies; writing one would make them differ.";
                return SelectDecision::Answer(ClusterAnswer::error(ErrorCode::RW_CONFLICT, text));
            }
            if !one && !self.have.within(self.rights.write) {
                let text = "A server that has the file exports it for reading only.";
                return SelectDecision::Answer(ClusterAnswer::error(ErrorCode::RW_CONFLICT, text));
            }
        }
        let holders = self.have & self.allowed;
        if holders.is_empty() {
            return self.nobody_left();
        }
        self.take(holders, rng)
    }

    /// Chooses a child that creates or stages a file that no child has.
    fn write_new(&self, rng: &mut dyn Rng) -> SelectDecision {
        if let Some(wait) = self.too_few() {
            return SelectDecision::Hold(wait);
        }
        if self.question.options.intent.creates() {
            // A name alone does not fill a disk that is being drained.
            let name_only = self.question.options.name_only;
            // Nor does a server that only passes files on, which drains because it does not reach them.
            let staying = match self.allowed - self.cell.draining() {
                staying if name_only || staying.is_empty() && self.is_unchecked() => self.allowed,
                staying => staying,
            };
            if staying.is_empty() {
                return SelectDecision::Answer(ClusterAnswer::wait(self.waits().suspend));
            }
            if self.may_be_leased() {
                return self.refused(&UnavailableReasons::undecided());
            }
            let need = Need { place: true, ..self.need(AccessKind::Write, false) };
            return match self.first_fit(&[staying], need, rng) {
                Ok(slot) => self.child(slot, AccessKind::Write, true),
                Err(excuses) => self.refused(&excuses),
            };
        }
        self.stage(self.rights.stage & self.allowed, rng).unwrap_or_else(|| self.nobody_left())
    }

    /// Reports whether an absent child may hold the lease of the file, whichever child would be
    /// chosen for it now. A child that is expected to reconnect may hold it from another parent,
    /// even if it replied earlier that it does not have the file.
    fn may_be_leased(&self) -> bool {
        let (absent, location) = (self.cell.absent(), self.location);
        absent.are_of_earlier_run()
            || location.placed.is_some_and(|slot| absent.was_in(slot))
            || (self.rights.write & self.cell.lessees()).meets(self.cell.expected())
    }

    fn take(&self, among: SlotMask, rng: &mut dyn Rng) -> SelectDecision {
        let need = self.need(AccessKind::Write, false);
        match self.first_fit(&[among], need, rng) {
            Ok(slot) => self.child(slot, AccessKind::Write, false),
            Err(excuses) => self.refused(&excuses),
        }
    }

    /// Chooses a child that can stage the file; `None` if there are none or enough of them were
    /// tried.
    fn stage(&self, stagers: SlotMask, rng: &mut dyn Rng) -> Option<SelectDecision> {
        let stagers = stagers - self.cell.draining();
        let tried = self.rights.stage & self.question.avoided.never;
        if stagers.is_empty() || tried.len() >= self.chooser.policy().stagers_tried_max {
            return None;
        }
        if let Some(wait) = self.too_few() {
            return Some(SelectDecision::Hold(wait));
        }
        let need = self.need(AccessKind::Write, true);
        match self.first_fit(&[stagers], need, rng) {
            Ok(slot) => Some(self.child(slot, AccessKind::Write, true)),
            Err(UnavailableReasons { .. }) if !self.have.is_empty() => None,
            Err(excuses) => excuses.answer(self.waits()).map(|_| self.refused(&excuses)),
        }
    }

    fn child(&self, slot: Slot, kind: AccessKind, place: bool) -> SelectDecision {
        SelectDecision::Child { slot, kind, client: self.question.options.client, place }
    }

    fn need(&self, kind: AccessKind, stage: bool) -> Need {
        let space = stage || kind == AccessKind::Write && !self.question.options.name_only;
        Need { kind, client: self.question.options.client, space, stage, place: false }
    }

    /// Reports whether a child is used only if no better one qualifies.
    fn is_makeshift(&self, slot: Slot) -> bool {
        let client = self.question.options.client.strictly();
        let unreachable =
            |client| self.cell.child(slot).is_none_or(|child| child.interface(client).is_none());
        self.draining.contains(slot) || client.is_some_and(unreachable)
    }

    /// Reports whether any child serves any file, as proxies do.
    fn is_unchecked(&self) -> bool {
        self.chooser.policy().shared.is_some_and(|shared| shared.unchecked)
    }

    /// Returns the parts of a set in the order in which they are tried. A draining child has its files, unless
    /// it serves those of others and does not reach them: then one that the client may have tried comes first.
    fn stages(&self, set: SlotMask) -> impl Iterator<Item = SlotMask> {
        let (last, draining) = (self.question.avoided.last, self.draining);
        let unchecked = self.is_unchecked().then_some([set - draining, set - last]);
        [set - last - draining].into_iter().chain(unchecked.into_iter().flatten()).chain([set])
    }

    /// Chooses from the first of these sets that has a fit child. In each set, draining children
    /// and those that the client may have tried come last. Behind them come the children that the
    /// client can reach only if it has more addresses than it reports. The excuses are those of the
    /// last and largest set.
    fn first_fit(
        &self,
        sets: &[SlotMask],
        need: Need,
        rng: &mut dyn Rng,
    ) -> Result<Slot, UnavailableReasons> {
        let mut result = Err(UnavailableReasons::default());
        for client in need.client.strictly().into_iter().chain([need.client]) {
            let need = Need { client, ..need };
            for set in sets {
                for among in self.stages(*set) {
                    result = self.chooser.choose(self.cell, among, need, self.affinity, self.path, rng);
                    let is_undecided = result.as_ref().is_err_and(UnavailableReasons::is_undecided);
                    if result.is_ok() || is_undecided {
                        return result;
                    }
                }
            }
        }
        result
    }

    /// Returns the answer if the quorum is missing or lost children are expected to reconnect: then
    /// a file cannot be reported as missing.
    fn too_few(&self) -> Option<ClusterAnswer> {
        let lost = (self.location.unasked & self.rights.read).meets(self.cell.expected());
        (lost || !self.cell.quorum()).then(|| ClusterAnswer::wait(self.waits().service))
    }

    fn nobody_left(&self) -> SelectDecision {
        if let Some(wait) = self.too_few() {
            return SelectDecision::Hold(wait);
        }
        let reason = if self.question.avoided.never.is_empty() {
            RetryReason::Missing
        } else {
            self.question.options.reason
        };
        let text = match reason {
            RetryReason::Missing => "No server has the file.",
            _ => "No server is left that could be tried.",
        };
        SelectDecision::Answer(ClusterAnswer::error(reason.code(), text))
    }

    fn waits(&self) -> &WaitTimes {
        &self.chooser.policy().waits
    }
}
