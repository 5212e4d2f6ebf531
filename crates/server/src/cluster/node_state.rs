//! The states of a node of a cluster, each with one word.
//!
//! Orders, `scalla cluster status`, `scalla cluster drain` and `scalla map` all show these words,
//! so that a state has the same name wherever it appears. A status holds the word and not the enum,
//! because a node of another version may report a state that this one does not know.

use std::fmt;

/// The state of a node, as shown to people and programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    /// It accepts clients.
    Serving,
    /// It accepts no clients, by order of the administrator.
    Suspended,
    /// Its clients are being moved away, by order of the administrator.
    Draining,
    /// It was drained: no file is open there.
    Drained,
    /// It is an alternate, which takes the slot of another node if that is lost.
    StandingBy,
    /// It has fewer children than its quorum.
    TooFewNodes,
    /// It has no parent.
    LookingForParent,
    /// Its parent, an XRootD node, reports that it accepts no clients, without the reason.
    NotServing,
    /// It is not connected, or does not answer.
    Away,
}

impl NodeState {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Serving,
        Self::Suspended,
        Self::Draining,
        Self::Drained,
        Self::StandingBy,
        Self::TooFewNodes,
        Self::LookingForParent,
        Self::NotServing,
        Self::Away,
    ];

    /// Returns the word for the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Suspended => "suspended",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::StandingBy => "standing by",
            Self::TooFewNodes => "too few nodes",
            Self::LookingForParent => "looking for a parent",
            Self::NotServing => "not serving",
            Self::Away => "away",
        }
    }

    /// Reports whether the word of a status is the word for this state.
    #[must_use]
    pub fn is(self, word: &str) -> bool {
        self.word() == word
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl From<NodeState> for String {
    fn from(state: NodeState) -> Self {
        state.word().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_a_word_of_its_own() {
        for state in NodeState::ALL {
            let named: Vec<_> = NodeState::ALL.into_iter().filter(|one| one.is(state.word())).collect();
            assert_eq!(named, [state]);
            assert_eq!(format!("{state:>30}").trim_start(), String::from(state));
        }
    }
}
