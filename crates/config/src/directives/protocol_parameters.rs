//! Parameters of `sec.protparm` that wait for the `sec.protocol` of their protocol.
//!
//! They are apart from the directives of authentication, because the configuration under
//! construction keeps them, and those directives change that configuration.

use crate::language::DirectiveToken;
use crate::setting::Origin;

/// The parameters of one `sec.protparm` line.
pub(super) struct PendingParameters {
    /// The id of the protocol.
    pub(super) id: String,
    pub(super) origin: Origin,
    pub(super) tokens: Vec<DirectiveToken>,
}

/// `sec.protparm` lines whose `sec.protocol` has not come yet.
#[derive(Default)]
pub(crate) struct ProtocolParameters(Vec<PendingParameters>);

impl ProtocolParameters {
    /// Adds the parameters of a line.
    pub(super) fn add(&mut self, parameters: PendingParameters) {
        self.0.push(parameters);
    }

    /// Takes the parameters of a protocol, in the order of the file.
    pub(super) fn take(&mut self, id: &str) -> Vec<DirectiveToken> {
        let taken = self.0.extract_if(.., |pending| pending.id == id);
        taken.flat_map(|pending| pending.tokens).collect()
    }

    /// Returns the size of the parameters of a protocol in bytes.
    pub(super) fn bytes_of(&self, id: &str) -> usize {
        let tokens = self.0.iter().filter(|pending| pending.id == id).flat_map(|pending| &pending.tokens);
        tokens.map(|token| token.text.len() + 1).sum()
    }

    /// Returns the lines whose protocol did not come.
    pub(super) fn into_rest(self) -> Vec<PendingParameters> {
        self.0
    }
}
