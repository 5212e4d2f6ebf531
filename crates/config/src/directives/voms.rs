//! Options `-voms…` of `sec.protocol gsi`, and the directives `voms.`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::gsi_fault::{invalid, unknown};
use super::shared::unprotected;
use crate::effective::{AuthProtocol, Effective, VomsGroups, VomsOptions};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;

/// Libraries that extract attributes. They stand for the code of this server.
const EXTRACTORS: [&str; 3] = ["default", "libXrdVoms.so", "libXrdSecgsiVOMS.so"];

const ALLOWED_PARAMETERS: &str = "certfmt={raw|pem|x509}, grpopt={useall|usefirst|uselast|0|1|2|10|11|12}, \
                                  grps=group[,…], vos=name[,…], grpfmt=text, rolefmt=text, vofmt=text, dbg, dbg2";

/// Reports whether a library extracts attributes of VOMS.
pub(super) fn is_extractor(library: &str) -> bool {
    EXTRACTORS.contains(&library.rsplit('/').next().unwrap_or(library))
}

/// The options that were read so far.
#[derive(Default)]
pub(super) struct VomsDraft {
    options: VomsOptions,
    /// Whether attributes are used, if that was said.
    is_used: Option<bool>,
    has_extractor: bool,
}

impl VomsDraft {
    /// Takes an option that begins with `-voms`.
    pub(super) fn take(
        &mut self,
        token: &DirectiveToken,
        name: &str,
        value: &str,
    ) -> Result<(), DirectiveFault> {
        match name {
            "-vomsat" => {
                let (is_used, is_required) = match value {
                    "0" | "ignore" => (false, false),
                    "1" | "extract" => (true, false),
                    "2" | "require" => (true, true),
                    _ => return Err(invalid(token, "ignore, extract, require, 0 to 2")),
                };
                self.is_used = Some(is_used);
                self.options.is_required = is_required;
            }
            // Another library could refuse clients that this server would accept.
            "-vomsfun" if !is_extractor(value) => {
                let fault = unprotected(token, &format!("'{}'", token.text));
                return Err(fault.instead("-vomsfun:default reads the attributes of VOMS"));
            }
            "-vomsfun" => self.has_extractor = true,
            "-vomsfunparms" => {
                let words = value.trim_matches('"').split(['|', ' ']).filter(|word| !word.is_empty());
                words.into_iter().try_for_each(|word| self.take_parameter(token, word))?;
            }
            _ => return Err(unknown(token)),
        }
        Ok(())
    }

    fn take_parameter(&mut self, token: &DirectiveToken, word: &str) -> Result<(), DirectiveFault> {
        let options = &mut self.options;
        let list = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        let format = |value: &str| Some(value.trim_matches('"').to_owned());
        match word.split_once('=') {
            Some(("certfmt", "raw" | "pem" | "x509")) => {}
            None if ["dbg", "dbg2"].contains(&word) => {}
            Some(("grpopt", value)) => {
                // The first digit selects `grps`, which counts here whenever it is set.
                let by_number = match value {
                    "0" | "10" => Some(VomsGroups::First),
                    "1" | "11" => Some(VomsGroups::Last),
                    "2" | "12" => Some(VomsGroups::All),
                    _ => VomsGroups::from_name(value),
                };
                options.choice = by_number.ok_or_else(|| invalid(token, ALLOWED_PARAMETERS))?;
            }
            Some((_, value)) if value.is_empty() || value.split(',').any(str::is_empty) => {
                return Err(invalid(token, ALLOWED_PARAMETERS));
            }
            Some(("grps", value)) => options.groups = list(value),
            Some(("vos", value)) => options.organizations = list(value),
            Some(("grpfmt", value)) => options.group_format = format(value),
            Some(("rolefmt", value)) => options.role_format = format(value),
            Some(("vofmt", value)) => options.organization_format = format(value),
            _ => return Err(invalid(token, ALLOWED_PARAMETERS)),
        }
        Ok(())
    }

    /// Returns the use of attributes. An extractor alone asks for them.
    pub(super) fn finish(self) -> Option<VomsOptions> {
        self.is_used.unwrap_or(self.has_extractor).then_some(self.options)
    }
}

/// `path`.
pub(super) fn map_file(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("mapfile")?;
    draft.finish(arguments);
    draft.effective.security.voms_map.set(Some(path.into()), arguments.origin());
    Ok(())
}

/// Reports a map of groups that no `sec.protocol gsi` uses.
pub(crate) fn check_voms(effective: &Effective, report: &mut ConfigReport) {
    let security = &effective.security;
    let uses_attributes = |protocol: &Setting<AuthProtocol>| match &protocol.value {
        AuthProtocol::Gsi(options) => options.voms.is_some(),
        _ => false,
    };
    if security.voms_map.is_none() || security.protocols.iter().any(uses_attributes) {
        return;
    }
    let what = "voms.mapfile has no effect, because attributes of VOMS are not used";
    let allowed = "add -vomsat:extract to sec.protocol gsi, or remove it";
    let origin = security.voms_map.origin.clone();
    report.add_about("voms.mapfile", ProblemKind::Doubtful, origin, what, allowed);
}
