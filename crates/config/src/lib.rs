//! The directive language: text to typed structs per room, with file and line in every error.
