//! The limit of file descriptors: the configured number, as far as the system permits it. It is
//! raised because the default of many systems is too low for thousands of connections.

use config::MaxFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of the process to `wanted`, including the hard limit if permitted. Returns the
/// limit now in force.
///
/// # Errors
/// With `strict`, if the system permits fewer. The text has the number and a remedy.
pub fn raise_descriptors(wanted: MaxFd) -> Result<u64, String> {
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(u64::MAX);
    if hard < wanted.limit {
        let more = Rlimit { current: Some(wanted.limit), maximum: Some(wanted.limit) };
        if setrlimit(Resource::Nofile, more).is_ok() {
            return Ok(wanted.limit);
        }
        if wanted.strict {
            return Err(format!(
                "xrd.maxfd strict asks for {} descriptors and the system allows {hard}; \
                 raise the hard limit (LimitNOFILE= of the unit, ulimit -Hn) or lower xrd.maxfd",
                wanted.limit
            ));
        }
    }
    let reachable = wanted.limit.min(hard);
    if now.current == Some(reachable) {
        return Ok(reachable);
    }
    let limit = Rlimit { current: Some(reachable), maximum: now.maximum };
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => Ok(reachable),
        Err(_) => Ok(now.current.unwrap_or(u64::MAX)),
    }
}

/// Returns the current limit of descriptors.
pub fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_refuses_a_limit_that_the_system_does_not_permit() {
        // More than the limit of the kernel (fs.nr_open), so that root is refused too.
        let error = raise_descriptors(MaxFd { limit: u64::MAX >> 2, strict: true }).unwrap_err();
        assert!(error.contains("xrd.maxfd"), "{error}");
        let now = raise_descriptors(MaxFd { limit: 1024, strict: false }).unwrap();
        assert_eq!(now, 1024);
    }
}
