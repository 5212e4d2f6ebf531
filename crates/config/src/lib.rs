//! The directive language: text to typed structs per room, with file and line in every error.
//!
//! | module       | what it holds                                                                    |
//! |--------------|----------------------------------------------------------------------------------|
//! | `setting`    | a value and where it came from                                                   |
//! | `effective`  | the result: one struct per room                                                  |

mod effective;
mod setting;

pub use effective::*;
pub use setting::{Origin, Position, Setting};
