//! libFuzzer program of the target `grid_chains`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::grid_chains::target(data));
