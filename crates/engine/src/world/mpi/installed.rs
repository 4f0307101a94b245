//! Which MPI libraries this host has, without starting any of them.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::{MPICH, OPEN_MPI, STANDARD, Version, version_text};

/// An MPI library that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledMpi {
    /// The name with which it was loaded.
    pub name: String,
    /// Where it was found.
    pub path: Option<PathBuf>,
    /// Its own version text.
    pub version: String,
}

/// The library that the user names, else all that the loader finds.
pub fn installed_libraries(named: Option<&str>) -> Vec<Result<InstalledMpi, String>> {
    match named {
        Some(path) => vec![load(path)],
        None => [OPEN_MPI, MPICH, STANDARD].into_iter().map(|(name, _)| load(name)).collect(),
    }
}

/// Loads a library for its version only. Its symbols stay its own, so that several libraries do not disturb each other.
fn load(name: &str) -> Result<InstalledMpi, String> {
    // SAFETY: loading runs the library's constructors, as a run under a launcher of MPI does.
    let library = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL) }.map_err(reason)?;
    // SAFETY: the type is that of the function in the MPI standard.
    let version = *unsafe { library.get::<Version>(b"MPI_Get_library_version") }.map_err(reason)?;
    let (path, version) = (path_of(version as *const c_void), version_text(version));
    // Unloading it would remove code that its threads run.
    std::mem::forget(library);
    Ok(InstalledMpi { name: name.to_owned(), path, version })
}

/// The text of the loader, which names the library and the symbol.
#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn reason(cause: libloading::Error) -> String {
    std::error::Error::source(&cause).map_or(cause.to_string(), ToString::to_string)
}

/// The file that a function was loaded from.
fn path_of(function: *const c_void) -> Option<PathBuf> {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call fills in the structure if it returns a value other than 0, and its name is a string of the
    // loader, which lives as long as the library.
    unsafe {
        if libc::dladdr(function, about.as_mut_ptr()) == 0 {
            return None;
        }
        let name = about.assume_init().dli_fname;
        (!name.is_null()).then(|| PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_no_mpi_library_is_refused_with_its_name() {
        let found = installed_libraries(Some("libc.so.6"));
        let [Err(reason)] = found.as_slice() else { panic!("{found:?}") };
        assert!(reason.contains("libc.so.6") && reason.contains("MPI_Get_library_version"), "{reason}");
        let found = installed_libraries(Some("/nonexistent/libmpi.so"));
        assert!(
            matches!(found.as_slice(), [Err(reason)] if reason.contains("/nonexistent/libmpi.so")),
            "{found:?}"
        );
    }

    #[test]
    fn a_function_has_a_file() {
        assert!(
            path_of(libc::getpid as *const c_void)
                .is_some_and(|path| path.to_string_lossy().contains("libc"))
        );
    }
}
