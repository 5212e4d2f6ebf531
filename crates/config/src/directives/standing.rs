//! How common a directive is, and whether it is in force.

/// Fraction of sites that use a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsageFrequency {
    /// Most sites.
    Most,
    /// Some sites.
    Common,
    /// Few sites.
    Rare,
}

/// Effect of a directive in this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// In force.
    InForce,
    /// Accepted without effect.
    NoEffect,
    /// Known, but the part of the server it belongs to is not in force yet.
    NotYet,
}
