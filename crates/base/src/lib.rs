//! What all rooms share: paths, offsets, ids, identity, error kinds, clock and randomness.
