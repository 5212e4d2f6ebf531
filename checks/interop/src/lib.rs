//! Real programs against ours, and ours beside the real server.
