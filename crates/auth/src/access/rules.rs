//! Compiled rules. Which records apply to a client is a matter of a few look-ups in hash tables;
//! which of their paths apply to a request is a binary search and a walk over the rule paths that
//! are prefixes of the request path. Neither depends on the number of rules.

mod below;
mod path_table;

use super::parse::{domains_of, host_text, mark_in};
use super::principal::{AttributeColumn, Principal, words};
use super::privileges::Privileges;
use super::records::{AuthdbPair, AuthdbRule, CompoundIdentity, ParsedAuthdb, RecordKind};
use super::tokens::AuthdbPosition;
use path_table::PathTable;
use std::collections::HashMap;

/// Reports whether the host of a record is the text of an address, as the parser spells it.
fn is_address(host: &[u8]) -> bool {
    host.starts_with(b"[")
}

/// Number of a record in file order.
type RecordNumber = u32;

/// A pair of a record, at the rule path that the pair names.
#[derive(Clone, Copy, Debug)]
struct PathEntry {
    record: RecordNumber,
    /// Number of the pair in its record.
    pair: u32,
    positive: Privileges,
    negative: Privileges,
    at: AuthdbPosition,
}

/// A rule path; for pairs of `u =` records, the part before the name.
#[derive(Debug)]
struct RulePath {
    text: Box<[u8]>,
    /// The longest rule path that is a proper prefix of this one.
    outer: Option<u32>,
    /// Pairs with this path, by record; one for each record.
    entries: PathEntries,
    /// Pairs of `u =` records with this part before the name, and the part after the name.
    named: Box<[(PathEntry, Box<[u8]>)]>,
}

/// The pairs of one rule path, sorted by record.
#[derive(Debug)]
struct PathEntries {
    entries: Box<[PathEntry]>,
    /// For paths of many records: the number of the entry of each record from the first one on, so
    /// that a client with many records needs no search for each of them.
    dense: Box<[u32]>,
}

/// Minimum number of entries of a rule path for a table by record.
const DENSE_ENTRIES_MIN: usize = 16;
/// Maximum size of a table by record: this many places for each entry.
const DENSE_PLACES_MAX: usize = 16;
/// Number of matching pairs for which a decision reserves memory at most.
const MATCHES_RESERVED: usize = 128;
/// The place of a record without an entry.
const NO_ENTRY: u32 = u32::MAX;

impl PathEntries {
    fn new(entries: Vec<PathEntry>) -> Self {
        let first = entries.first().map_or(0, |entry| entry.record);
        let last = entries.last().map_or(0, |entry| entry.record);
        let places = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
        let mut dense = Vec::new();
        if entries.len() >= DENSE_ENTRIES_MIN && places <= entries.len().saturating_mul(DENSE_PLACES_MAX) {
            dense = vec![NO_ENTRY; places];
            for (number, entry) in (0..).zip(&entries) {
                let place = usize::try_from(entry.record - first).ok().and_then(|at| dense.get_mut(at));
                place.into_iter().for_each(|place| *place = number);
            }
        }
        Self { entries: entries.into(), dense: dense.into() }
    }

    fn of(&self, record: RecordNumber) -> Option<&PathEntry> {
        if self.dense.is_empty() {
            let at = self.entries.binary_search_by_key(&record, |entry| entry.record).ok()?;
            return self.entries.get(at);
        }
        let first = self.entries.first()?.record;
        let place = usize::try_from(record.checked_sub(first)?).ok()?;
        let number = *self.dense.get(place)?;
        self.entries.get(usize::try_from(number).ok()?)
    }

    /// Reports whether an entry has a record of the sorted list.
    fn has_any(&self, records: &[RecordNumber]) -> bool {
        match self.entries.len() <= records.len() {
            true => self.entries.iter().any(|entry| records.binary_search(&entry.record).is_ok()),
            false => records.iter().any(|record| self.of(*record).is_some()),
        }
    }

