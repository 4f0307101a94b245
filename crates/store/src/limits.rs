//! System limits of this process: how many files it may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::StoreError;

/// Descriptors that are always open: terminals, logs, rings, folders.
const OTHERS: u64 = 32;

/// Makes sure that `files` files can be open at once, in addition to the few that always are. If needed, raises the
/// limit of this process as far as the system allows without privileges.
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
    fn allowed_limits_are_granted_and_higher_ones_refused() {
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
