//! Directives of the cluster: `cms.`. Not in force yet.

use super::{Directive, Mark, Section};

pub(super) const SECTION: Section = Section {
    title: "Cluster: cms.",
    about: "Clustering is not in force yet: the server stands alone, whatever these say.",
    directives: &[
        Directive::later(&["cms.space"], Mark::Most, "[linger n] [recalc time] [min [p%] size [[p%] hwm]] [mwfiles]")
            .default("min 2% 10g 5% 11g recalc 12s")
            .help("Free space below which a server is not chosen for writing.")
            .example("min 5% 20g"),
        Directive::later(&["cms.sched"], Mark::Common, "[cpu n] [gsdflt n] [gshr n] [io n] [mem n] [pag n] [runq n] [space n] [fuzz n] [maxload n] [refreset time] [affinity [default] {none|weak|strong|strict|randomized}] [tryhname {0|1}]")
            .default("all weights 0, fuzz 20, refreset 1h")
            .help("How the least loaded server is found.")
            .example("cpu 50 io 50 fuzz 10"),
        Directive::later(&["cms.conwait"], Mark::Common, "time")
            .default("10s")
            .help("How long a redirector waits for a manager before it tells clients to wait.")
            .example("10s"),
        Directive::later(&["cms.perf"], Mark::Common, "[int time] {xrootd|lib path|pgm program}")
            .default("int 3m")
            .help("Source of load figures.")
            .example("int 1m xrootd"),
        Directive::later(&["cms.delay"], Mark::Common, "[lookup time] [qdl time] [qdn n] [hold ms] [startup time] [service time] [servers n] [suspend time] [drop time] [delnode time] [full time] [overload time] [peer time] [rw 0-2] [discard n] [nostage n]")
            .default("lookup 5s hold 178 startup 90s service 15s servers 1 suspend 30s drop 10m delnode 16m")
            .help("Waits of the cluster.")
            .example("startup 30"),
        Directive::later(&["cms.dfs"], Mark::Common, "[lookup {central|distrib}] [redirect {immed|verify}] [limit [central] [=]n] [mdhold time] [qmax n] [retries n]")
            .default("lookup distrib redirect verify")
            .help("Clusters over a shared file system.")
            .example("lookup central redirect immed"),
        Directive::later(&["cms.allow"], Mark::Common, "{host|netgroup} name")
            .default("all")
            .help("Who may join the cluster.")
            .example("host *.example.org"),
        Directive::later(&["cms.blacklist"], Mark::Common, "[check time] path")
            .default("none, check 600s")
            .help("Servers that are not used.")
            .example("/etc/xrootd/blacklist"),
        Directive::later(&["cms.whitelist"], Mark::Common, "[check time] path")
            .default("none, check 600s")
            .help("The only servers that are used.")
            .example("/etc/xrootd/whitelist"),
        Directive::later(&["cms.fsxeq"], Mark::Common, "{chmod|mkdir|mkpath|mv|rm|rmdir|trunc}… program")
            .default("none")
            .help("Program for forwarded operations.")
            .example("rm /usr/bin/xrm"),
        Directive::later(&["cms.fxhold"], Mark::Common, "[noloc time] time")
            .default("8h")
            .help("Life of remembered locations.")
            .example("4h"),
        Directive::later(&["cms.ping"], Mark::Common, "time [log n] [usage n]")
            .default("60s log 10 usage 10")
            .help("Time between pings.")
            .example("30s"),
        Directive::later(&["cms.prep"], Mark::Rare, "[options]")
            .default("off")
            .help("Passing on of prepare requests.")
            .example("ifpgm /usr/bin/prep"),
        Directive::later(&["cms.prepmsg"], Mark::Rare, "text")
            .default("built in")
            .help("Line that a prepare program is told.")
            .example("$REQID $LFN"),
        Directive::later(&["cms.seclib"], Mark::Rare, "path")
            .default("none")
            .help("Authentication between cluster nodes.")
            .example("/usr/lib64/libXrdSec.so"),
        Directive::later(&["cms.altds"], Mark::Rare, "xroot port [[no]monitor]")
            .default("none")
            .help("Another data server that speaks for this node.")
            .example("xroot 1094"),
        Directive::later(&["cms.superport"], Mark::Rare, "port [if]")
            .default("any")
            .help("Port of a supervisor.")
            .example("2131"),
        Directive::later(&["cms.vnid"], Mark::Rare, "{=value|<file|@library} [parameters]")
            .default("none")
            .help("Virtual network id.")
            .example("=site1"),
        Directive::later(&["cms.cidtag"], Mark::Rare, "tag")
            .default("none")
            .help("Tag of 1 to 16 characters in the cluster id.")
            .example("cluster1"),
        Directive::later(&["cms.nbsendq"], Mark::Rare, "[all|off|remote] [warn n] [maxq {n|none}]")
            .default("remote warn 3 maxq 30")
            .help("Queue of messages to slow nodes.")
            .example("all"),
        Directive::later(&["cms.repstats"], Mark::Rare, "{all|off|option}…")
            .default("off")
            .help("What is reported.")
            .example("all"),
        Directive::later(&["cms.wait"], Mark::Rare, "(flag)")
            .default("on")
            .help("Wait for managers at start."),
        Directive::later(&["cms.nowait"], Mark::Rare, "(flag)")
            .default("off")
            .help("Do not wait for managers at start."),
        Directive::later(&["cms.osslib"], Mark::Rare, "library [parameters]")
            .default("built in")
            .help("Storage plug-in of the cluster node.")
            .example("libXrdPss.so"),
        Directive::later(&["cms.localroot"], Mark::Rare, "path")
            .default("oss.localroot")
            .help("Path on disk as the cluster node sees it.")
            .example("/srv/data"),
        Directive::later(&["cms.namelib"], Mark::Rare, "library [parameters]")
            .default("oss.namelib")
            .help("Name mapping of the cluster node.")
            .example("libXrdN2No2p.so"),
        Directive::later(&["cms.trace"], Mark::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of the cluster.")
            .example("all"),
    ],
};
