//! Health of this node: load, space, and the list of nodes that may join.
//!
//! They are measured on a separate thread, because files and programs can block. They are reported
//! to the thread of the cluster when they change enough.
//!
//! | file      | content                                                           |
//! |-----------|-------------------------------------------------------------------|
//! | here      | [`Health`]: the thread, and the choice of changes that it reports |
//! | `load`    | the load of the machine                                           |
//! | `program` | an external program that measures the load instead                |
//! | `space`   | the space for new files                                           |
//! | `list`    | the file of nodes that may not join                               |

mod list;
mod load;
mod program;
mod space;

pub use list::ListFile;
pub use space::SpaceLimits;

use base::{LogicalPath, Supervisor};
use cluster::tree::{Blacklist, LoadReport, SpaceReport};
use list::List;
use load::Sampler;
use program::{LoadProgram, ProgramOutput};
use space::SpaceSurvey;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use storage::{Backend, FileSystemUsage};

/// The default interval between two measurements of a node's own load.
pub(crate) const MEASURE: Duration = Duration::from_secs(10);
/// A larger change of load is reported without a query, even if parents treat it as equal.
const CHANGE_MAX: u8 = 20;
/// The deadline of the first query of the space, which delays the start of a node. File systems
/// that have not answered by then count as full.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// The time that the thread sleeps when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// The source of the load figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadSampling {
    /// The counters of the system.
    Own {
        /// The interval between two readings.
        interval: Duration,
    },
    /// A program and its arguments.
    Program {
        /// The program, then its arguments.
        command: Vec<String>,
        /// The interval at which the program is expected to write.
        interval: Duration,
    },
}

impl Default for LoadSampling {
    fn default() -> Self {
        Self::Own { interval: MEASURE }
    }
}

/// The selection of measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HealthSettings {
    /// The load, for nodes with files.
    pub load: Option<LoadSampling>,
    /// Loads that differ by no more than this are equal to parents (`cms.sched fuzz`).
    pub fuzz: u8,
    /// The space below these paths, for nodes with files.
    pub space: Option<(SpaceLimits, Vec<LogicalPath>)>,
    /// The list of nodes that may join, for nodes with children.
    pub list: Option<ListFile>,
}

/// A change that is reported to the cluster's thread.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum HealthReport {
    /// The load of the node.
    Load {
        /// The load, with the filling of the disks.
        load: LoadReport,
        /// Set if it differs enough from the last reported load to be sent to parents.
        tell: bool,
    },
    /// The space of the node.
    Space {
        /// The space.
        space: SpaceReport,
        /// Set if there is too little for new files.
        full: bool,
        /// Set if it is to be sent to parents.
        tell: bool,
    },
    /// A new list of the nodes that may join.
    List(Blacklist),
}

/// An event that wakes the thread before its deadline.
enum HealthWake {
    Program(u64, ProgramOutput),
    Space(usize, Vec<FileSystemUsage>),
    Stop,
}

