//! libFuzzer program of the target `krb5_messages`, because libFuzzer needs one program per target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::krb5_messages::target(data));
