//! The texts of `help`.

use super::words::CommandWords;
use super::{CommandEnd, CommandRun, CommandStep};

/// What all commands are.
const USAGE: &str = "Usage: [help] {audit | chksum | exit | f[ind] | makelf | mark | mmap | mv | pin | q[uery] | quit | reloc | rm} ...";

/// The text of each command.
const COMMANDS: [(&str, &str); 11] = [
    (
        "audit",
        "Usage: audit [opts] {names ldir | space name[:pdir] | usage [name]}\n\nopts: -fix -f[orce] -m[igratable] -p[urgeable] -r[ecursive]",
    ),
    (
        "chksum",
        "Usage: chksum [opts] {calc | ls | set <csval> | unset | ver[ify] <csval>} fn\n\nopts: -f[orce] -pfn -t[ype] <cstype> -v[erbose]",
    ),
    (
        "find",
        "Usage: find [-r[ecursive]] what ldir [ldir [...]]\n\nwhat: fail[files] | mmap[ped] | nochksum <type> | nolk[files] | pin[ned] | unmig[rated]",
    ),
    (
        "makelf",
        "Usage: makelf [opts] lspec [lspec [...]]\n\nopts: -m[igratable] -o[wner] [usr][:[grp]] -p[urgeable] -r[ecursive]\n\nlspec: lfn | ldir[/*]",
    ),
    (
        "mark",
        "Usage: mark [opts] lspec [lspec [...]]\n\nopts: -f[orce] -m[igratable] -p[urgeable] -r[ecursive]\n\nlspec: lfn | ldir[/*]",
    ),
    (
        "mmap",
        "Usage: mmap [opts] lspec [lspec [...]]\n\nopts: -k[eep] -l[ock] -o[ff] -r[ecursive]\n\nlspec: lfn | ldir[/*]",
    ),
    ("mv", "Usage: mv oldlfn newlfn"),
    (
        "pin",
        "Usage: pin [opts] lspec [lspec [...]]\n\nopts: -k[eep] <time> -r[ecursive]\n\ntime: [+]<n>[d|h|m|s] | mm/dd/[yy]yy | forever\n\nlspec: lfn | ldir[/*]",
    ),
    (
        "query",
        "Usage: \nquery pfn lspec [lspec [...]]\nquery rfn lspec [lspec [...]]\nquery space [[-r[ecursive]] lspec [...]]\nquery usage [name]\nquery xfrq  [name] [vars]\n\nlspec: lfn | ldir[/*]",
    ),
    ("reloc", "Usage: reloc lfn {cgroup[:path]}"),
    (
        "rm",
        "Usage: rm [opts] lspec [lspec [...]]\n\nopts: -e[cho] -f[orce] -r[ecursive]\n\nlspec: lfn | ldir[/*]",
    ),
];

/// `help [COMMAND]`.
pub(super) fn help(run: &mut CommandRun<'_>, words: &mut CommandWords<'_>) -> CommandStep {
    let command = words.text();
    let long = match command.as_deref() {
        Some("f") => "find",
        Some("q") => "query",
        other => other.unwrap_or_default(),
    };
    if let Some((_, text)) = COMMANDS.iter().find(|(name, _)| *name == long) {
        text.split('\n').for_each(|line| run.message(line));
        return Ok(());
    }
    run.message(USAGE);
    if command.is_none() { Ok(()) } else { Err(CommandEnd) }
}