/// The thread that measures. It ends when this value is dropped.
pub(crate) struct Health {
    wake: Sender<HealthWake>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Health {
    /// Starts to measure. `report` is called on the thread that measures.
    ///
    /// Returns after the space and the list were read for the first time and reported, because the
    /// login of a node contains its space.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        settings: HealthSettings,
        backend: Option<&Arc<dyn Backend>>,
        report: impl Fn(HealthReport) + Send + 'static,
        supervisor: &Supervisor,
    ) -> std::io::Result<Self> {
        let (ready, looked) = channel::<()>();
        let mut watch = HealthThread::new(settings, backend, report);
        let wake = watch.wake.clone();
        let run = move || {
            watch.first_look();
            drop(ready);
            watch.run();
        };
        let thread = supervisor.spawn("cluster-health", "the thread that measures the node", run)?;
        // The thread drops its end of the channel after the first round.
        let _ = looked.recv();
        Ok(Self { wake, thread: Some(thread) })
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        let _ = self.wake.send(HealthWake::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct HealthThread<R> {
    report: R,
    fuzz: u8,
    sampler: Option<(Sampler, Duration)>,
    program: Option<LoadProgram>,
    survey: Option<(SpaceLimits, SpaceSurvey)>,
    list: Option<List>,
    wakes: Receiver<HealthWake>,
    wake: Sender<HealthWake>,
    load: LoadReport,
    told_load: Option<LoadReport>,
    told_space: Option<(SpaceReport, bool)>,
    measure_at: Option<Instant>,
    measured: Instant,
    survey_at: Option<Instant>,
    list_at: Option<Instant>,
}

impl<R: Fn(HealthReport)> HealthThread<R> {
    fn new(settings: HealthSettings, backend: Option<&Arc<dyn Backend>>, report: R) -> Self {
        let now = Instant::now();
        let (wake, wakes) = channel();
        let (sampler, program) = match settings.load {
            None => (None, None),
            Some(LoadSampling::Own { interval }) => (Some((Sampler::new(), interval)), None),
            Some(LoadSampling::Program { command, interval }) => {
                (None, Some(LoadProgram::new(command, interval, now)))
            }
        };
        let survey = settings.space.zip(backend).map(|((rules, exports), backend)| {
            let survey = SpaceSurvey::new(backend.clone(), exports, rules.recalculate);
            (rules, survey)
        });
        Self {
            report,
            fuzz: settings.fuzz.min(CHANGE_MAX),
            measure_at: sampler.is_some().then_some(now),
            survey_at: survey.is_some().then_some(now),
            list_at: settings.list.is_some().then_some(now),
            measured: now,
            sampler,
            program,
            survey,
            list: settings.list.map(List::new),
            wakes,
            wake,
            load: LoadReport::default(),
            told_load: None,
            told_space: None,
        }
    }

    /// Reads the list and waits for the first figures of space.
    fn first_look(&mut self) {
        let begun = Instant::now();
        self.look(begun);
        while self.survey.is_some() && self.told_space.is_none() {
            let left = FIRST_LOOK.saturating_sub(begun.elapsed());
            match self.wakes.recv_timeout(left) {
                Ok(wake) => self.woken(wake, Instant::now()),
                Err(_) => return self.sum_up(Instant::now()),
            }
        }
    }

    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.look(now);
            let due = self.deadline().map_or(IDLE, |at| at.saturating_duration_since(now));
            match self.wakes.recv_timeout(due) {
                Ok(HealthWake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(wake) => self.woken(wake, Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let program = self.program.as_ref().map(LoadProgram::deadline);
        [self.measure_at, self.survey_at, self.list_at, program].into_iter().flatten().min()
    }

    /// Runs the measurements that are due.
    fn look(&mut self, now: Instant) {
        if let Some((sampler, interval)) = &mut self.sampler
            && self.measure_at.take_if(|at| *at <= now).is_some()
        {
            let load = sampler.sample(now.saturating_duration_since(self.measured));
            self.measured = now;
            self.measure_at = Some(now + *interval);
            self.loaded(load);
        }
        if let Some(program) = &mut self.program {
            let wake = self.wake.clone();
            program.tick(now, move |number, said| {
                let _ = wake.send(HealthWake::Program(number, said));
            });
        }
        if let Some((rules, survey)) = &mut self.survey
            && self.survey_at.take_if(|at| *at <= now).is_some()
        {
            let wake = self.wake.clone();
            survey.ask(move |number, systems| {
                let _ = wake.send(HealthWake::Space(number, systems));
            });
            self.survey_at = Some(now + rules.recalculate);
            // Replies that are missing since the last round may be stale by now.
            if self.told_space.is_some() {
                self.sum_up(now);
            }
        }
        if let Some(list) = &mut self.list
            && self.list_at.take_if(|at| *at <= now).is_some()
        {
            self.list_at = Some(now + list.check_every());
            if let Some(list) = list.read() {
                (self.report)(HealthReport::List(list));
            }
        }
    }

    fn woken(&mut self, wake: HealthWake, now: Instant) {
        match wake {
            HealthWake::Program(number, said) => {
                if let Some(program) = &mut self.program
                    && let Some(load) = program.apply_output(number, said, now)
                {
                    self.loaded(load);
                }
            }
            HealthWake::Space(number, systems) => {
                let complete =
                    self.survey.as_mut().is_some_and(|(_, survey)| survey.note_usage(number, systems, now));
                if complete {
                    self.sum_up(now);
                }
            }
            HealthWake::Stop => {}
        }
    }

    fn loaded(&mut self, load: LoadReport) {
        self.load = LoadReport { disk: self.load.disk, ..load };
        // Parents treat a smaller difference as equal.
        let tell = self.told_load.is_none_or(|told| told.differs(self.load, self.fuzz));
        if tell {
            self.told_load = Some(self.load);
        }
        (self.report)(HealthReport::Load { load: self.load, tell });
    }

    fn sum_up(&mut self, now: Instant) {
        let Some((rules, survey)) = &self.survey else { return };
        let was_full = self.told_space.is_some_and(|(_, full)| full);
        let judged = rules.judge(&survey.known(now), was_full);
        self.load.disk = judged.space.used_percent;
        let now_told = (judged.space, judged.full);
        if self.told_space == Some(now_told) {
            return;
        }
        let tell = self.told_space.is_none_or(|told| matters(told, now_told));
        if judged.full != was_full {
            judged.log_change();
        }
        if tell {
            self.told_space = Some(now_told);
        }
        (self.report)(HealthReport::Space { space: judged.space, full: judged.full, tell });
    }
}

/// Reports whether parents should receive the new space: it changed by one percent, or the node
/// became full or has space again.
fn matters((told, was_full): (SpaceReport, bool), (now, full): (SpaceReport, bool)) -> bool {
    let step = (told.free_mb / 100).max(1);
    was_full != full || told.used_percent != now.used_percent || told.free_mb.abs_diff(now.free_mb) >= step
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::faulty::{FaultRule, Faulty, FaultyCall, Gate, InjectedFault};
    use storage::posix::{Config, Posix};

    fn backend() -> Arc<dyn Backend> {
        Arc::new(Posix::new(&Config::new(std::env::temp_dir())).unwrap())
    }

    fn started(settings: HealthSettings, backend: &Arc<dyn Backend>) -> (Health, Receiver<HealthReport>) {
        let (sender, reports) = channel();
        let report = move |report| {
            let _ = sender.send(report);
        };
        (Health::start(settings, Some(backend), report, &Supervisor::default()).unwrap(), reports)
    }

    #[test]
    fn the_first_reports_of_a_server() {
        // The test must not depend on the free space of the disk on which it runs.
        let rules = SpaceLimits { least_percent: 0, least_bytes: 0, ..SpaceLimits::default() };
        let settings = HealthSettings {
            load: Some(LoadSampling::Own { interval: Duration::from_secs(3600) }),
            space: Some((rules, vec![LogicalPath::root()])),
            ..HealthSettings::default()
        };
        let (health, reports) = started(settings, &backend());
        // Both reports exist when `start` returns, before the node logs in to a manager.
        let reports: Vec<HealthReport> = reports.try_iter().collect();
        assert!(matches!(reports.first(), Some(HealthReport::Load { tell: true, .. })), "{reports:?}");
        let Some(HealthReport::Space { space, full: false, tell: true }) = reports.get(1) else {
            panic!("no space: {reports:?}")
        };
        assert!(space.total_mb > 0 && space.is_writable() && space.file_systems == 1);
        drop(health);
    }

    #[test]
    fn the_program_and_the_list_are_reported() {
        let directory = std::env::temp_dir().join(format!("scalla-health-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("cms.blacklist");
        std::fs::write(&path, "bad.site\n").unwrap();
        let command = ["sh", "-c", "echo 1 2 3 4 5; echo 1 2 3 4 9; echo 1 2 3 40 9; exec sleep 1000"];
        let settings = HealthSettings {
            load: Some(LoadSampling::Program {
                command: command.map(str::to_owned).to_vec(),
                interval: Duration::from_secs(180),
            }),
            fuzz: 10,
            list: Some(ListFile { path, white: false, check: Duration::from_millis(10) }),
            ..HealthSettings::default()
        };
        let (health, reports) = started(settings, &backend());
        let banned = |report: HealthReport| match report {
            HealthReport::List(list) => {
                list.rules.iter().map(|rule| rule.pattern.clone()).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(banned(reports.recv().unwrap()), ["bad.site"]);
        let load = |net, paging| LoadReport { run_queue: 1, cpu: 2, memory: 3, paging, net, disk: 0 };
        for (load, tell) in [(load(5, 4), true), (load(9, 4), false), (load(9, 40), true)] {
            assert_eq!(reports.recv().unwrap(), HealthReport::Load { load, tell });
        }
        std::fs::write(directory.join("cms.blacklist"), "bad.site\nworse.site\n").unwrap();
        let mut last = banned(reports.recv().unwrap());
        while last.len() < 2 {
            // The file was read while it was being written.
            last = banned(reports.recv().unwrap());
        }
        assert_eq!(last, ["bad.site", "worse.site"]);
        drop(health);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_disk_that_fills_is_reported_and_one_that_hangs_has_no_space() {
        let faulty = Faulty::new(backend());
        let rules = SpaceLimits {
            recalculate: Duration::from_millis(20),
            least_percent: 0,
            least_bytes: 50 << 20,
            enough_percent: 0,
            enough_bytes: 60 << 20,
        };
        let settings =
            HealthSettings { space: Some((rules, vec![LogicalPath::root()])), ..HealthSettings::default() };
        let controls = faulty.rules().clone();
        controls.set_room(Some(100 << 20));
        let (_health, reports) = started(settings, &(Arc::new(faulty) as Arc<dyn Backend>));
        let next = || loop {
            if let HealthReport::Space { space, full, tell: true } = reports.recv().unwrap() {
                return (space.free_mb, full);
            }
        };
        assert_eq!(next(), (100, false));
        controls.set_room(Some(49 << 20));
        assert_eq!(next(), (49, true));
        controls.set_room(Some(59 << 20));
        controls.set_room(Some(61 << 20));
        assert_eq!(next(), (61, false));
        let gate = Gate::new();
        controls.add(FaultRule::new(&[FaultyCall::Usage], InjectedFault::Hang(gate.clone())));
        assert_eq!(next(), (0, true));
        gate.open();
        assert_eq!(next(), (61, false));
    }
}
