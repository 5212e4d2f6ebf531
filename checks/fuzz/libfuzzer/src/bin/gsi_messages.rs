//! libFuzzer program of the target `gsi_messages`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::gsi_messages::target(data));
