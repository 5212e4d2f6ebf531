//! The behaviour of simulated nodes: correct, or wrong in one way, so that a test can show that the
//! checks find it.

/// The behaviour of a node on queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueryBehaviour {
    /// Correct behaviour.
    #[default]
    Honest,
    /// Replies to each query that it has the file.
    Claims,
    /// Supports NOT_HERE replies and sends none.
    Mute,
}

/// Deliberate faults for tests of the checks, which treat the node as honest and have to detect the
/// fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A server that denies all files in its replies.
    Denies,
    /// A server that redirects its clients back to the first host.
    Circles,
    /// A server that sends every message twenty times.
    Chatters,
    /// A server that reports its state at every opportunity.
    Reports,
    /// A parent that never removes a waiting request.
    Keeps,
    /// A parent that sends no answers.
    Swallows,
    /// A node that does not look for a parent.
    Stays,
    /// A server that creates files after their leases have ended.
    Ignores,
    /// A server that does not report its leases.
    Conceals,
    /// A node that stores no state of its earlier runs.
    Forgets,
    /// A server that keeps its lease when a parent ends it.
    Clings,
    /// A node whose locations do not end with the window.
    Hoards,
    /// A supervisor that does not report files that are gone.
    Retains,
    /// A supervisor that does not report new files.
    Withholds,
    /// A manager that carries out every order.
    Obeys,
    /// A manager that forgets locations because of orders that it refuses.
    Heeds,
    /// A manager that looks at all waiting requests with each event.
    Rescans,
    /// A manager that serves all clients in the order of arrival.
    Lines,
    /// A server that does not report an overflow of changed names.
    Loses,
}
