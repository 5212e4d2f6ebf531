//! Directives of the cluster: `cms.`, and the roles and managers of `all.`.

mod managers;
mod nodes;
mod waits;

use super::{Directive, Mark, Section, Standing};

pub(super) use managers::{manager, role, subcluster};
pub(super) use nodes::{forward, host_pattern};
pub(crate) use waits::read_by_xrootd;

/// The longest time that may be asked for, in seconds: ten years.
const LONG: u64 = 10 * 365 * 86_400;
/// A day, in seconds.
const DAY: u64 = 86_400;

pub(super) const SECTION: Section = Section {
    title: "Cluster: cms.",
    about: "One process is both the data server (or redirector) and its cluster node. It reads a file twice: as xrootd, \
            and for these directives as cmsd, so that `if exec cmsd` and two ports hold. See docs/cluster.md.",
    directives: &[
        Directive::new(&["cms.space"], Mark::Most, "[linger n] [recalc time] [min] [p%] size [[p%] size] [mwfiles]", nodes::space)
            .default("linger 0 recalc 12s min 2% 10g 5% 11g")
            .help("Free space below which a server is not chosen for writing, and from which on it is again; a percentage \
                   is of the largest partition, and needs its size. `mwfiles`: several copies of a file may be written. \
                   `scalla serve --min-free SIZE` sets the least without a percentage, and a tenth more as what is enough again.")
            .example("min 5% 20g"),
        Directive::new(&["cms.sched"], Mark::Common, "[cpu n] [io n] [runq n] [mem n] [pag n] [space n] [fuzz n] [maxload n] [refreset time] [gshr n] [gsdflt n] [affinity [default] {none|weak|strong|strict|randomized}] [affpath {all|first n|last n}] [tryhname {0|1}] [maxretries n[@host:port]] [nomultisrc[@host:port]]", waits::sched)
            .default("all weights 0 (servers take turns), fuzz 20, affinity none")
            .help("How a server is chosen among those that have the file. Counts of who was chosen begin \
                   anew after `refreset`; `gshr` is the share a meta manager gives this cluster, `gsdflt` that of those \
                   that say nothing. `tryhname` has no effect: a server that was tried is known by the name and the \
                   address that clients are sent to, and none is looked up.")
            .example("cpu 50 io 50 fuzz 10"),
        Directive::new(&["cms.conwait"], Mark::Common, "time", waits::contact_wait)
            .default("10s")
            .help("How long a redirector that has no manager tells clients to wait: it is one process with its node here, \
                   and `cms.delay service` counts.")
            .example("10s")
            .standing(Standing::NoEffect),
        Directive::new(&["cms.perf"], Mark::Common, "[int time] [xrootd] {lib path [parameters]|pgm program [arguments]}", nodes::perf)
            .default("the node measures itself")
            .help("Source of load figures. A program writes lines `runq cpu mem pag net`, each 0 to 100.")
            .example("int 1m pgm /usr/bin/cms_monPerf 30"),
        Directive::new(&["cms.delay"], Mark::Common, "[lookup time] [qdl time] [qdn n] [hold ms] [startup time] [service time] [servers n[%]] [suspend time] [drop time] [delnode time] [full time] [overload time] [peer time] [rw 0-2] [discard n] [nostage n]", waits::delay)
            .default("lookup 5s, qdl as lookup, hold 178, service 15s, servers 80%, suspend 30s, drop 10m (supervisors 0), nostage 3")
            .help("Waits of the cluster, and how many servers must be there. Without effect are `startup` (clients are served \
                   as soon as the servers are there), `rw` and `qdn` (who waits is answered as soon as it can be decided), \
                   `delnode` (a lost node goes with its place, `drop`), and `peer` and `discard`, which mean nothing any more.")
            .example("lookup 5 servers 2"),
        Directive::new(&["cms.dfs"], Mark::Common, "[lookup {central|distrib}] [redirect {immed|verify}] [limit [central] [=]n] [mdhold time] [qmax n] [retries n]", nodes::shared_files)
            .default("off; lookup distrib redirect verify retries 2")
            .help("All servers see the same files: one is asked for all, and clients are sent on without a look with \
                   `redirect immed`. With `lookup central` managers and supervisors look themselves, at oss.localroot on \
                   their own host, and ask a server only when they cannot tell. A node, `central` only such managers and \
                   supervisors, begins at most `limit` look-ups in a second, with `=` spread evenly over it; `qmax` of them \
                   wait (two and a half times the limit), and whoever comes then is to come again. `mdhold`: for so \
                   long names in a folder that is not there are not looked up.")
            .example("lookup central limit =50 mdhold 10m"),
        Directive::new(&["cms.allow"], Mark::Common, "{host|netgroup} name", nodes::allow)
            .default("everybody")
            .help(
                "Who may join the cluster: host name or address with at most one `*`. Repeatable. Without it a manager or \
                 supervisor warns at its start.",
            )
            .example("host *.example.org")
            .stops_with("netgroup storage"),
        Directive::new(&["cms.blacklist"], Mark::Common, "[check time] [path]", nodes::blacklist)
            .default("none; check 600s, path cms.blacklist beside the configuration")
            .help("File of servers that are not used: lines `host` or `host redirect other:port…`. It is looked at every `check`, \
                   of which a real cmsd takes 60 s at least.")
            .example("check 2m /etc/xrootd/blacklist"),
        Directive::new(&["cms.whitelist"], Mark::Common, "[check time] [path]", nodes::whitelist)
            .default("none; check 600s, path cms.whitelist beside the configuration")
            .help("File of the only servers that are used.")
            .example("/etc/xrootd/whitelist"),
        Directive::new(&["cms.fsxeq"], Mark::Common, "{chmod|mkdir|mkpath|mv|rm|rmdir|trunc}… program [arguments]", nodes::operations)
            .default("none")
            .help("Program that does operations passed on by a manager.")
            .example("rm /usr/bin/xrm"),
        Directive::new(&["cms.fxhold"], Mark::Common, "[noloc time] [time]", waits::location_hold)
            .default("8h")
            .help("How long a location is remembered; `noloc`: how long it is remembered that nobody has a file.")
            .example("noloc 10m 4h"),
        Directive::new(&["cms.ping"], Mark::Common, "time [log n] [usage n]", waits::ping)
            .default("60s usage 10")
            .help("Time between pings to nodes of XRootD, and pings between questions for their load.")
            .example("30s"),
        Directive::new(&["cms.mode"], Mark::Rare, "{r/o|r/w}", nodes::mode)
            .default("r/w")
            .help("`r/o`: nobody may write, create or remove anything through this manager.")
            .example("r/w")
            .stops_with("r/o"),
        Directive::later(&["cms.prep"], Mark::Rare, "[options]")
            .default("off")
            .help("Staging interface of a server.")
            .example("ifpgm /usr/bin/prep"),
        Directive::later(&["cms.prepmsg"], Mark::Rare, "text")
            .default("built in")
            .help("Line that a prepare program is told.")
            .example("$REQID $LFN"),
        Directive::guard(&["all.seclib", "cms.seclib"], Mark::Rare, "path", "libXrdSec.so")
            .default("none")
            .help("Authentication between cluster nodes. `cms.allow` restricts by host."),
        Directive::idle(&["cms.altds"], Mark::Rare, "xroot port [[no]monitor]")
            .default("none")
            .help("Another data server that speaks for this node: the one in this process does.")
            .example("xroot 1094"),
        Directive::new(&["cms.superport"], Mark::Rare, "port [if]", nodes::supervisor_port)
            .default("any")
            .help("Port where the nodes below a supervisor log in.")
            .example("2131"),
        Directive::new(&["cms.vnid"], Mark::Rare, "{=id|<file}", nodes::virtual_id)
            .default("an id kept in the admin folder")
            .help("Id by which a node is known wherever it is: 1 to 64 characters.")
            .example("=disk17"),
        Directive::new(&["cms.cidtag"], Mark::Rare, "tag", nodes::tag)
            .default("none")
            .help("Tag of 1 to 16 characters in front of the cluster id.")
            .example("cluster1"),
        Directive::idle(&["cms.nbsendq"], Mark::Rare, "[all|off|remote] [warn n] [maxq {n|none}]")
            .default("remote warn 3 maxq 30")
            .help("Queue of messages to slow nodes. Every connection has a bounded one here.")
            .example("all"),
        Directive::idle(&["cms.request"], Mark::Rare, "[repwait time] [delay time] [noresp n] [prep ms] [fwd ms]")
            .default("repwait 3s delay 5s noresp 8")
            .help("Waits between a redirector and its manager: both are this process.")
            .example("delay 5"),
        Directive::idle(&["cms.repstats"], Mark::Rare, "{all|off|option}…")
            .default("off")
            .help("Statistics that are reported. See `scalla cluster status`.")
            .example("all"),
        Directive::idle(&["cms.wait"], Mark::Rare, "(flag)")
            .default("on")
            .help("Wait for the data server at the start: it is this process."),
        Directive::idle(&["cms.nowait"], Mark::Rare, "(flag)")
            .default("off")
            .help("Do not wait for it."),
        Directive::idle(&["cms.osslib"], Mark::Rare, "library [parameters]")
            .default("ofs.osslib")
            .help("Storage plug-in of the cluster node, which uses the data server's storage here.")
            .example("libXrdOss.so"),
        Directive::idle(&["cms.localroot"], Mark::Rare, "path")
            .default("oss.localroot")
            .help("Path on disk as the cluster node sees it, which is that of oss.localroot here.")
            .example("/srv/data"),
        Directive::idle(&["cms.remoteroot"], Mark::Rare, "path")
            .default("oss.remoteroot")
            .help("Path in mass storage as the cluster node sees it.")
            .example("/tape"),
        Directive::idle(&["cms.namelib"], Mark::Rare, "library [parameters]")
            .default("oss.namelib")
            .help("Name mapping of the cluster node, which is that of oss.namelib here.")
            .example("libXrdN2No2p.so"),
        Directive::new(&["cms.trace"], Mark::Rare, "{all|off|none|[-]option}…", nodes::cms_trace)
            .default("off")
            .help("How much is logged of the cluster: debug defer files forward redirect space stage.")
            .example("debug"),
    ],
};
