//! The time in which a tree forms, and its cost.
//!
//! Other histories start from a formed tree, so they use it, too.

use std::fmt;
use std::time::Duration;

use crate::counts::Counts;
use crate::host::HostKind;
use crate::shape::{Shape, least_height};
use crate::world::{NetworkConditions, World};

/// The order in which nodes start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartOrder {
    /// Random.
    Random,
    /// All servers before the first supervisor.
    SupervisorsLast,
}

/// A tree to form.
#[derive(Clone, Copy, Debug)]
pub struct Formation {
    /// Leaves.
    pub servers: usize,
    /// Inner nodes.
    pub supervisors: usize,
    /// Replicated managers.
    pub managers: usize,
    /// All nodes start within this time.
    pub within: Duration,
    /// The order of the start.
    pub order: StartOrder,
    /// The manager is a real one.
    pub real_manager: bool,
    /// The percentage of servers that are real nodes.
    pub real_servers_percent: u64,
    /// The percentage of supervisors that are real nodes.
    pub real_supervisors_percent: u64,
    /// The network.
    pub conditions: NetworkConditions,
}

impl Formation {
    /// Returns a tree of our own nodes that start in random order within 30 s; one in a hundred
    /// connections fails.
    pub fn new(servers: usize, supervisors: usize) -> Self {
        Self {
            servers,
            supervisors,
            managers: 1,
            within: Duration::from_secs(30),
            order: StartOrder::Random,
            real_manager: false,
            real_servers_percent: 0,
            real_supervisors_percent: 0,
            conditions: NetworkConditions::default(),
        }
    }

    /// Starts the supervisors after the last server.
    #[must_use]
    pub fn supervisors_last(self) -> Self {
        Self { order: StartOrder::SupervisorsLast, ..self }
    }

    /// Reports whether real nodes are among ours.
    pub const fn mixed(&self) -> bool {
        self.real_manager || self.real_servers_percent + self.real_supervisors_percent > 0
    }

    /// Returns a world in which it begins.
    pub fn world(&self, seed: u64) -> World {
        let mut world = World::new(seed, self.conditions);
        let managers: Vec<usize> = (0..self.managers).collect();
        for _ in 0..self.managers {
            let kind = if self.real_manager { HostKind::RealManager } else { HostKind::Manager };
            world.add(kind, &managers, Duration::ZERO);
        }
        let count = self.servers + self.supervisors;
        let mut times: Vec<Duration> = (0..count).map(|_| world.rng.time(self.within)).collect();
        if self.order == StartOrder::SupervisorsLast {
            times.sort();
        }
        for (number, at) in times.into_iter().enumerate() {
            let kind = if number < self.servers {
                if world.rng.below(100) < self.real_servers_percent {
                    HostKind::RealServer
                } else {
                    HostKind::Server
                }
            } else if world.rng.below(100) < self.real_supervisors_percent {
                HostKind::RealSupervisor
            } else {
                HostKind::Supervisor
            };
            world.add(kind, &managers, at);
        }
        world
    }

    /// Lets the tree form; gives up `patience` after the last start.
    ///
    /// # Errors
    ///
    /// A description of the missing nodes at the end of `patience`.
    pub fn run(&self, seed: u64, patience: Duration) -> Result<FormationReport, String> {
        let mut world = self.world(seed);
        let end = self.within + patience;
        // Connections fall silent later than nodes get their places, so the first complete tree
        // counts.
        world.run(self.within, |_| false);
        let count = self.servers + self.supervisors;
        let mut looked = None;
        let mut shape = Err("not looked yet".to_owned());
        while world.now < end && shape.is_err() {
            world.run(end, |world| world.placed == count && looked != Some(world.changed));
            looked = Some(world.changed);
            shape = (0..self.managers).map(|manager| world.shape(manager)).next_back().unwrap_or(shape);
            if shape.is_err() {
                // A connection fell silent and its ends have not detected it, or a message is in
                // transit.
                let step = (world.now + Duration::from_millis(1 + count as u64 / 1000)).min(end);
                world.run(step, |_| false);
                looked = None;
            }
        }
        let shape = shape.map_err(|error| format!("seed {seed}: {error}"))?;
        Ok(FormationReport {
            formation: *self,
            seed,
            after: world.now.saturating_sub(self.within),
            shape,
            counts: world.counts,
            killed: world.killed,
        })
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct FormationReport {
    /// The formation.
    pub formation: Formation,
    /// The seed that reproduces it.
    pub seed: u64,
    /// The time from the last start to the complete tree.
    pub after: Duration,
    /// The tree.
    pub shape: Shape,
    /// Its cost.
    pub counts: Counts,
    /// The number of real nodes that ended.
    pub killed: usize,
}

/// The head of a table of reports, and of the real time that each took.
pub const HEAD: &str = "| servers | supervisors | managers | order | complete after the last start | levels (least) \
                        | logins per node | messages per node | faults | real time |\n|---|---|---|---|---|---|---|---|---|---|";

impl FormationReport {
    /// A row of that table, without the real time.
    pub fn row(&self) -> String {
        let (formation, nodes) =
            (&self.formation, (self.formation.servers + self.formation.supervisors) as f64);
        format!(
            "| {} | {} | {} | {} | {:.3} s | {} ({}) | {:.2} | {:.2} | {} |",
            formation.servers,
            formation.supervisors,
            formation.managers,
            if formation.order == StartOrder::Random { "random" } else { "supervisors last" },
            self.after.as_secs_f64(),
            self.shape.height,
            self.least_height().unwrap_or_default(),
            self.counts.logins as f64 / nodes,
            self.messages_per_node(),
            self.counts.faults,
        )
    }

    /// Returns the messages per node, without pings.
    pub fn messages_per_node(&self) -> f64 {
        self.counts.messages as f64 / (self.formation.servers + self.formation.supervisors) as f64
    }

    /// Returns the least possible height with these nodes.
    pub fn least_height(&self) -> Option<usize> {
        least_height(self.formation.supervisors, self.formation.servers)
    }
}

impl fmt::Display for FormationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (formation, counts) = (&self.formation, &self.counts);
        let nodes = (formation.servers + formation.supervisors) as f64;
        let per = |count: u64| count as f64 / nodes;
        write!(
            f,
            "{:6} servers + {:4} supervisors, {} manager(s), {:?}: complete {:.3} s after the last start, height {} \
             (least {}), widest {}; per node: {:.2} logins, {:.2} tries, {:.2} reports, {:.2} messages, {:.1} pings; \
             {} faults; seed {}",
            formation.servers,
            formation.supervisors,
            formation.managers,
            formation.order,
            self.after.as_secs_f64(),
            self.shape.height,
            self.least_height().unwrap_or_default(),
            self.shape.widest,
            per(counts.logins),
            per(counts.tries),
            per(counts.reports),
            per(counts.messages),
            per(counts.pings),
            counts.faults,
            self.seed,
        )
    }
}
