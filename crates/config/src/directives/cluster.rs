//! Directives of the cluster: `cms.`, and the roles and managers of `all.`.
//!
//! The table is here; the functions that read the arguments are in the submodules, because one file
//! would be too long.

mod key;
mod managers;
mod nodes;
mod proxies;
mod waits;

use super::definition::{Directive, Section};
use super::standing::{Standing, UsageFrequency};
use crate::effective::LoadProgramSetting;

pub(super) use managers::{manager, role, subcluster};
pub(super) use nodes::{forward, host_pattern};
pub(crate) use proxies::finish_proxies;
pub(crate) use waits::read_by_xrootd;

pub(super) const SECTION: Section = Section {
    title: "Cluster: cms.",
    about: "One process is both the data server (or redirector) and its cluster node. It reads a file twice: \
        as xrootd, and for these directives as cmsd, so that `if exec cmsd` and two ports work. See \
        docs/cluster.md.",
    directives: &[
        Directive::new(&["cms.space"], UsageFrequency::Most, "[linger n] [recalc time] [min] [p%] size [[p%] size] [mwfiles]", nodes::space)
            .default("linger 0 recalc 12s min 2% 10g 5% 11g")
            .help("Free space below which a server is not selected for writing, and at which it is \
                   selected again. A percentage refers to the largest partition and requires a size. \
                   `mwfiles`: several copies of a file may be written. `scalla serve --min-free SIZE` \
                   sets the minimum without a percentage, and the recovery limit to a tenth more.")
            .example("min 5% 20g"),
        Directive::new(&["cms.sched"], UsageFrequency::Common, "[cpu n] [io n] [runq n] [mem n] [pag n] [space n] [fuzz n] [maxload n] [refreset time] [gshr n] [gsdflt n] [affinity [default] {none|weak|strong|strict|randomized}] [affpath {all|first n|last n}] [tryhname {0|1}] [maxretries n[@host:port]] [nomultisrc[@host:port]]", waits::sched)
            .default("all weights 0 (servers take turns), fuzz 20, affinity none")
            .help("Selection among the servers that have a file: weights of the load formula. `refreset` \
                   is the interval at which selection counts are reset. `gshr` is the share of clients \
                   that a meta manager sends to this cluster, `gsdflt` that of clusters without `gshr`. \
                   `tryhname` has no effect: tried servers are identified by the host name and the \
                   address of the redirect, and no name is looked up.")
            .example("cpu 50 io 50 fuzz 10"),
        Directive::new(&["cms.conwait"], UsageFrequency::Common, "time", waits::contact_wait)
            .default("10s")
            .help("Wait sent to clients by a redirector without a manager. Redirector and node are one \
                   process here, and `cms.delay service` applies instead.")
            .example("10s")
            .standing(Standing::NoEffect),
        Directive::new(&["cms.perf"], UsageFrequency::Common, "[int time] [xrootd] {lib path [parameters]|pgm program [arguments]}", nodes::perf)
            .default("the node measures itself")
            .help("Source of load values. A program writes lines `runq cpu mem pag net`, each value 0 to \
                   100.")
            .executes(|effective| matches!(*effective.cluster.load_source, LoadProgramSetting::Program(_)))
            .example("int 1m pgm /usr/bin/cms_monPerf 30"),
        Directive::new(&["cms.delay"], UsageFrequency::Common, "[lookup time] [qdl time] [qdn n] [hold ms] [startup time] [service time] [servers n[%]] [suspend time] [drop time] [delnode time] [full time] [overload time] [peer time] [rw 0-2] [discard n] [nostage n]", waits::delay)
            .default("lookup 5s, qdl as lookup, hold 178, service 15s, servers 80%, suspend 30s, drop 10m (supervisors 0), nostage 3")
            .help("Waits of the cluster, and the number of servers required for service. These have no \
                   effect: `startup` (clients are served as soon as the quorum is reached), `rw` and \
                   `qdn` (a waiting client is answered as soon as the answer can be decided), `delnode` \
                   (a lost node is removed with its slot, see `drop`), `peer` and `discard` (obsolete).")
            .example("lookup 5 servers 2"),
        Directive::new(&["cms.dfs"], UsageFrequency::Common, "[lookup {central|distrib}] [redirect {immed|verify}] [limit [central] [=]n] [mdhold time] [qmax n] [retries n]", nodes::shared_files)
            .default("off; lookup distrib redirect verify retries 2")
            .help("All servers share the same files: one server is queried for all, and with `redirect \
                   immed` clients are redirected without a query. With `lookup central` managers and \
                   supervisors look up files themselves in oss.localroot on their own host, and query a \
                   server only if that gives no answer. `limit` is the rate limit of look-ups per second \
                   of a node, with `central` only of managers and supervisors, with `=` spread evenly \
                   over the second. `qmax` is the maximum number of queued look-ups (default: two and a \
                   half times the limit); further clients must retry. `mdhold`: time for which names in \
                   a missing directory are not looked up.")
            .example("lookup central limit =50 mdhold 10m"),
        Directive::new(&["cms.allow"], UsageFrequency::Common, "{host|netgroup} name", nodes::allow)
            .default("everybody")
            .help("Hosts that may join the cluster: name or address with at most one `*`. Repeatable. \
                   Without it a manager or supervisor logs a warning at its start.")
            .example("host *.example.org")
            .stops_with("netgroup storage"),
        Directive::new(&["scalla.clusterkey"], UsageFrequency::Common, "path [except host…]", key::cluster_key)
            .default("nodes do not authenticate")
            .help("Nodes authenticate each other with a key of this `sss` key table, of which each node \
                   has a copy. A node or redirector without the key is refused. `except`: hosts, by name \
                   or address with at most one `*`, that join without it, such as those of XRootD nodes. \
                   The table is read again every minute and at a reload. See docs/cluster.md.")
            .example("/etc/xrootd/cluster.keytab except *.old.example.org"),
        Directive::new(&["cms.blacklist"], UsageFrequency::Common, "[check time] [path]", nodes::blacklist)
            .default("none; check 600s, path cms.blacklist next to the configuration")
            .help("File of excluded servers, with lines `host` or `host redirect other:port…`. `check` \
                   is the interval at which the file is checked; a real cmsd uses at least 60 s.")
            .example("check 2m /etc/xrootd/blacklist"),
        Directive::new(&["cms.whitelist"], UsageFrequency::Common, "[check time] [path]", nodes::whitelist)
            .default("none; check 600s, path cms.whitelist next to the configuration")
            .help("File of the only servers that are used.")
            .example("/etc/xrootd/whitelist"),
        Directive::new(&["cms.fsxeq"], UsageFrequency::Common, "{chmod|mkdir|mkpath|mv|rm|rmdir|trunc}… program [arguments]", nodes::operations)
            .default("none")
            .help("Program that executes operations forwarded by a manager.")
            .executes(|effective| !effective.cluster.programs.is_empty())
            .example("rm /usr/bin/xrm"),
        Directive::new(&["cms.fxhold"], UsageFrequency::Common, "[noloc time] [time]", waits::location_hold)
            .default("8h")
            .help("Time for which a location is cached. `noloc`: time for which a missing file is \
                   cached.")
            .example("noloc 10m 4h"),
        Directive::new(&["cms.ping"], UsageFrequency::Common, "time [log n] [usage n]", waits::ping)
            .default("60s usage 10")
            .help("Interval of pings to nodes of XRootD, and number of pings between two load queries.")
            .example("30s"),
        Directive::new(&["cms.mode"], UsageFrequency::Rare, "{r/o|r/w}", nodes::mode)
            .default("r/w")
            .help("`r/o`: clients cannot write, create or remove anything through this manager.")
            .example("r/w")
            .stops_with("r/o"),
        Directive::not_yet(&["cms.prep"], UsageFrequency::Rare, "[options]")
            .default("off")
            .help("Staging interface of a server.")
            .example("ifpgm /usr/bin/prep"),
        Directive::not_yet(&["cms.prepmsg"], UsageFrequency::Rare, "text")
            .default("built in")
            .help("Line sent to a prepare program.")
            .example("$REQID $LFN"),
        Directive::guard(&["all.seclib", "cms.seclib"], UsageFrequency::Rare, "path", "libXrdSec.so", nodes::security_library)
            .default("none")
            .help("Authentication between cluster nodes by a library. Use `scalla.clusterkey` instead; \
                   `cms.allow` restricts by host."),
        Directive::idle(&["cms.altds"], UsageFrequency::Rare, "xroot port [[no]monitor]")
            .default("none")
            .help("Another data server for this node. The data server in this process is used.")
            .example("xroot 1094"),
        Directive::new(&["cms.superport"], UsageFrequency::Rare, "port [if]", nodes::supervisor_port)
            .default("any")
            .help("Port where the nodes below a supervisor log in.")
            .example("2131"),
        Directive::new(&["cms.vnid"], UsageFrequency::Rare, "{=id|<file}", nodes::virtual_id)
            .default("an id kept in the admin directory")
            .help("Id of a node that is independent of its address: 1 to 64 characters.")
            .example("=disk17"),
        Directive::new(&["cms.cidtag"], UsageFrequency::Rare, "tag", nodes::tag)
            .default("none")
            .help("Tag of 1 to 16 characters before the cluster id.")
            .example("cluster1"),
        Directive::idle(&["cms.nbsendq"], UsageFrequency::Rare, "[all|off|remote] [warn n] [maxq {n|none}]")
            .default("remote warn 3 maxq 30")
            .help("Queue of messages to slow nodes. Each connection has a bounded queue here.")
            .example("all"),
        Directive::idle(&["cms.request"], UsageFrequency::Rare, "[repwait time] [delay time] [noresp n] [prep ms] [fwd ms]")
            .default("repwait 3s delay 5s noresp 8")
            .help("Waits between a redirector and its manager. Both are this process.")
            .example("delay 5"),
        Directive::idle(&["cms.repstats"], UsageFrequency::Rare, "{all|off|option}…")
            .default("off")
            .help("Statistics to report. See `scalla cluster status`.")
            .example("all"),
        Directive::idle(&["cms.wait"], UsageFrequency::Rare, "(flag)")
            .default("on")
            .help("Wait for the data server at the start. It is this process."),
        Directive::idle(&["cms.nowait"], UsageFrequency::Rare, "(flag)")
            .default("off")
            .help("Do not wait for the data server at the start."),
        Directive::idle(&["cms.osslib"], UsageFrequency::Rare, "library [parameters]")
            .default("ofs.osslib")
            .help("Storage plug-in of the cluster node, which uses the storage of the data server here.")
            .example("libXrdOss.so"),
        Directive::idle(&["cms.localroot"], UsageFrequency::Rare, "path")
            .default("oss.localroot")
            .help("Path on disk as the cluster node sees it. oss.localroot applies here.")
            .example("/srv/data"),
        Directive::idle(&["cms.remoteroot"], UsageFrequency::Rare, "path")
            .default("oss.remoteroot")
            .help("Path in mass storage as the cluster node sees it.")
            .example("/tape"),
        Directive::idle(&["cms.namelib"], UsageFrequency::Rare, "library [parameters]")
            .default("oss.namelib")
            .help("Name mapping of the cluster node. oss.namelib applies here.")
            .example("libXrdN2No2p.so"),
        Directive::new(&["cms.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…", nodes::cms_trace)
            .default("off")
            .help("Log level of the cluster. Options: debug defer files forward redirect space stage.")
            .example("debug"),
    ],
};