    /// Calls `with` for each entry whose record is in the sorted list, with its place in the list.
    fn intersect(&self, records: &[RecordNumber], mut with: impl FnMut(usize, &PathEntry)) {
        if self.entries.len() <= records.len() {
            for entry in &self.entries {
                if let Ok(place) = records.binary_search(&entry.record) {
                    with(place, entry);
                }
            }
            return;
        }
        for (place, record) in records.iter().enumerate() {
            if let Some(entry) = self.of(*record) {
                with(place, entry);
            }
        }
    }
}

/// The identity of a record, for explanations.
#[derive(Debug)]
struct RecordHead {
    kind: RecordKind,
    id: Box<[u8]>,
    at: AuthdbPosition,
    compound: Option<CompoundIdentity>,
    /// A pair of the record grants a privilege.
    grants: bool,
}

/// The records that one value of an attribute leads to.
#[derive(Default, Debug)]
struct Holders {
    /// The record of the value itself.
    record: Option<RecordNumber>,
    /// Compound records with this value; the other parts must match too.
    compounds: Vec<RecordNumber>,
}

/// Kinds of attributes by which records are found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AttributeKind {
    User,
    Host,
    Group,
    Organization,
    Role,
}

type HolderTable = HashMap<Box<[u8]>, Holders>;

/// The comparison of a rule path with a request path, for positive privileges. Negative privileges
/// count for any prefix of the request path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathMatch {
    /// The rule path must end at a component: `/a` covers `/a` and `/a/b`, not `/ab`.
    #[default]
    Component,
    /// Any prefix: `/a` covers `/ab`, as in XRootD.
    Prefix,
}

/// The record of a netgroup.
#[derive(Debug)]
struct NetgroupRecord {
    name: Box<str>,
    record: RecordNumber,
    /// The record takes privileges away.
    denies: bool,
}

/// Compiled rules.
#[derive(Debug)]
pub(super) struct AccessRules {
    matching: PathMatch,
    heads: Vec<RecordHead>,
    everybody: Option<RecordNumber>,
    named: Option<RecordNumber>,
    users: HolderTable,
    hosts: HolderTable,
    groups: HolderTable,
    organizations: HolderTable,
    roles: HolderTable,
    domains: HashMap<Box<[u8]>, RecordNumber>,
    /// Compounds whose only part is a domain.
    domain_compounds: Vec<RecordNumber>,
    netgroups: Vec<NetgroupRecord>,
    /// Records depend on the name of a host.
    needs_hosts: bool,
    /// Such records take privileges away, or decide alone.
    denies_by_host: bool,
    /// Records that name hosts, by address or by name, take privileges away, or decide alone.
    denies_by_place: bool,
    /// Sorted by text.
    paths: Vec<RulePath>,
}

/// The records that apply to a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ApplyingRecords {
    /// Sorted.
    records: Vec<RecordNumber>,
}

/// A pair that contributed to a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidingPair {
    /// The clients of the record.
    pub kind: RecordKind,
    /// The identifier of the record.
    pub id: String,
    /// Position of the record.
    pub record_at: AuthdbPosition,
    /// Position of the path.
    pub path_at: AuthdbPosition,
    /// Granted privileges. Empty if the rule path ends within a component of the request path.
    pub positive: Privileges,
    /// Privileges that are taken away.
    pub negative: Privileges,
}

/// A pair of a record that matches a path.
#[derive(Clone, Copy)]
struct PairMatch {
    /// The place of the record among those of the client.
    place: usize,
    /// The pair, with the positive privileges that count for the request path.
    entry: PathEntry,
}

impl AccessRules {
    /// Compiles the records of a file.
    pub(super) fn compile(parsed: ParsedAuthdb, matching: PathMatch) -> Self {
        let mut rules = Self {
            matching,
            heads: Vec::with_capacity(parsed.rules.len()),
            everybody: None,
            named: None,
            users: HolderTable::default(),
            hosts: HolderTable::default(),
            groups: HolderTable::default(),
            organizations: HolderTable::default(),
            roles: HolderTable::default(),
            domains: HashMap::default(),
            domain_compounds: Vec::new(),
            netgroups: Vec::new(),
            needs_hosts: false,
            denies_by_host: false,
            denies_by_place: false,
            paths: Vec::new(),
        };
        let mut paths = PathTable::default();
        for rule in parsed.rules {
            let number = RecordNumber::try_from(rules.heads.len()).unwrap_or(RecordNumber::MAX);
            paths.add(number, &rule);
            rules.note_hosts(&rule);
            rules.register(number, rule);
        }
        rules.paths = paths.finish();
        rules
    }

