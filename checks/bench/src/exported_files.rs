//! The exported files that the loads of a run need.

use crate::clients;
use crate::data::{Data, make_directory};
use crate::proxy_loads;
use crate::row::{ClientTask, MeasuredServers, OpenedFiles, Row, RowLoad};
use crate::site;
use crate::slow;

const BIG: &str = "1g";
const LONG: &str = "2g";
const MANY: &str = "10000";
const SLOW: &str = "64m";

/// Writes the files that the loads need for the given number of measurements.
pub(crate) fn write(data: &Data, rows: &[Row], measurements: u32) -> anyhow::Result<()> {
    let parts = || rows.iter().flat_map(|row| row.load.arguments()).flatten();
    let uses = |path: &str| parts().any(|part| part == path);
    let loads = |wanted: fn(&RowLoad) -> bool| rows.iter().any(|row| wanted(&row.load));
    let web = |of: fn((bool, bool)) -> bool| {
        rows.iter().any(|row| matches!(row.load, RowLoad::Web(requests) if of(requests.needs())))
    };
    if uses("/big") || web(|(big, _)| big) || loads(|load| matches!(load, RowLoad::Mixed | RowLoad::Busy)) {
        data.generate(&data.tree(false).join("big"), &["--size", BIG])?;
    }
    if uses("/stream") {
        data.generate(&data.tree(false).join("stream"), &["--size", LONG])?;
    }
    if uses(slow::FILE) {
        data.generate(&data.tree(false).join("slow"), &["--size", SLOW])?;
    }
    if uses("/cold") || loads(|load| matches!(load, RowLoad::Mixed)) {
        data.generate(&data.cold(), &["--size", BIG])?;
    }
    if uses("/many") || uses("/many/f%d") || web(|(_, many)| many) {
        data.generate(&data.tree(false).join("many/f%d"), &["--size", "100", "--files", MANY])?;
    }
    if loads(|load| matches!(load, RowLoad::Located(_) | RowLoad::Missing | RowLoad::Restart)) {
        let new = rows.iter().filter(|row| matches!(row.load, RowLoad::Located(OpenedFiles::New)));
        site::spread(data, new.map(|_| measurements).sum())?;
    }
    if loads(|load| matches!(load, RowLoad::Misses)) {
        site::spread_widely(data, 2 * measurements)?;
    }
    let large = |load: &RowLoad| match load {
        RowLoad::Download | RowLoad::Upload => true,
        RowLoad::Errand(errand) => {
            matches!(errand, ClientTask::Download { .. } | ClientTask::Upload { .. })
        }
        _ => false,
    };
    if rows.iter().any(|row| large(&row.load)) {
        data.generate(&data.copied(), &["--size", LONG])?;
    }
    if loads(|load| matches!(load, RowLoad::Errand(ClientTask::Directory) | RowLoad::Crowd(_))) {
        let directory = data.tree(true).join("small");
        make_directory(&directory)?;
        data.generate(&directory.join("f%d"), &["--size", clients::FILE_BYTES, "--files", clients::FILES])?;
    }
    if rows.iter().any(|row| matches!(row.setting.cast, MeasuredServers::Proxies(_))) {
        proxy_loads::write_files(data, rows)?;
    }
    for row in rows {
        if let RowLoad::Gather(from) = row.load {
            let (name, bytes) = from.file();
            data.generate(&data.tree(true).join(name), &["--size", &bytes.to_string()])?;
        }
    }
    Ok(())
}
