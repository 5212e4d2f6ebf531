//! Reports about flows of data with their experiment and activity (`xrootd.pmark`, SciTags "fireflies").
//!
//! | file | contents |
//! |---|---|
//! | `rules` | [`MarkRules`]: the experiment and the activity of a flow |
//! | `flow` | [`FlowMarker`] begins a [`MarkedFlow`]; their reports |
//! | `sender` | [`FireflySender`]: sends the reports |

mod flow;
mod rules;
mod sender;

pub use flow::{FlowClient, FlowMarker, FlowUsage, MarkedFlow};
pub use rules::{MarkRules, RegistryError};
pub use sender::FireflySender;