    /// Notes whether a record depends on the name of a host. One that names an address does not.
    fn note_hosts(&mut self, rule: &AuthdbRule) {
        let part = rule.compound.as_ref().and_then(|compound| compound.host.as_deref());
        let depends = match rule.kind {
            RecordKind::Netgroup | RecordKind::Domain => true,
            RecordKind::Host => !is_address(&rule.id),
            _ => part.is_some_and(|host| !is_address(host)),
        };
        let denies = rule.kind == RecordKind::Exclusive || takes_away(&rule.pairs);
        self.needs_hosts |= depends;
        self.denies_by_host |= depends && denies;
        self.denies_by_place |= denies && (depends || part.is_some() || rule.kind == RecordKind::Host);
    }

    pub(super) fn needs_hosts(&self) -> bool {
        self.needs_hosts
    }

    pub(super) fn denies_by_host(&self) -> bool {
        self.denies_by_host
    }

    fn register(&mut self, number: RecordNumber, rule: AuthdbRule) {
        let AuthdbRule { kind, id, at, compound, pairs } = rule;
        let grants = pairs.iter().any(|pair| {
            let applies = kind != RecordKind::Named || mark_in(&pair.path).is_some();
            applies && !pair.positive.without(pair.negative).is_empty()
        });
        let own = |table: &mut HolderTable| {
            table.entry(id.clone()).or_default().record = Some(number);
        };
        match kind {
            RecordKind::Everybody => self.everybody = Some(number),
            RecordKind::Named => self.named = Some(number),
            RecordKind::User => own(&mut self.users),
            RecordKind::Group => own(&mut self.groups),
            RecordKind::Host => own(&mut self.hosts),
            RecordKind::Organization => own(&mut self.organizations),
            RecordKind::Role => own(&mut self.roles),
            RecordKind::Domain => drop(self.domains.insert(id.clone(), number)),
            RecordKind::Netgroup => {
                let name = String::from_utf8_lossy(&id).into();
                self.netgroups.push(NetgroupRecord { name, record: number, denies: takes_away(&pairs) });
            }
            RecordKind::Special | RecordKind::Exclusive => {
                if let Some(compound) = &compound {
                    self.register_compound(number, compound);
                }
            }
        }
        self.heads.push(RecordHead { kind, id, at, compound, grants });
    }

    /// Registers a compound under its most selective part.
    fn register_compound(&mut self, number: RecordNumber, compound: &CompoundIdentity) {
        let host = compound.host.as_ref().filter(|host| !host.starts_with(b"."));
        let parts = [
            (AttributeKind::User, compound.user.as_ref()),
            (AttributeKind::Host, host),
            (AttributeKind::Group, compound.group.as_ref()),
            (AttributeKind::Role, compound.role.as_ref()),
            (AttributeKind::Organization, compound.organization.as_ref()),
        ];
        match parts.into_iter().find_map(|(kind, part)| Some((kind, part?))) {
            Some((kind, part)) => {
                self.table_mut(kind).entry(part.clone()).or_default().compounds.push(number);
            }
            None => self.domain_compounds.push(number),
        }
    }

    fn table_mut(&mut self, kind: AttributeKind) -> &mut HolderTable {
        match kind {
            AttributeKind::User => &mut self.users,
            AttributeKind::Host => &mut self.hosts,
            AttributeKind::Group => &mut self.groups,
            AttributeKind::Organization => &mut self.organizations,
            AttributeKind::Role => &mut self.roles,
        }
    }

    /// Returns the netgroups that have records: names, and whether the record takes privileges away.
    pub(super) fn netgroups(&self) -> impl Iterator<Item = (&str, bool)> {
        self.netgroups.iter().map(|netgroup| (&*netgroup.name, netgroup.denies))
    }

