//! File descriptors: as many as the configuration asks for and the system allows.

use config::MaxFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit to `wanted`, the hard limit too where we may. Returns the limit now in force.
///
/// # Errors
/// With `strict`, when the system allows fewer; the text says how many and what to do.
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

/// Descriptors that this process may have now.
pub fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_refuses_what_the_system_does_not_allow() {
        // More than the kernel's own limit (fs.nr_open), so that not even root may.
        let error = raise_descriptors(MaxFd { limit: u64::MAX >> 2, strict: true }).unwrap_err();
        assert!(error.contains("xrd.maxfd"), "{error}");
        let now = raise_descriptors(MaxFd { limit: 1024, strict: false }).unwrap();
        assert_eq!(now, 1024);
    }
}
