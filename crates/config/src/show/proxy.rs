//! The values of a proxy as text.

use super::lines::{EffectiveLines, Reload};
use crate::effective::{
    CacheSpace, CacheUsage, CacheValues, MemoryCacheValues, OriginBucket, OriginPermit, ProxyOrigin,
    ProxyServer, ProxySettings,
};
use crate::values::show_size;
use std::path::PathBuf;

/// Shows the values of a proxy. They need a restart, because open files belong to an origin.
pub(super) fn show(values: &ProxySettings, lines: &mut EffectiveLines) {
    if !*values.enabled {
        return;
    }
    lines.restart("ofs.osslib", &values.enabled, |_| "libXrdPss.so".to_owned());
    lines.add(Reload::Restart, "pss.origin", &values.origin, |origin| origin.as_ref().map(self::origin));
    if values.origin.as_ref().is_some_and(|origin| origin.bucket.is_some()) {
        let store = &values.store;
        lines.add(Reload::Restart, "scalla.s3endpoint", &store.endpoint, |_| Some(store.url()));
        lines.restart("scalla.s3region", &store.region, Clone::clone);
        lines.add(Reload::Restart, "scalla.s3credentials", &store.keys, |keys| {
            keys.as_ref().map(|keys| format!("{} {}", keys.file.display(), keys.section))
        });
    }
    for setting in &values.permits {
        lines.restart("pss.permit", setting, permit);
    }
    let persona = |of_clients: &bool| if *of_clients { "client strict" } else { "server" }.to_owned();
    lines.restart("pss.persona", &values.has_client_identities, persona);
    lines.add(Reload::Restart, "pss.localroot", &values.local_root, Clone::clone);
    lines.add(Reload::Restart, "pss.hostarena", &values.host_arena, Clone::clone);
    for setting in &values.options {
        lines.restart("pss.setopt", setting, |option| format!("{} {}", option.name, option.number));
    }
    cache(&values.cache, lines);
    let memory = &values.memory_cache;
    if *memory.enabled {
        lines.restart("pss.cache", &memory.enabled, |_| memory_cache(memory));
    }
    lines.restart("pss.inetmode", &values.only_ipv4, |v4| if *v4 { "v4" } else { "v6" }.to_owned());
}

/// Shows the values of the disk cache.
fn cache(values: &CacheValues, lines: &mut EffectiveLines) {
    if !*values.enabled {
        return;
    }
    lines.restart("pss.cachelib", &values.enabled, |_| "libXrdPfc.so".to_owned());
    lines.restart("pfc.ram", &values.memory, |bytes| show_size(*bytes));
    lines.restart("pfc.blocksize", &values.block_bytes, |bytes| show_size(*bytes));
    lines.restart("pfc.prefetch", &values.prefetch, ToString::to_string);
    lines.restart("pfc.diskusage", &values.usage, usage);
    lines.add(Reload::Restart, "pfc.allow_xrdpfc_command", &values.path_commands, |allowed| {
        allowed.then(String::new)
    });
    lines.add(Reload::Restart, "pss.dca", &values.direct_reads, |direct| direct.then(String::new));
    let library = |path: &PathBuf| format!("libXrdPfcPurgeQuota.so {}", path.display());
    lines.add(Reload::Restart, "pfc.purgelib", &values.quota_file, |path| path.as_ref().map(library));
}

/// Returns the values of the memory cache.
fn memory_cache(values: &MemoryCacheValues) -> String {
    let (size, page) = (show_size(*values.bytes), show_size(*values.page_bytes));
    let kept = values.kept_bytes.map(|bytes| format!(" max2cache {}", show_size(bytes)));
    format!("size {size} pagesize {page} minpages {}{}", *values.pages_min, kept.unwrap_or_default())
}

fn usage(usage: &CacheUsage) -> String {
    let mut text = format!("{} {}", space(usage.low), space(usage.high));
    if let Some(limits) = usage.files {
        text += " files";
        limits.into_iter().for_each(|limit| text += &format!(" {}", space(limit)));
    }
    text += &format!(" purgeinterval {}", usage.interval.as_secs());
    if let Some((age, every)) = usage.cold {
        text += &format!(" purgecoldfiles {} {every}", age.as_secs());
    }
    text
}

fn space(space: CacheSpace) -> String {
    match space {
        CacheSpace::Share(millionths) => format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000),
        // Without a letter it would be a fraction.
        CacheSpace::Bytes(bytes) if bytes % 1024 == 0 => match show_size(bytes) {
            text if text.ends_with(|c: char| c.is_ascii_digit()) => format!("{text}k"),
            text => text,
        },
        CacheSpace::Bytes(bytes) => format!("{}k", bytes.div_ceil(1024)),
    }
}

fn origin(origin: &ProxyOrigin) -> String {
    let protocols: Vec<_> = origin.forwards.iter().map(|protocol| protocol.name()).collect();
    let forwards = (!protocols.is_empty()).then(|| format!("={}", protocols.join(",")));
    let bucket = origin.bucket.as_ref().map(OriginBucket::url);
    let server = origin.fixed.as_ref().map(ProxyServer::url).or(bucket);
    forwards.into_iter().chain(server).collect::<Vec<_>>().join(" ")
}

fn permit(permit: &OriginPermit) -> String {
    format!("{}{}", if permit.paths { "" } else { "* " }, permit.host.as_str())
}
