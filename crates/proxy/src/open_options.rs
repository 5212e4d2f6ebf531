//! The options with which a file is opened at its origin.

use base::Cgi;
use client::OpenWith;
use client::xroot::flags::OpenOptions;
use vfs::OpenRequest;

/// Returns the options with which a file is opened at its origin.
pub(crate) fn open_options(request: &OpenRequest, cgi: &Cgi, writes: bool) -> OpenWith {
    let access = if writes { OpenOptions::UPDT } else { OpenOptions::READ };
    let persists = request.posc || cgi.text("ofs.posc") == Some("1");
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
        let with = open_options(&request, &Cgi::default(), true);
        let expected = OpenOptions::UPDT.with(OpenOptions::DELETE).with(OpenOptions::MKPATH);
        let expected = expected.with(OpenOptions::POSC);
        assert_eq!((with.options, with.mode), (expected, 0o644));
        let request =
            OpenRequest { read: true, make_path: true, refresh: true, posc: true, ..Default::default() };
        let with = open_options(&request, &Cgi::default(), false);
        assert_eq!(with.options, OpenOptions::READ.with(OpenOptions::REFRESH));
        let request = OpenRequest { new: true, ..Default::default() };
        let with = open_options(&request, &Cgi::new(b"ofs.posc=1"), true);
        assert_eq!(with.options, OpenOptions::UPDT.with(OpenOptions::NEW).with(OpenOptions::POSC));
    }
}
