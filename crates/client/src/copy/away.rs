//! The check before deletions that no server of a cluster is away.
//!
//! The files of such a server look missing. They would be removed from the target because the
//! source seems not to have them, or would be copied again to another server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::failure::{CopyError, Side};
use super::opening::unless_stopped;
use super::options::Watch;
use super::place::Place;
use super::tree::CopyListener;
use crate::client::Client;
use crate::cluster::AwayServers;
use crate::failure::Error;
use crate::url::Url;
use crate::walk::Tree;

/// Time between two queries of a manager that does not know yet whether a server is away.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of servers that an error names.
const NAMED_MAX: usize = 4;

/// The check of both ends of a synchronization that deletes.
pub(super) struct AwayCheck<'a> {
    pub(super) client: &'a Client,
    pub(super) ends: [(&'a Place, Side); 2],
    pub(super) watch: &'a Watch,
}

impl AwayCheck<'_> {
    /// Refuses deletions while a server of one of the ends is away. A manager that does not know
    /// that yet has the time `window`. Managers that do not report it are noted. Returns the
    /// connected servers of each end.
    pub(super) async fn check(
        &self,
        window: Duration,
        listener: &Arc<dyn CopyListener>,
    ) -> Result<[BTreeSet<String>; 2], CopyError> {
        let mut present = [BTreeSet::new(), BTreeSet::new()];
        for ((place, side), present) in self.ends.into_iter().zip(&mut present) {
            let Place::Remote(url) = place else { continue };
            let away = async {
                let away = self.servers_away(url, window, listener).await;
                away.map_err(|error| CopyError::on(side, error))
            };
            let away = unless_stopped(self.watch, away).await?;
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

    /// Returns the servers that are away once all managers know them, or what is known after the
    /// time `window`.
    async fn servers_away(
        &self,
        url: &Url,
        window: Duration,
        listener: &Arc<dyn CopyListener>,
    ) -> Result<AwayServers, Error> {
        let files = self.client.file_system(url);
        let begun = Instant::now();
        let mut is_noted = false;
        loop {
            let away = files.servers_away(&url.path).await?;
            let Some(manager) = away.restarted.first() else { return Ok(away) };
            if begun.elapsed() + QUERY_INTERVAL > window {
                return Ok(away);
            }
            if !is_noted {
                listener.note(&waiting(manager, window));
                is_noted = true;
            }
            tokio::time::sleep(QUERY_INTERVAL).await;
        }
    }

    /// Refuses deletions if a server is away, or is not part of the tree of its end: it was away,
    /// or its manager did not answer, when the servers of the trees were determined.
    pub(super) async fn check_trees(&self, trees: [&Tree; 2]) -> Result<(), CopyError> {
        // The first check has noted the managers that do not report it, and has waited.
        let silent: Arc<dyn CopyListener> = Arc::new(());
        let present = self.check(Duration::ZERO, &silent).await?;
        for (((place, _), tree), present) in self.ends.into_iter().zip(trees).zip(&present) {
            let known: BTreeSet<String> =
                tree.servers().iter().map(|server| server.url().authority()).collect();
            if let Some(server) = present.difference(&known).next() {
                return Err(CopyError::Usage(joined(place, server)));
            }
        }
        Ok(())
    }
}

/// Describes a manager whose cluster is forming.
fn forming(manager: &str) -> String {
    format!(
        "the manager {manager} has started a short time ago and does not know yet whether all its servers have joined"
    )
}

fn restarted(manager: &str) -> String {
    format!("{}; retry later, or use --allow-away", forming(manager))
}

fn waiting(manager: &str, window: Duration) -> String {
    format!("{}; waiting up to {} s", forming(manager), window.as_secs())
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
