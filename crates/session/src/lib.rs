//! One login session as a pure machine.
