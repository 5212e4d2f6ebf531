//! The options with which a file is opened at its origin.

use client::OpenWith;
use client::xroot::flags::OpenOptions;
use vfs::OpenRequest;

/// Returns the options with which a file is opened at its origin. Only a file that this proxy makes itself
/// persists on close there. That of a client does not, because the connections are shared and few.
pub(crate) fn open_options(request: &OpenRequest, writes: bool) -> OpenWith {
    let access = if writes { OpenOptions::UPDT } else { OpenOptions::READ };
    let persists = request.posc && request.is_copy;
    let mut options = access;
    for (is_set, option) in [
        (request.append, OpenOptions::APND),
        (request.new, OpenOptions::NEW),
        (request.delete, OpenOptions::DELETE),
        (request.make_path && writes, OpenOptions::MKPATH),
        (request.force, OpenOptions::FORCE),
        (request.no_wait, OpenOptions::NOWAIT),
        (request.refresh, OpenOptions::REFRESH),
        (request.replica, OpenOptions::REPLICA),
        (persists && writes, OpenOptions::POSC),
        (request.sequential, OpenOptions::SEQIO),
    ] {
        if is_set {
            options = options.with(option);
        }
    }
    OpenWith::options(options).mode(u16::try_from(request.mode & 0o777).unwrap_or(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_an_open_are_passed_on() {
        let request =
            OpenRequest { delete: true, make_path: true, posc: true, mode: 0o644, ..Default::default() };
        let with = open_options(&request, true);
        let expected = OpenOptions::UPDT.with(OpenOptions::DELETE).with(OpenOptions::MKPATH);
        assert_eq!((with.options, with.mode), (expected, 0o644), "a client asks for it");
        let with = open_options(&OpenRequest { is_copy: true, ..request }, true);
        assert_eq!(with.options, expected.with(OpenOptions::POSC));
        let request =
            OpenRequest { read: true, make_path: true, refresh: true, posc: true, ..Default::default() };
        let with = open_options(&request, false);
        assert_eq!(with.options, OpenOptions::READ.with(OpenOptions::REFRESH));
    }
}
