//! `all.export`, `xrootd.export` and `oss.defaults`: exported prefixes and their attributes.

use super::shared::{part_idle, part_later};
use super::{Arguments, Draft, Fault, Standing};
use crate::effective::{Attributes, Export, Visibility};
use crate::report::ProblemKind;
use crate::setting::{Origin, Setting};

/// One option of an export.
pub struct OptionEntry {
    /// Its names; all mean the same.
    pub names: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// What it does here. What only restates a default is in force.
    pub standing: Standing,
    pub(crate) set: fn(&mut Attributes),
}

const fn option(names: &'static [&'static str], help: &'static str, set: fn(&mut Attributes)) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::InForce, set }
}

const fn later(names: &'static [&'static str], help: &'static str, set: fn(&mut Attributes)) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::NotYet, set }
}

const fn idle(names: &'static [&'static str], help: &'static str, set: fn(&mut Attributes)) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::NoEffect, set }
}

/// Every export option. Of two that set the same attribute the later one wins.
pub static EXPORT_OPTIONS: &[OptionEntry] = &[
    option(&["r/w", "writable"], "files may be written (default)", |a| {
        a.read_only = false;
        a.force_read_only = false;
    }),
    option(&["r/o", "readonly"], "files may only be read", |a| a.read_only = true),
    option(&["forcero", "notwritable"], "read-only, and opens for writing are opens for reading", |a| {
        a.read_only = true;
        a.force_read_only = true;
    }),
    option(&["lock"], "a file being written is closed to others (default)", |a| a.lock = true),
    option(&["nolock"], "readers and writers do not exclude each other", |a| a.lock = false),
    later(&["stage"], "missing files are brought from mass storage", |a| {
        a.stage = true;
        a.stage_creates = false;
    }),
    later(&["stage+"], "as stage, and files are created there too", |a| {
        a.stage = true;
        a.stage_creates = true;
    }),
    option(&["nostage"], "missing files are missing (default)", |a| {
        a.stage = false;
        a.stage_creates = false;
    }),
    later(&["purge"], "files may be purged", |a| a.purge = true),
    option(&["nopurge"], "files stay (default)", |a| a.purge = false),
    later(&["mig", "migratable"], "files are migrated to mass storage", |a| a.migrate = true),
    option(&["nomig", "notmig", "notmigratable"], "files are not migrated (default)", |a| a.migrate = false),
    later(&["check"], "mass storage is asked before a file is created", |a| a.check = true),
    option(&["nocheck"], "it is not (default)", |a| a.check = false),
    later(&["dread"], "mass storage is asked for listings", |a| a.remote_directories = true),
    option(&["nodread"], "it is not (default)", |a| a.remote_directories = false),
    later(&["rcreate"], "files are created in mass storage first", |a| a.remote_create = true),
    option(&["norcreate"], "they are not (default)", |a| a.remote_create = false),
    idle(&["mmap"], "files are memory mapped", |a| a.mmap = true),
    option(&["nommap"], "they are not (default)", |a| a.mmap = false),
    idle(&["mlock"], "mapped files are locked in memory", |a| a.mlock = true),
    option(&["nomlock"], "they are not (default)", |a| a.mlock = false),
    idle(&["mkeep"], "mapped files stay mapped", |a| a.mkeep = true),
    option(&["nomkeep"], "they do not (default)", |a| a.mkeep = false),
    option(&["inplace"], "new files lie under the export itself", |a| a.in_place = true),
    option(&["outplace"], "new files lie in a space, where there are spaces (default)", |a| {
        a.in_place = false
    }),
    option(&["cache"], "the path is a cache: the cluster hears of it for reading", |a| a.cache = true),
    option(&["nocache"], "it is not (default)", |a| a.cache = false),
    idle(&["mwfiles"], "several writable copies of a file may exist", |a| a.multiple_writable = true),
    option(&["nomwfiles"], "only one may (default)", |a| a.multiple_writable = false),
    option(&["global"], "the cluster hears of the path (default)", |a| a.visibility = Visibility::Global),
    option(&["globalro"], "the cluster hears of it for reading", |a| {
        a.visibility = Visibility::GlobalReadOnly
    }),
    option(&["local"], "the cluster does not hear of it", |a| a.visibility = Visibility::Local),
    later(&["xattrs"], "migration data stands in extended attributes", |a| a.xattrs = true),
    option(&["noxattrs"], "it does not (default)", |a| a.xattrs = false),
    option(&["ficl"], "a `.fail` file makes staging fail at once (default)", |a| a.fail_files = true),
    later(&["noficl"], "it does not", |a| a.fail_files = false),
];

/// An export that may yet be given more options.
pub(crate) struct ExportDraft {
    pub(crate) prefix: String,
    /// How many of the options of `oss.defaults` stood above it: those below are for other exports.
    pub(crate) defaults: usize,
    pub(crate) options: Vec<&'static OptionEntry>,
    pub(crate) origin: Origin,
}

/// `path [options]`. A repeated path adds options to the earlier ones.
pub(super) fn export(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    if let Some(token) = arguments.rest().first()
        && token.text.starts_with('*')
    {
        let what = format!("{}: object ids ('*') are not in force yet", arguments.name.text);
        draft.note(ProblemKind::NotYet, token, what, "");
        draft.object_ids = Some(token.origin());
        return Ok(());
    }
    let prefix = arguments.path("export")?;
    let options = options(arguments, draft);
    let defaults = draft.defaults.len();
    match draft.exports.iter_mut().find(|export| export.prefix == prefix) {
        Some(export) => {
            export.defaults = defaults;
            export.options.extend(options);
        }
        None => draft.exports.push(ExportDraft { prefix, defaults, options, origin: arguments.origin() }),
    }
    Ok(())
}

/// `options`, over the built-in defaults; several directives add up.
pub(super) fn defaults(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    if arguments.peek().is_none() {
        arguments.need("option")?;
    }
    let options = options(arguments, draft);
    draft.defaults.extend(options);
    let attributes = attributes(&draft.defaults, &[]);
    draft.effective.storage.defaults = Setting::new(attributes, arguments.origin());
    Ok(())
}

fn options(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Vec<&'static OptionEntry> {
    let mut found = Vec::new();
    while let Some(token) = arguments.next() {
        match EXPORT_OPTIONS.iter().find(|option| option.names.contains(&token.text.as_str())) {
            Some(option) => {
                match option.standing {
                    Standing::InForce => {}
                    Standing::NoEffect => part_idle(arguments, token, draft),
                    Standing::NotYet => part_later(arguments, token, draft),
                }
                found.push(option);
            }
            None => {
                let what = format!("{}: unknown export option '{}'", arguments.name.text, token.text);
                draft.note(ProblemKind::Unknown, token, what, "see Export options in the manual");
            }
        }
    }
    found
}

fn attributes(defaults: &[&OptionEntry], own: &[&OptionEntry]) -> Attributes {
    let mut attributes = Attributes::default();
    for option in defaults.iter().chain(own) {
        (option.set)(&mut attributes);
    }
    attributes
}

/// Exports with their attributes: own options over those of `defaults` that stood above, over the built-in ones.
pub(crate) fn resolve(exports: Vec<ExportDraft>, defaults: &[&'static OptionEntry]) -> Vec<Export> {
    let resolved = exports.into_iter().map(|export| Export {
        attributes: attributes(defaults.get(..export.defaults).unwrap_or(defaults), &export.options),
        prefix: export.prefix,
        origin: export.origin,
    });
    resolved.collect()
}
