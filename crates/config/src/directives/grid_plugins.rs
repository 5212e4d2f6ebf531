//! Options `-gmapfun…` and `-authz…` of `sec.protocol gsi`: the plug-ins of XRootD whose work this
//! server does itself.

use super::fault::DirectiveFault;
use super::gsi_fault::invalid;
use super::shared::unprotected;
use crate::effective::{GridVoNames, GridVoUser, GsiOptions};
use crate::language::DirectiveToken;
use crate::values;

/// The plug-in that maps names of certificates by a file of its own.
const NAME_FILE_PLUGIN: &str = "libXrdSecgsiGMAPDN.so";

/// The plug-in that derives the user and the group from the virtual organization.
const VO_NAMES_PLUGIN: &str = "libXrdSecgsiAUTHZVO.so";

/// The remedy for other plug-ins.
const PROGRAM_INSTEAD: &str =
    "rules of sec.entitymap or a program of sec.entityprogram can name users and refuse them";

/// Stands for the virtual organization in the formats.
const VO: &str = "%s";

/// The options that were read so far.
#[derive(Default)]
pub(super) struct GridPluginDraft {
    name_file: Option<DirectiveToken>,
    name_file_parameters: Option<(DirectiveToken, String)>,
    vo_names: Option<DirectiveToken>,
    vo_names_parameters: Option<(DirectiveToken, String)>,
    only_without_attributes: bool,
}

/// Reports whether an option is one of a plug-in.
pub(super) fn is_plugin_option(name: &str) -> bool {
    name.starts_with("-gmapfun") || matches!(name, "-authzfun" | "-authzfunparms" | "-authzcall" | "-authzto")
}

impl GridPluginDraft {
    /// Takes an option of a plug-in.
    pub(super) fn take(
        &mut self,
        token: &DirectiveToken,
        name: &str,
        value: &str,
    ) -> Result<(), DirectiveFault> {
        let is_plugin = |plugin: &str| value.rsplit('/').next() == Some(plugin);
        let parameters = || Some((token.clone(), value.trim_matches('"').to_owned()));
        match name {
            "-gmapfun" if is_plugin(NAME_FILE_PLUGIN) => self.name_file = Some(token.clone()),
            "-authzfun" if is_plugin(VO_NAMES_PLUGIN) => self.vo_names = Some(token.clone()),
            "-gmapfunparms" => self.name_file_parameters = parameters(),
            "-authzfunparms" => self.vo_names_parameters = parameters(),
            "-authzcall" => {
                self.only_without_attributes = match value {
                    "always" | "1" => false,
                    "novoms" | "0" => true,
                    _ => return Err(invalid(token, "always, novoms, 0, 1")),
                }
            }
            // The lifetime of cached decisions; they take no time here.
            "-authzto" if value.bytes().all(|byte| byte.is_ascii_digit()) => {}
            "-authzto" => return Err(invalid(token, "a number of seconds")),
            // Another library could refuse clients that this server would accept.
            _ => return Err(unprotected(token, &format!("'{}'", token.text)).instead(PROGRAM_INSTEAD)),
        }
        Ok(())
    }

    /// Puts the values into the options.
    pub(super) fn finish(self, options: &mut GsiOptions) -> Result<(), DirectiveFault> {
        match (self.name_file, self.name_file_parameters) {
            (Some(plugin), None) => return Err(invalid(&plugin, "with -gmapfunparms:path")),
            (None, Some((token, _))) => {
                return Err(invalid(&token, "with -gmapfun:libXrdSecgsiGMAPDN.so"));
            }
            (Some(_), Some((token, text))) => {
                // `d` switches on messages for debugging.
                let mut words = text.split('|').filter(|word| !word.is_empty() && *word != "d");
                let (path, more) = (words.next().unwrap_or_default(), words.next());
                let part = DirectiveToken { text: path.to_owned(), ..token.clone() };
                if more.is_some() {
                    return Err(invalid(&token, "path, path|d"));
                }
                options.name_file = Some(values::path(&part, "gsi")?.into());
            }
            (None, None) => {}
        }
        match (self.vo_names, self.vo_names_parameters) {
            (None, Some((token, _))) => return Err(invalid(&token, "with -authzfun:libXrdSecgsiAUTHZVO.so")),
            (Some(_), parameters) => {
                let mut names = match parameters {
                    Some((token, text)) => vo_names(&token, &text)?,
                    None => GridVoNames::default(),
                };
                names.only_without_attributes = self.only_without_attributes;
                options.vo_names = Some(names);
            }
            (None, None) => {}
        }
        Ok(())
    }
}

/// Reads the parameters of the plug-in for virtual organizations.
fn vo_names(token: &DirectiveToken, text: &str) -> Result<GridVoNames, DirectiveFault> {
    let fault = || {
        let allowed =
            "debug=n, valido=name[,…], vo2grp=text with %s, vo2usr=* or text with %s, separated by '&'";
        invalid(token, allowed)
    };
    let format = |value: &str| {
        let rest = value.replacen(VO, "", 1);
        (value.contains(VO) && !rest.contains('%')).then(|| value.to_owned()).ok_or_else(fault)
    };
    let mut names = GridVoNames::default();
    for word in text.split('&').filter(|word| !word.is_empty()) {
        match word.split_once('=').ok_or_else(fault)? {
            ("debug", _) => {}
            ("valido", list) if !list.split(',').any(str::is_empty) => {
                names.organizations = list.split(',').map(str::to_owned).collect();
            }
            ("vo2grp", value) => names.group = Some(format(value)?),
            ("vo2usr", "*") => names.user = GridVoUser::Unchanged,
            ("vo2usr", value) => names.user = GridVoUser::Format(format(value)?),
            _ => return Err(fault()),
        }
    }
    Ok(names)
}
