//! `scalla.clusterkey`: the key by which nodes authenticate each other.

use crate::directives::arguments::Arguments;
use crate::directives::draft::Draft;
use crate::directives::fault::DirectiveFault;
use crate::effective::{ClusterKeyConfig, HostPattern};
use crate::language::DirectiveToken;

/// `path [except host…]`.
pub(crate) fn cluster_key(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let keytab = arguments.path("clusterkey")?.into();
    let mut exempt = Vec::new();
    if arguments.take("except").is_some() {
        exempt.push(host(arguments.need("clusterkey except host")?)?);
        while let Some(token) = arguments.next() {
            exempt.push(host(token)?);
        }
    }
    draft.finish(arguments);
    let key = ClusterKeyConfig { keytab, exempt };
    draft.effective.cluster.key.set(Some(key), arguments.origin());
    Ok(())
}

fn host(token: &DirectiveToken) -> Result<HostPattern, DirectiveFault> {
    HostPattern::parse(&token.text).ok_or_else(|| {
        let what = format!("invalid host pattern '{}'", token.text);
        DirectiveFault::at(token, what, "allowed: at most one '*'")
    })
}
