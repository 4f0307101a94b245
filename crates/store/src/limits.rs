//! System limits of this process: how many files it may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::StoreError;

/// Descriptors that are always open: terminals, logs, rings, folders.
const OTHERS: u64 = 32;

/// Makes sure that `files` files can be open at once, in addition to the few that always are. If needed, raises the
/// limit of this process as far as the system allows without privileges.
pub fn want_files(files: u64) -> Result<(), StoreError> {
    let allowed = allow_files(files);
    if allowed >= files {
        return Ok(());
    }
    let (needed, limit) = (files.saturating_add(OTHERS), allowed.saturating_add(OTHERS));
    Err(StoreError::Refused(format!(
        "{files} files are to be open at once, which needs a limit of {needed} open files, but it is {limit}: raise it \
         (ulimit -n {needed}) or use fewer readers"
    )))
}

/// Raises the limit for `files` files if needed, at most to what the system allows without privileges. Returns how many
/// of them can be open, in addition to the few that always are.
pub(crate) fn allow_files(files: u64) -> u64 {
    let needed = files.saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(limit) = current.filter(|limit| *limit < needed) else { return files };
    let target = maximum.map_or(needed, |maximum| maximum.min(needed));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }).is_ok();
    (if is_raised { target } else { limit }).saturating_sub(OTHERS)
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
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit - 1), maximum: Some(limit) }).unwrap();
        assert_eq!(allow_files(limit), limit - OTHERS, "as many as possible");
        assert_eq!(allow_files(1), 1);
    }
}
