//! The xroot door: drives sessions over net and vfs.
