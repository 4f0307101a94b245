//! Builds the preload library, which is part of the program: `FEEDLINE_PRELOAD` is the path of the file to include.
//! It is a crate of its own with its own profile, because it has no standard library and must not unwind.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for path in ["build.rs", "preload/Cargo.toml", "preload/Cargo.lock", "preload/build.rs", "preload/src"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let target = env::var("TARGET")?;
    let library = if is_supported(&target) {
        build(&folder.join("preload"), &out.join("preload"), &target)?
    } else {
        // An empty file: `feedline audit` reports that it cannot observe jobs on this system.
        let empty = out.join("no-preload");
        std::fs::write(&empty, "")?;
        empty
    };
    println!("cargo:rustc-env=FEEDLINE_PRELOAD={}", library.display());
    Ok(())
}

/// Systems whose programs use the GNU C library, on machines that the library knows.
fn is_supported(target: &str) -> bool {
    ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].contains(&target)
}

/// Variables of the build around it that would change how the library is compiled: flags and wrappers of lints,
/// coverage and sanitizers, features and profiles of the other crate.
fn is_foreign(name: &str) -> bool {
    let exact = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC",
        "RUSTDOC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "OUT_DIR",
        "LLVM_PROFILE_FILE",
        "__CARGO_TEST_ROOT",
    ];
    let starts = [
        "CARGO_ENCODED_",
        "CARGO_BUILD_",
        "CARGO_PROFILE_",
        "CARGO_FEATURE_",
        "CARGO_CFG_",
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_INCREMENTAL",
        "CARGO_TARGET_DIR",
        "CARGO_UNSTABLE_",
        "CARGO_LLVM_COV",
        "CARGO_PRIMARY_PACKAGE",
        "NEXTEST",
        "DEP_",
    ];
    exact.contains(&name) || starts.iter().any(|start| name.starts_with(start))
}

/// Whether the variable makes zig the linker, as in the build of packages. zig does not know the options with which the
/// library is linked, and would add its runtime to it. The linker of the host is sufficient: the library needs no
/// symbol newer than glibc 2.17 (test `audit::library`).
fn is_zig_linker(name: &str, value: &Path) -> bool {
    let program = value.file_name().and_then(OsStr::to_str);
    name.starts_with("CARGO_TARGET_")
        && name.ends_with("_LINKER")
        && program.is_some_and(|name| name.contains("zig"))
}

/// Runs cargo, and returns the path of the library.
fn build(source: &Path, target_folder: &Path, target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("build").args(["--release", "--locked", "--lib", "--target", target]);
    command.arg("--manifest-path").arg(source.join("Cargo.toml"));
    command.arg("--target-dir").arg(target_folder);
    for (name, value) in env::vars_os() {
        if name.to_str().is_some_and(|name| is_foreign(name) || is_zig_linker(name, Path::new(&value))) {
            command.env_remove(&name);
        }
    }
    // Settings of cargo are searched for from here upwards.
    command.current_dir(source);
    let output =
        command.output().map_err(|error| format!("cannot run cargo for {}: {error}", source.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cannot build the preload library in {}:\n{text}", source.display()).into());
    }
    Ok(target_folder.join(target).join("release/libfeedline_preload.so"))
}
