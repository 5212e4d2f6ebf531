//! `all.export`, `xrootd.export` and `oss.defaults`: exported prefixes and their attributes.
//!
//! They are resolved after the whole file is read, because later directives may add options.

use super::arguments::Arguments;
use super::draft::Draft;
use super::export_options::{EXPORT_OPTIONS, ExportDraft, OptionEntry};
use super::fault::DirectiveFault;
use super::missing;
use super::shared::{option_not_yet, option_without_effect};
use super::standing::Standing;
use crate::effective::{Export, ExportAttributes};
use crate::report::ProblemKind;
use crate::setting::Setting;

/// `path [options]`. A repeated path adds options.
pub(super) fn export(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if let Some(token) = arguments.rest().first()
        && token.text.starts_with('*')
    {
        let what = format!("{}: object ids ('*') are not in force yet", arguments.name.text);
        draft.not_yet(token, what, Some(missing::OBJECT_IDS), None);
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

/// `options`, applied to the built-in defaults. Several directives accumulate.
pub(super) fn defaults(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
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
                    Standing::NoEffect => option_without_effect(arguments, token, draft),
                    Standing::NotYet => option_not_yet(arguments, token, draft),
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

fn attributes(defaults: &[&OptionEntry], own: &[&OptionEntry]) -> ExportAttributes {
    let mut attributes = ExportAttributes::default();
    for option in defaults.iter().chain(own) {
        (option.set)(&mut attributes);
    }
    attributes
}

/// Resolves the attributes of exports: own options over preceding `oss.defaults` over built-in
/// defaults.
pub(crate) fn resolve(exports: Vec<ExportDraft>, defaults: &[&'static OptionEntry]) -> Vec<Export> {
    let resolved = exports.into_iter().map(|export| Export {
        attributes: attributes(defaults.get(..export.defaults).unwrap_or(defaults), &export.options),
        prefix: export.prefix,
        origin: export.origin,
    });
    resolved.collect()
}
