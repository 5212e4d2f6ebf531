//! The check before deletions that no server of a cluster is away.
//!
//! The files of such a server look missing. They would be removed from the target because the
//! source seems not to have them, or would be copied again to another server.

use std::sync::Arc;

use super::Copier;
use super::failure::{CopyError, Side};
use super::opening::unless_stopped;
use super::options::Watch;
use super::place::Place;
use super::tree::CopyListener;

/// Maximum number of servers that an error names.
const NAMED_MAX: usize = 4;

impl Copier {
    /// Refuses deletions while a server of one of the ends is away. Managers that do not
    /// report that are noted.
    pub(super) async fn nobody_is_away(
        &self,
        ends: [(&Place, Side); 2],
        listener: &Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<(), CopyError> {
        for (place, side) in ends {
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
            if let Some(manager) = away.unknown_at.first() {
                listener.note(&format!(
                    "{manager} does not report whether a server of its cluster is away; files of such a server would look missing"
                ));
            }
        }
        Ok(())
    }
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