    /// Returns the records that apply to a client; `is_member` reports whether it belongs to a
    /// netgroup. Returns `None` if the attributes of the client are inconsistent.
    pub(super) fn applying(
        &self,
        principal: &Principal<'_>,
        mut is_member: impl FnMut(&str) -> bool,
    ) -> Option<ApplyingRecords> {
        let columns = principal.columns()?;
        if principal.is_host_uncertain && self.denies_by_host {
            // A record that does not match could be the one that denies.
            return Some(ApplyingRecords::default());
        }
        let host = host_text(principal.host.as_bytes());
        let address = host_text(principal.address.as_bytes());
        let mut records = Vec::new();
        let mut compounds = self.domain_compounds.clone();
        let mut add = |table: &HolderTable, value: &[u8]| {
            if let Some(holders) = table.get(value) {
                records.extend(holders.record);
                compounds.extend_from_slice(&holders.compounds);
            }
        };
        principal.name.iter().for_each(|name| add(&self.users, name.as_bytes()));
        add(&self.hosts, &host);
        if address != host {
            add(&self.hosts, &address);
        }
        let lists = [
            (&self.groups, principal.groups),
            (&self.organizations, principal.organizations),
            (&self.roles, principal.roles),
        ];
        for (table, list) in lists {
            words(list).for_each(|word| add(table, word.as_bytes()));
        }
        compounds.sort_unstable();
        compounds.dedup();
        if !compounds.is_empty() {
            let columns: Vec<AttributeColumn<'_>> = columns.collect();
            compounds.retain(|number| self.is_met(*number, principal, [&host, &address], &columns));
        }
        let is_exclusive = |number: &&RecordNumber| {
            self.head(**number).is_some_and(|head| head.kind == RecordKind::Exclusive)
        };
        if let Some(exclusive) = compounds.iter().find(is_exclusive) {
            return Some(ApplyingRecords { records: vec![*exclusive] });
        }
        records.append(&mut compounds);
        records.extend(self.everybody);
        records.extend(domains_of(&host).find_map(|domain| self.domains.get(domain)));
        let netgroups = self.netgroups.iter().filter(|netgroup| is_member(&netgroup.name));
        records.extend(netgroups.map(|netgroup| netgroup.record));
        records.extend(self.named.filter(|_| principal.name.is_some()));
        records.sort_unstable();
        records.dedup();
        Some(ApplyingRecords { records })
    }

    /// Returns the records that apply to a client by its name, groups, organizations and roles, wherever it
    /// is: none that names hosts, and none for everybody. There are none at all if the place of a client can
    /// take privileges away. Returns `None` if the attributes of the client are inconsistent.
    pub(super) fn applying_anywhere(&self, principal: &Principal<'_>) -> Option<ApplyingRecords> {
        if self.denies_by_place {
            return Some(ApplyingRecords::default());
        }
        let anywhere = Principal { host: "", address: "", is_host_uncertain: false, ..*principal };
        let mut applying = self.applying(&anywhere, |_| false)?;
        applying.records.retain(|number| Some(*number) != self.everybody);
        Some(applying)
    }

    fn head(&self, number: RecordNumber) -> Option<&RecordHead> {
        self.heads.get(usize::try_from(number).ok()?)
    }

