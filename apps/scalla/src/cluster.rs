//! `scalla cluster`: shows the tree of a running node and sends orders to its nodes.

mod client_port;
mod drain_wait;
mod status_table;

use crate::admin::ServerSelector;
use crate::printer::{err, out};
use crate::quantity::configured_time;
use clap::Subcommand;
use serde_json::Value;
use server::admin::{AdminRequest, OrderAnswer, ask};
use server::cluster::{NodeOrder, TreeSurvey, survey};
use std::process::ExitCode;
use std::time::Duration;

/// Show the cluster of a running node, and take its nodes out of service and back.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterCommand {
    #[command(flatten)]
    which: ServerSelector,
    /// Print a JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: ClusterSubcommand,
}

#[derive(Subcommand, Debug)]
enum ClusterSubcommand {
    /// Draw the tree of nodes: role, address, slot, name, state, age, load and space, and the
    /// caches of redirectors.
    Status {
        /// Add version, id and exports of each node.
        #[arg(long)]
        wide: bool,
        /// Print only the information of the running node, without queries to other nodes.
        #[arg(long)]
        here: bool,
    },
    /// Send no clients to a node, even after its restart.
    Suspend(NodeArgument),
    /// Send clients to a suspended node again.
    Resume(NodeArgument),
    /// Redirect clients to other nodes, also in the middle of reading a file. Clients that cannot
    /// be redirected stay until they finish.
    Drain(DrainOptions),
    /// Send new clients to a drained node again.
    Undrain(NodeArgument),
}

/// The node that a command applies to.
#[derive(clap::Args, Debug)]
struct NodeArgument {
    /// A node below the running one: its address, host, name, id or slot. The default, `self`, is
    /// the running node.
    node: Option<String>,
}

/// The node to drain, and the time limit.
#[derive(clap::Args, Debug)]
struct DrainOptions {
    #[command(flatten)]
    node: NodeArgument,
    /// Wait until no file is open at the node or below it, for at most TIME: `90`, `10m`, `2h`.
    /// Ctrl-C ends the wait; the node continues to drain.
    #[arg(long, value_name = "TIME", value_parser = configured_time, num_args = 0..=1)]
    wait: Option<Option<Duration>>,
}

impl ClusterCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = self.which.socket()?;
        let mut wait = None;
        let (order, node) = match self.command {
            ClusterSubcommand::Status { here, wide } => {
                let own = serde_json::from_value(ask(&socket, &AdminRequest::ClusterStatus {})?)?;
                let tree = match here {
                    true => TreeSurvey { root: own, missing: Vec::new() },
                    false => survey(own, &client_port::ClientPort),
                };
                show(&tree, self.json, wide)?;
                return Ok(ExitCode::SUCCESS);
            }
            ClusterSubcommand::Suspend(node) => (NodeOrder::Suspend, node),
            ClusterSubcommand::Resume(node) => (NodeOrder::Resume, node),
            ClusterSubcommand::Drain(drain) => {
                wait = drain.wait;
                (NodeOrder::Drain, drain.node)
            }
            ClusterSubcommand::Undrain(node) => (NodeOrder::Undrain, node),
        };
        let answer = ask(&socket, &AdminRequest::ClusterOrder { order, node: node.node })?;
        if self.json {
            out().json(&answer);
        }
        let OrderAnswer { node, state, address } = serde_json::from_value(answer)?;
        if let Some(limit) = wait {
            let place = drain_wait::DrainedNode { socket: &socket, node: &node, child: address.as_deref() };
            let is_empty = place.wait_until_empty(limit, self.json)?;
            return Ok(if is_empty { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if !self.json {
            out().line(format_args!("{state} {node}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(tree: &TreeSurvey, json: bool, wide: bool) -> anyhow::Result<()> {
    if json {
        let mut value: Value = serde_json::to_value(&tree.root)?;
        value["missing"] = tree.missing.clone().into();
        out().json(&value);
        return Ok(());
    }
    out().lines(status_table::draw(&tree.root, wide));
    for missing in &tree.missing {
        err().line(format_args!("not seen: {missing}"));
    }
    Ok(())
}
