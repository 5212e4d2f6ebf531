//! Directives of proxy, cache and throttling: `pss.`, `pfc.`, `throttle.`.
//!
//! Those of the proxy are in force. The others are known so that files of sites load, and so that
//! unknown names can be reported.

use super::cache;
use super::definition::{Directive, Section};
use super::memory_cache;
use super::object_store;
use super::origin;
use super::standing::{Standing, UsageFrequency};

pub(super) const SECTION: Section = Section {
    title: "Proxy, cache, throttling: pss., pfc., throttle.",
    about: "A proxy serves the files of other servers; see [proxy.md](proxy.md). Throttling is not in force yet. With a cache, directives of it that are not in force stop the start.",
    directives: &[
        Directive::new(&["pss.origin"], UsageFrequency::Most, "[=protocol,…] {host[:port| port] | URL | s3://bucket[/prefix] | /path}", origin::origin)
            .default("none")
            .help("The server whose files the proxy serves. With `=`, paths name their origin: `/root:/host:port/path`. Protocols are root, roots, http and https (also dav, davs). After `=` is a list of those that paths may name; without a list they are root and roots. Object stores (`s3://`) and web servers with WebDAV are also written. Directories and other protocols do not start.")
            .example("origin.example.org:1094"),
        Directive::new(&["scalla.s3endpoint"], UsageFrequency::Common, "{https|http}://host[:port]", object_store::endpoint)
            .default("that of Amazon in the region")
            .help("The object store of the bucket that `pss.origin s3://…` names.")
            .example("https://s3.example.org"),
        Directive::new(&["scalla.s3region"], UsageFrequency::Common, "name", object_store::region)
            .default("us-east-1")
            .help("The region of the bucket, which is part of the signature of requests.")
            .example("eu-west-1"),
        Directive::new(&["scalla.s3credentials"], UsageFrequency::Common, "path [section]", object_store::credentials)
            .default("none")
            .help("File with the keys for the object store, in the form of `~/.aws/credentials`, and the section there (`default`). Only the user of the server may read it. It is read at the start. Without it, requests are not signed, as for public buckets.")
            .example("/etc/xrootd/s3.keys"),
        Directive::new(&["pss.permit"], UsageFrequency::Common, "[/] [*] host", origin::permit)
            .default("all")
            .help("Hosts that paths may name as origins, also by redirects of these, and to which a fixed web server may redirect. Without it, a fixed web server does not redirect into loopback, link-local or private networks that it is not in. `*` alone is for object ids, which are not served.")
            .example("*.example.org"),
        Directive::new(&["pss.persona"], UsageFrequency::Common, "{client|server} [strict|nonstrict] [[no]verify]", origin::persona)
            .default("server")
            .help("Identity of requests at the origin: that of the proxy (`server`), or those of the clients (`client`), which have logged in to the proxy by `gsi`, `krb5`, `pwd` or `sss`. For the latter, the proxy needs a key of `sss` for `allusers` and `anygroup`, and a fixed origin of the xroot protocol without a cache. All requests have the identity of the client, so `nonstrict` has no effect.")
            .example("client strict"),
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
        Directive::new(&["pss.dca"], UsageFrequency::Rare, "[recheck {off|time}] [world|group]", cache::direct_access)
            .default("off")
            .help("Clients on this machine with the account and the group of the server that accept it read files that the disk cache has completely without the server. `group`, `world` and `recheck` have no effect: the mode of the files stays 0600. With `ofs.authorize` or `xrootd.seclib`, the directive has no effect. See [proxy.md](proxy.md#direct-reads-of-cached-files)."),
        Directive::idle(&["pss.reproxy"], UsageFrequency::Rare, "(flag)")
            .default("off")
            .help("Third-party copies show their progress without it."),
        Directive::new(&["pss.inetmode"], UsageFrequency::Rare, "{v4|v6}", origin::inet_mode)
            .default("v6")
            .help("Address families of connections to origins: IPv4 only, or both.")
            .example("v4"),
        Directive::new(&["pss.namelib"], UsageFrequency::Rare, "[-lfn2pfn] [-lfncache|-lfncachesrc[+]] library [parameters]", origin::name_library)
            .standing(Standing::NotYet)
            .default("none")
            .help("Name mapping of the proxy. A library stops the start, because clients would get other files."),
        Directive::new(&["pss.cache", "pss.memcache"], UsageFrequency::Common, "[size n] [pagesize n] [minpages n] [max2cache n] [preread …] [r/w] [logstats] [sfiles …] [debug n]", memory_cache::memory_cache)
            .default("off; size 100m pagesize 32k minpages 256 max2cache one page")
            .help("Pages of files are kept in memory, for a proxy without a disk cache. `size` is the limit of their memory, at least `minpages` pages of `pagesize` (4k to 16m, rounded up to a power of two). Reads of more than `max2cache` bytes go to the origin unless all their pages are in memory, and are not kept. The other options have no effect: nothing is fetched ahead, pages that were read leave when their room is needed, and the summary has the statistics.")
            .example("size 1g max2cache 1m"),
        Directive::new(&["pss.cachelib"], UsageFrequency::Most, "{default|library} [parameters]", cache::library)
            .default("none")
            .help("Files of the origin are kept on the disk below `oss.localroot`. `libXrdPfc.so` is built in; see [proxy.md](proxy.md#a-cache-for-my-site).")
            .example("libXrdPfc.so"),
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
        Directive::new(&["pfc.ram"], UsageFrequency::Most, "size", cache::memory)
            .default("1g")
            .help("Limit of the memory of blocks between their request at the origin and the disk, 1g to 256g. Reads beyond it go to the origin and are not stored.")
            .example("16g"),
        Directive::new(&["pfc.blocksize"], UsageFrequency::Common, "size", cache::block_size)
            .default("128k")
            .help("Size of the blocks of new files, 4k to 512m, rounded up to 4k. Files of more than 1,048,576 blocks have larger ones.")
            .example("512k"),
        Directive::new(&["pfc.diskusage"], UsageFrequency::Most, "low high [files base nominal max] [purgeinterval time] [purgecoldfiles age n]", cache::disk_usage)
            .default("0.90 0.95 purgeinterval 300s")
            .help("Files are removed when more than `high` of the file system is used, until `low` is used: fractions or sizes. With `files`, cached files have at most `max` bytes while no more than `low` is used; the limit falls to `nominal` at `high`, and to `base` on a full file system. `purgecoldfiles`: files that were not used for `age` (1h to 360d) are removed every `n` intervals of `purgeinterval`. The disk is looked at every 10 s.")
            .example("0.9 0.95 files 300g 500g 600g purgeinterval 5m purgecoldfiles 30d 12"),
        Directive::new(&["pfc.spaces"], UsageFrequency::Common, "data meta", cache::needed)
            .standing(Standing::NotYet)
            .default("public public")
            .help("Spaces of the cache.")
            .example("data meta"),
        Directive::new(&["pfc.prefetch"], UsageFrequency::Common, "n", cache::prefetch)
            .default("10")
            .help("Maximum number of blocks that are fetched ahead of a reader that reads most of what it passes; 0 for none.")
            .example("0"),
        Directive::new(&["pfc.writequeue"], UsageFrequency::Rare, "blocks threads", cache::needed)
            .standing(Standing::NotYet)
            .default("16 4")
            .help("Queue of blocks to write.")
            .example("16 4"),
        Directive::new(&["pfc.flush"], UsageFrequency::Rare, "{n|size}", cache::needed)
            .standing(Standing::NotYet)
            .default("2000")
            .help("Interval at which the state of a file is written.")
            .example("2000"),
        Directive::new(&["pfc.cschk"], UsageFrequency::Common, "[no]cache | [no]net | [no]tls | off | uvkeep {lru|time}", cache::needed)
            .standing(Standing::NotYet)
            .default("net")
            .help("Checksums of blocks.")
            .example("cache net"),
        Directive::new(&["pfc.urlcgi"], UsageFrequency::Rare, "blocksize {ignore|min max} prefetch {ignore|min max}", cache::needed)
            .standing(Standing::NotYet)
            .default("ignore")
            .help("Parameters that clients may set.")
            .example("blocksize ignore"),
        Directive::new(&["pfc.dirstats"], UsageFrequency::Common, "interval time maxdepth n dir path", cache::needed)
            .standing(Standing::NotYet)
            .default("interval 900 maxdepth 1")
            .help("Usage statistics by directory.")
            .example("interval 600 maxdepth 2 dir /"),
        Directive::new(&["pfc.acchistorysize"], UsageFrequency::Rare, "n", cache::needed)
            .standing(Standing::NotYet)
            .default("20")
            .help("Number of accesses recorded for a file.")
            .example("40"),
        Directive::new(&["pfc.onlyifcached"], UsageFrequency::Rare, "[minsize size] [minfrac x]", cache::needed)
            .standing(Standing::NotYet)
            .default("minsize 1m minfrac 1.0")
            .help("Refuses files that are not in the cache.")
            .example("minsize 2m"),
        Directive::new(&["pfc.osslib"], UsageFrequency::Common, "library [parameters]", cache::needed)
            .standing(Standing::NotYet)
            .default("built in")
            .help("Storage of the cache.")
            .example("libXrdOssStats.so"),
        Directive::new(&["pfc.decisionlib"], UsageFrequency::Common, "library [parameters]", cache::needed)
            .standing(Standing::NotYet)
            .default("none")
            .help("Plug-in that selects files to cache.")
            .example("libXrdBlacklistDecision.so"),
        Directive::new(&["pfc.purgelib"], UsageFrequency::Common, "libXrdPfcPurgeQuota.so file", cache::purge_library)
            .default("none")
            .help("Quotas of directories, which are built in. The file has lines `DIRECTORY SIZE`, names in the cache; it is read at the start. A directory above its quota loses the files that were not used for the longest time. Other libraries are not in force and stop the start.")
            .example("libXrdPfcPurgeQuota.so /etc/xrootd/quotas"),
        Directive::new(&["pfc.user"], UsageFrequency::Common, "name", cache::needed)
            .standing(Standing::NotYet)
            .default("that of the process")
            .help("Owner of cache files.")
            .example("xrootd"),
        Directive::new(&["pfc.trace"], UsageFrequency::Common, "{none|error|warning|info|debug|dump}", cache::needed)
            .standing(Standing::NotYet)
            .default("warning")
            .help("Log level of the cache.")
            .example("info"),
        Directive::new(&["pfc.httpcc"], UsageFrequency::Common, "{on|off}", cache::needed)
            .standing(Standing::NotYet)
            .default("off")
            .help("Honours Cache-Control of clients.")
            .example("on"),
        Directive::new(&["pfc.writethrough"], UsageFrequency::Common, "{on|off}", cache::needed)
            .standing(Standing::NotYet)
            .default("off")
            .help("Writes through the cache.")
            .example("on"),
        Directive::new(&["pfc.qfsredir"], UsageFrequency::Common, "{on|off}", cache::needed)
            .standing(Standing::NotYet)
            .default("on")
            .help("Server that answers space queries.")
            .example("off"),
        Directive::new(&["pfc.allow_xrdpfc_command"], UsageFrequency::Common, "(flag)", cache::path_commands)
            .default("off")
            .help("An open of `/xrdpfc_command/remove_file/ /PATH` removes a file from the cache, if `ofs.authorize` is set and its rules or tokens allow the client to delete the file. There is no file to open, so its answer is always an error: 3005 after a removal. The command `create_file` is refused, because a cached file without content would be false data."),
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
