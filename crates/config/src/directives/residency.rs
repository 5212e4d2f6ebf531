//! Directives of staging, migration and purging: `frm.`. Not in force yet.
//!
//! They are known so that files of sites load, and so that unknown names can be reported.

use super::definition::{Directive, Section};
use super::standing::UsageFrequency;

pub(super) const SECTION: Section = Section {
    title: "Mass storage: frm.",
    about: "Read by the daemons of mass storage, which are not there yet; a server only passes over them.",
    directives: &[
        Directive::not_yet(
            &["frm.xfr.copycmd"],
            UsageFrequency::Common,
            "[in|out] [noalloc] [rmerr] [stats] [timeout time] [mdp] [url] command arguments",
        )
        .default("none")
        .help("Copy program.")
        .example("in /usr/bin/stagein $SRC $DST"),
        Directive::not_yet(&["frm.xfr.copymax"], UsageFrequency::Common, "n")
            .default("2")
            .help("Maximum number of concurrent copies.")
            .example("10"),
        Directive::not_yet(&["frm.xfr.qcheck"], UsageFrequency::Common, "[time] [path]")
            .default("300s")
            .help("Interval at which the queue is checked.")
            .example("60"),
        Directive::not_yet(&["frm.xfr.migr.idlehold"], UsageFrequency::Common, "time")
            .default("10m")
            .help("Idle time of a file before it is migrated.")
            .example("1h"),
        Directive::not_yet(&["frm.xfr.migr.waittime"], UsageFrequency::Common, "time")
            .default("1h")
            .help("Interval between two searches for files to migrate.")
            .example("30m"),
        Directive::not_yet(
            &["frm.purge.policy"],
            UsageFrequency::Common,
            "{space|*} {nopurge | minfree [maxfree]} [hold time] [polprog]",
        )
        .default("none")
        .help("Purge policy of a space.")
        .example("* 10% 20%"),
        Directive::not_yet(&["frm.purge.polprog"], UsageFrequency::Common, "program arguments")
            .default("none")
            .help("Program that selects files to purge.")
            .example("/usr/bin/polprog"),
        Directive::not_yet(&["frm.purge.dirhold"], UsageFrequency::Common, "time")
            .default("40h")
            .help("Time for which an empty directory is kept.")
            .example("10h"),
        Directive::not_yet(&["frm.purge.waittime"], UsageFrequency::Common, "time")
            .default("600s")
            .help("Interval between two purges.")
            .example("10m"),
        Directive::not_yet(&["frm.all.cnsd"], UsageFrequency::Common, "{auto|ignore|require} [apath path]")
            .default("auto")
            .help("Use of the name space daemon.")
            .example("ignore"),
        Directive::not_yet(&["frm.all.monitor"], UsageFrequency::Common, "[options]")
            .default("off")
            .help("Monitoring of mass storage.")
            .example("stage flush 30 dest collector.example.org:9930"),
    ],
};
