//! The check before deletions that no server of a cluster is away.
//!
//! The files of such a server look missing. They would be removed from the target because the
//! source seems not to have them, or would be copied again to another server.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Copier;
use super::failure::{CopyError, Side};
use super::opening::unless_stopped;
use super::options::Watch;
use super::place::Place;
use super::tree::CopyListener;
use crate::walk::Tree;

/// Maximum number of servers that an error names.
const NAMED_MAX: usize = 4;

impl Copier {
    /// Refuses deletions while a server of one of the ends is away, or while a manager does not
    /// know that yet. Managers that do not report it are noted. Returns the connected servers of
    /// each end.
    pub(super) async fn nobody_is_away(
        &self,
        ends: [(&Place, Side); 2],
        listener: &Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<[BTreeSet<String>; 2], CopyError> {
        let mut present = [BTreeSet::new(), BTreeSet::new()];
        for ((place, side), present) in ends.into_iter().zip(&mut present) {
            let Place::Remote(url) = place else { continue };
            let files = self.client.file_system(url);
            let away = async {
                let away = files.servers_away(&url.path).await;
                away.map_err(|error| CopyError::on(side, error))
            };
            let away = unless_stopped(watch, away).await?;
            if away.count > 0 {
                return Err(CopyError::Usage(refusal(place, away.count, &away.addresses)));
            }
            if let Some(manager) = away.restarted.first() {
                return Err(CopyError::Usage(restarted(manager)));
            }
            *present = away.present;
            if let Some(manager) = away.unknown_at.first() {
                listener.note(&format!(
                    "{manager} does not report whether a server of its cluster is away; files of such a server would look missing"
                ));
            }
        }
        Ok(present)
    }

    /// Refuses deletions if a server is away, or is not part of the tree of its end: it was away,
    /// or its manager did not answer, when the servers of the trees were determined.
    pub(super) async fn nobody_was_away(
        &self,
        ends: [(&Place, Side); 2],
        trees: [&Tree; 2],
        watch: &Watch,
    ) -> Result<(), CopyError> {
        // The first check has noted the managers that do not report it.
        let silent: Arc<dyn CopyListener> = Arc::new(());
        let present = self.nobody_is_away(ends, &silent, watch).await?;
        for (((place, _), tree), present) in ends.into_iter().zip(trees).zip(&present) {
            let known: BTreeSet<String> =
                tree.servers().iter().map(|server| server.url().authority()).collect();
            if let Some(server) = present.difference(&known).next() {
                return Err(CopyError::Usage(joined(place, server)));
            }
        }
        Ok(())
    }
}

fn restarted(manager: &str) -> String {
    format!(
        "the manager {manager} has restarted and does not know yet whether all its servers are back; retry later, or use --allow-away"
    )
}

fn joined(place: &Place, server: &str) -> String {
    format!(
        "{server} has joined the cluster of {place} just now, so its files would look missing; retry, or use --allow-away"
    )
}

fn refusal(place: &Place, count: u64, addresses: &[String]) -> String {
    let mut named = addresses.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if count > addresses.len().min(NAMED_MAX) as u64 {
        named.push_str(", …");
    }
    let (servers, are) = if count == 1 { ("server", "is") } else { ("servers", "are") };
    format!(
        "{count} {servers} of the cluster of {place} {are} away ({named}), so files look missing; wait for {}, or use --allow-away",
        if count == 1 { "it" } else { "them" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_some_servers_and_the_option() {
        let place = Place::Local("/d".into());
        let addresses: Vec<String> = (0..9).map(|number| format!("h{number}:1")).collect();
        let one = refusal(&place, 1, &addresses[..1]);
        assert!(
            one.starts_with("1 server of the cluster of /d is away (h0:1), so files look missing"),
            "{one}"
        );
        let many = refusal(&place, 9, &addresses);
        assert!(many.contains("9 servers") && many.contains("(h0:1, h1:1, h2:1, h3:1, …)"), "{many}");
        assert!(many.ends_with("wait for them, or use --allow-away"), "{many}");
    }
}
