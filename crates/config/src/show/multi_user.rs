//! The values of multi-user as text.

use super::lines::{EffectiveLines, Reload};
use crate::effective::MultiUserConfig;

/// Shows the values. They need a restart, because capabilities are given up at the start.
pub(super) fn show(values: &MultiUserConfig, lines: &mut EffectiveLines) {
    let library = |on: &bool| on.then(|| "++ libXrdMultiuser.so".to_owned());
    if !*values.enabled {
        return;
    }
    lines.add(Reload::Restart, "ofs.osslib", &values.enabled, library);
    lines.add(Reload::Restart, "ofs.ckslib", &values.checksums, |on| {
        on.then(|| "* libXrdMultiuser.so".to_owned())
    });
    lines.add(Reload::Restart, "multiuser.umask", &values.umask, |mask| {
        mask.map(|mask| format!("{mask:04o}"))
    });
    lines.restart("multiuser.minuid", &values.uid_min, u32::to_string);
    lines.restart("multiuser.mingid", &values.gid_min, u32::to_string);
}
