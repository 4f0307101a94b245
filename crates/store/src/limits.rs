//! What the system allows this process: how many files it may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::StoreError;

/// Descriptors that are open anyway: terminals, logs, rings, folders.
const OTHERS: u64 = 32;

/// Makes sure that `files` may be open at once, besides the few that always are. Raises the limit of this process as
/// far as that needs, and the system allows without asking.
pub fn want_files(files: u64) -> Result<(), StoreError> {
    let needed = files.saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    if maximum.is_none_or(|limit| limit >= needed)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).is_ok()
    {
        return Ok(());
    }
    let limit = maximum.or(current).unwrap_or(u64::MAX);
    Err(StoreError::Refused(format!(
        "{files} files are to be open at once, which needs a limit of {needed} open files, but it is {limit}: raise it \
         (ulimit -n {needed}) or use fewer readers"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_granted_and_the_rest_refused() {
        want_files(1).unwrap();
        let limit = getrlimit(Resource::Nofile).maximum.expect("the system has a limit");
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit - 1), maximum: Some(limit) }).unwrap();
        want_files(limit - OTHERS).unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(limit), "it was raised");
        let error = want_files(limit).unwrap_err().to_string();
        let needed = limit + OTHERS;
        assert!(
            error.contains(&limit.to_string()) && error.contains(&format!("ulimit -n {needed}")),
            "{error}"
        );
    }
}