    /// Reports whether the compound identity of a record matches a client in any column.
    fn is_met(
        &self,
        number: RecordNumber,
        principal: &Principal<'_>,
        [host, address]: [&[u8]; 2],
        columns: &[AttributeColumn<'_>],
    ) -> bool {
        let Some(compound) = self.head(number).and_then(|head| head.compound.as_ref()) else { return false };
        let equals = |part: &Option<Box<[u8]>>, value: Option<&str>| {
            part.as_ref().is_none_or(|part| value.is_some_and(|value| **part == *value.as_bytes()))
        };
        let is_host = compound.host.as_ref().is_none_or(|wanted| match wanted.starts_with(b".") {
            true => host.ends_with(wanted),
            false => **wanted == *host || **wanted == *address,
        });
        is_host
            && equals(&compound.user, principal.name)
            && columns.iter().any(|column| {
                equals(&compound.group, column.group)
                    && equals(&compound.organization, column.organization)
                    && equals(&compound.role, column.role)
            })
    }

    /// Returns the privileges of a client on a path.
    pub(super) fn privileges(&self, client: &ApplyingRecords, name: Option<&str>, path: &[u8]) -> Privileges {
        let (mut positive, mut negative) = (Privileges::NONE, Privileges::NONE);
        for matched in self.matches(client, name, path) {
            positive = positive.with(matched.entry.positive);
            negative = negative.with(matched.entry.negative);
        }
        positive.without(negative)
    }

    /// Reports whether a client has a privilege on any path. A path may have another rule that
    /// takes it away.
    pub(super) fn grants_any(&self, client: &ApplyingRecords) -> bool {
        client.records.iter().any(|number| self.head(*number).is_some_and(|head| head.grants))
    }

    /// Returns the pairs that decide about a path, in file order.
    pub(super) fn explain(
        &self,
        client: &ApplyingRecords,
        name: Option<&str>,
        path: &[u8],
    ) -> Vec<DecidingPair> {
        let mut matches = self.matches(client, name, path);
        matches.sort_unstable_by_key(|matched| matched.place);
        let pair = |matched: PairMatch| {
            let head = self.head(matched.entry.record)?;
            Some(DecidingPair {
                kind: head.kind,
                id: String::from_utf8_lossy(&head.id).into_owned(),
                record_at: head.at,
                path_at: matched.entry.at,
                positive: matched.entry.positive,
                negative: matched.entry.negative,
            })
        };
        matches.into_iter().filter_map(pair).collect()
    }

    /// Returns all rule paths with which a path begins, and few others, from the longest one on.
    fn chain(&self, path: &[u8]) -> impl Iterator<Item = &RulePath> {
        let last = self.paths.partition_point(|known| *known.text <= *path).checked_sub(1);
        let outer = |at: &usize| usize::try_from(self.paths.get(*at)?.outer?).ok();
        std::iter::successors(last, outer).filter_map(|at| self.paths.get(at))
    }

    /// Returns the first matching pair of each record of a client, in any order.
    fn matches(&self, client: &ApplyingRecords, name: Option<&str>, path: &[u8]) -> Vec<PairMatch> {
        let mut found: Vec<PairMatch> = Vec::with_capacity(client.records.len().min(MATCHES_RESERVED));
        let mut is_several = false;
        let mut note = |place: usize, entry: &PathEntry, length: usize| {
            let counts = self.matching == PathMatch::Prefix || ends_component(path, length);
            let positive = if counts { entry.positive } else { Privileges::NONE };
            found.push(PairMatch { place, entry: PathEntry { positive, ..*entry } });
        };
        // A name with a slash would stand for several components.
        let name = name.map(str::as_bytes).filter(|name| !name.is_empty() && !name.contains(&b'/'));
        let named = self.named.and_then(|number| client.records.binary_search(&number).ok());
        let mut prefixes = 0;
        for known in self.chain(path) {
            if !path.starts_with(&known.text) {
                continue;
            }
            prefixes += 1;
            let length = known.text.len();
            known.entries.intersect(&client.records, |place, entry| note(place, entry, length));
            let rest = path.get(length..).unwrap_or_default();
            let Some((place, rest)) = named.zip(name.and_then(|name| rest.strip_prefix(name))) else {
                continue;
            };
            for (entry, after) in known.named.iter().filter(|(_, after)| rest.starts_with(after)) {
                note(place, entry, path.len() - rest.len() + after.len());
                is_several = true;
            }
        }
        if prefixes > 1 || is_several {
            // A record can have pairs at several of these paths; its first one counts.
            found.sort_unstable_by_key(|matched| (matched.place, matched.entry.pair));
            found.dedup_by_key(|matched| matched.place);
        }
        found
    }
}

/// Reports whether a pair takes privileges away.
fn takes_away(pairs: &[AuthdbPair]) -> bool {
    pairs.iter().any(|pair| pair.negative != Privileges::NONE)
}

/// Reports whether a prefix of this length ends at a component of the path.
fn ends_component(path: &[u8], length: usize) -> bool {
    let ends_with_slash = length.checked_sub(1).is_some_and(|last| path.get(last) == Some(&b'/'));
    ends_with_slash || path.get(length).is_none_or(|next| *next == b'/')
}
