//! Directives of proxy, cache and throttling: `pss.`, `pfc.`, `throttle.`.
//!
//! Those of the proxy are in force. The others are known so that files of sites load, and so that
//! unknown names can be reported.

use super::definition::{Directive, Section};
use super::origin;
use super::standing::UsageFrequency;

pub(super) const SECTION: Section = Section {
    title: "Proxy, cache, throttling: pss., pfc., throttle.",
    about: "A proxy serves the files of other servers; see [proxy.md](proxy.md). Cache and throttling are not in force yet.",
    directives: &[
        Directive::new(&["pss.origin"], UsageFrequency::Most, "[=protocol,…] {host[:port| port] | URL | /path}", origin::origin)
            .default("none")
            .help("The server whose files the proxy serves. With `=`, paths name their origin: `/root:/host:port/path`. Protocols are root and roots; directories and other protocols do not start.")
            .example("origin.example.org:1094"),
        Directive::new(&["pss.permit"], UsageFrequency::Common, "[/] [*] host", origin::permit)
            .default("all")
            .help("Hosts that paths may name as origins, also by redirects of these. `*` alone is for object ids, which are not served.")
            .example("*.example.org"),
        Directive::new(&["pss.persona"], UsageFrequency::Common, "{client|server} [strict|nonstrict] [[no]verify]", origin::persona)
            .default("server")
            .help("Credentials used at the origin: those of the proxy (`server`). `client` is not in force yet and stops the start.")
            .example("server")
            .stops_with("client strict"),
        Directive::new(&["pss.localroot"], UsageFrequency::Common, "path", origin::local_root)
            .default("none")
            .help("Prefix of paths at the fixed origin. It need not exist on this machine.")
            .example("/store"),
        Directive::new(&["pss.hostarena"], UsageFrequency::Common, "path", origin::host_arena)
            .default("none")
            .help("Text before each path at an origin.")
            .example("/host"),
        Directive::new(&["pss.setopt"], UsageFrequency::Common, "name value", origin::option)
            .default("ConnectTimeout 4, ConnectionRetry 1, ReconnectWait 0")
            .help("Settings of the client. All lines count, and the last one of each name. ConnectTimeout, ConnectionRetry, DataServerTTL, LoadBalancerTTL, ParStreamsPerPhyConn, ReconnectWait, RedirectLimit, RequestTimeout and StreamTimeout have an effect.")
            .example("StreamTimeout 60"),
        Directive::not_yet(&["pss.config"], UsageFrequency::Rare, "[streams n] [workers n]")
            .default("streams 512 workers 16")
            .help("Threads of the client.")
            .example("streams 256"),
        Directive::not_yet(&["pss.dca"], UsageFrequency::Rare, "[recheck {off|time}] [world|group]")
            .default("off")
            .help("Clients on this machine read cache files directly.")
            .example("recheck 30"),
        Directive::not_yet(&["pss.reproxy"], UsageFrequency::Rare, "(flag)")
            .default("off")
            .help("Third-party copies use another proxy."),
        Directive::new(&["pss.inetmode"], UsageFrequency::Rare, "{v4|v6}", origin::inet_mode)
            .default("v6")
            .help("Address families of connections to origins: IPv4 only, or both.")
            .example("v4"),
        Directive::not_yet(&["pss.namelib"], UsageFrequency::Rare, "[-lfn2pfn] [-lfncache|-lfncachesrc[+]] library [parameters]")
            .default("none")
            .help("Name mapping of the proxy.")
            .example("libXrdN2No2p.so"),
        Directive::not_yet(&["pss.cache"], UsageFrequency::Common, "[size n] [pagesize n] [minpages n] [max2cache n] [preread …] [r/w] [logstats] [sfiles …] [debug n]")
            .default("off")
            .help("Memory cache.")
            .example("size 1g"),
        Directive::not_yet(&["pss.memcache"], UsageFrequency::Common, "[options]")
            .default("off")
            .help("Memory cache.")
            .example("size 1g"),
        Directive::not_yet(&["pss.cachelib"], UsageFrequency::Most, "{default|library} [parameters]")
            .default("none")
            .help("Disk cache.")
            .example("default"),
        Directive::not_yet(&["pss.ccmlib"], UsageFrequency::Most, "library [parameters]")
            .default("none")
            .help("Cache context manager.")
            .example("libXrdPfc.so"),
        Directive::not_yet(&["pss.ciosync"], UsageFrequency::Rare, "interval maxtime")
            .default("30 180")
            .help("Interval at which data is written to the origin.")
            .example("30 180"),
        Directive::guard(&["pss.export"], UsageFrequency::Common, "path [options]", "/data", origin::proxy_export)
            .default("none")
            .help("Exports of the proxy. Use all.export."),
        Directive::guard(&["pss.defaults"], UsageFrequency::Common, "options", "r/o", origin::proxy_defaults)
            .default("as oss.defaults")
            .help("Attributes of exports of the proxy. Use oss.defaults."),
        Directive::not_yet(&["pss.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of the proxy.")
            .example("debug"),
        Directive::not_yet(&["pss.debug"], UsageFrequency::Common, "n")
            .default("0")
            .help("Log level of the client of the proxy.")
            .example("1"),
        Directive::not_yet(&["pfc.ram"], UsageFrequency::Most, "size")
            .default("1g")
            .help("Memory of the cache, 1g to 256g.")
            .example("16g"),
        Directive::not_yet(&["pfc.blocksize"], UsageFrequency::Common, "size")
            .default("128k")
            .help("Size of a block, 4k to 512m.")
            .example("512k"),
        Directive::not_yet(&["pfc.diskusage"], UsageFrequency::Most, "low high [files base nominal max] [purgeinterval time] [purgecoldfiles age n]")
            .default("0.90 0.95 purgeinterval 300s")
            .help("Purge thresholds of the cache.")
            .example("0.9 0.95"),
        Directive::not_yet(&["pfc.spaces"], UsageFrequency::Common, "data meta")
            .default("public public")
            .help("Spaces of the cache.")
            .example("data meta"),
        Directive::not_yet(&["pfc.prefetch"], UsageFrequency::Common, "n")
            .default("10")
            .help("Number of blocks to prefetch.")
            .example("0"),
        Directive::not_yet(&["pfc.writequeue"], UsageFrequency::Rare, "blocks threads")
            .default("16 4")
            .help("Queue of blocks to write.")
            .example("16 4"),
        Directive::not_yet(&["pfc.flush"], UsageFrequency::Rare, "{n|size}")
            .default("2000")
            .help("Interval at which the state of a file is written.")
            .example("2000"),
        Directive::not_yet(&["pfc.cschk"], UsageFrequency::Common, "[no]cache | [no]net | [no]tls | off | uvkeep {lru|time}")
            .default("net")
            .help("Checksums of blocks.")
            .example("cache net"),
        Directive::not_yet(&["pfc.urlcgi"], UsageFrequency::Rare, "blocksize {ignore|min max} prefetch {ignore|min max}")
            .default("ignore")
            .help("Parameters that clients may set.")
            .example("blocksize ignore"),
        Directive::not_yet(&["pfc.dirstats"], UsageFrequency::Common, "interval time maxdepth n dir path")
            .default("interval 900 maxdepth 1")
            .help("Usage statistics by directory.")
            .example("interval 600 maxdepth 2 dir /"),
        Directive::not_yet(&["pfc.acchistorysize"], UsageFrequency::Rare, "n")
            .default("20")
            .help("Number of accesses recorded for a file.")
            .example("40"),
        Directive::not_yet(&["pfc.onlyifcached"], UsageFrequency::Rare, "[minsize size] [minfrac x]")
            .default("minsize 1m minfrac 1.0")
            .help("Refuses files that are not in the cache.")
            .example("minsize 2m"),
        Directive::not_yet(&["pfc.osslib"], UsageFrequency::Common, "library [parameters]")
            .default("built in")
            .help("Storage of the cache.")
            .example("libXrdOssStats.so"),
        Directive::not_yet(&["pfc.decisionlib"], UsageFrequency::Common, "library [parameters]")
            .default("none")
            .help("Plug-in that selects files to cache.")
            .example("libXrdBlacklistDecision.so"),
        Directive::not_yet(&["pfc.purgelib"], UsageFrequency::Common, "library [parameters]")
            .default("none")
            .help("Plug-in that selects files to purge.")
            .example("libXrdPfcPurgeQuota.so"),
        Directive::not_yet(&["pfc.user"], UsageFrequency::Common, "name")
            .default("that of the process")
            .help("Owner of cache files.")
            .example("xrootd"),
        Directive::not_yet(&["pfc.trace"], UsageFrequency::Common, "{none|error|warning|info|debug|dump}")
            .default("warning")
            .help("Log level of the cache.")
            .example("info"),
        Directive::not_yet(&["pfc.httpcc"], UsageFrequency::Common, "{on|off}")
            .default("off")
            .help("Honours Cache-Control of clients.")
            .example("on"),
        Directive::not_yet(&["pfc.writethrough"], UsageFrequency::Common, "{on|off}")
            .default("off")
            .help("Writes through the cache.")
            .example("on"),
        Directive::not_yet(&["pfc.qfsredir"], UsageFrequency::Common, "{on|off}")
            .default("on")
            .help("Server that answers space queries.")
            .example("off"),
        Directive::not_yet(&["pfc.allow_xrdpfc_command"], UsageFrequency::Common, "(flag)")
            .default("off")
            .help("Accepts commands encoded in file names."),
        Directive::not_yet(&["throttle.throttle"], UsageFrequency::Common, "[concurrency n] [data rate] [iops n] [rint ms | interval ms]")
            .default("unlimited, rint 1000")
            .help("Rate limits of average load.")
            .example("concurrency 100 data 1g"),
        Directive::not_yet(&["throttle.max_open_files"], UsageFrequency::Common, "n")
            .default("none")
            .help("Maximum number of open files per user.")
            .example("1000"),
        Directive::not_yet(&["throttle.max_active_connections"], UsageFrequency::Common, "n")
            .default("none")
            .help("Maximum number of connections with open files per user.")
            .example("100"),
        Directive::not_yet(&["throttle.max_wait_time"], UsageFrequency::Common, "seconds")
            .default("30")
            .help("Maximum delay of an operation before it fails.")
            .example("30"),
        Directive::not_yet(&["throttle.userconfig"], UsageFrequency::Rare, "/file")
            .default("none")
            .help("Limits per user.")
            .example("/etc/xrootd/throttle.ini"),
        Directive::not_yet(&["throttle.loadshed"], UsageFrequency::Rare, "host h port p frequency n")
            .default("none")
            .help("Redirects a share of opens to another server.")
            .example("host other.example.org port 1094 frequency 10"),
        Directive::not_yet(&["throttle.fslib"], UsageFrequency::Rare, "library")
            .default("default")
            .help("Underlying file system.")
            .example("libXrdOfs.so"),
        Directive::not_yet(&["throttle.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of throttling.")
            .example("all"),
    ],
};
