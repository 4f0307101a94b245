//! Where the examples of a page run: a folder that keeps its files from block to block, seen as `/tmp/job`, with
//! folders of its own at `/mnt`, `/data` and `/tmp`, and no network. Every block has namespaces of its own, so that
//! processes which it leaves behind end with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::page::{Block, root};

/// For one block. Examples are small; the limit allows for a busy machine.
const TIME_LIMIT_SECONDS: u32 = 120;

/// What a script did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The line that failed.
    pub failed: Option<usize>,
    /// The machine was too busy for a run: its verdict is not that of the page.
    pub late: bool,
}

#[derive(Debug)]
pub(crate) struct Sandbox<'a> {
    folder: &'a Path,
    program: &'a Path,
}

impl<'a> Sandbox<'a> {
    /// In an empty folder.
    pub(crate) fn new(folder: &'a Path, program: &'a Path) -> Sandbox<'a> {
        for name in ["root", "mnt", "data", "tmp/job", "tmp/home/bin", "example/bin", "example/tested"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::set_permissions(folder.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        let sandbox = Sandbox { folder, program };
        sandbox.example("bin/feedline", include_str!("program.sh"));
        sandbox.example("late.py", include_str!("late.py"));
        fs::set_permissions(folder.join("example/bin/feedline"), fs::Permissions::from_mode(0o755)).unwrap();
        sandbox
    }

    fn example(&self, name: &str, text: &str) {
        fs::write(self.folder.join("example").join(name), text).unwrap();
    }

    /// A file in the folder of the examples.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        match name.strip_prefix('/') {
            Some(absolute) => self.folder.join(absolute),
            None => self.folder.join("tmp/job").join(name),
        }
    }

    /// Runs a script of a block; its first line is this line of the page.
    pub(crate) fn run(&self, line: usize, script: &str, block: &Block) -> Outcome {
        for name in ["failed", "late"] {
            let _ = fs::remove_file(self.folder.join("example").join(name));
        }
        // The shell counts lines from the start of the script. The prelude has no line of its own.
        let (prelude, padding) = (include_str!("prelude.sh").trim_end(), "\n".repeat(line.saturating_sub(1)));
        self.example("script", &format!("{prelude} {padding}{script}"));
        let small = block.small.iter().map(|small| format!("{}: {}\n", small.start, small.flags));
        let setup = block.setup.iter().map(|(_, command)| format!("{command}\n"));
        // An object store ends with the script, so the setup belongs to it.
        self.example("setup", &if block.object_store { setup.collect() } else { String::new() });
        let servers = if block.object_store {
            std::env::var("FEEDLINE_TEST_PYTHON").expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test");
            root().join("scripts/object-servers")
        } else {
            PathBuf::new()
        };
        let user = if fs::metadata("/proc/self").is_ok_and(|facts| is_root(&facts)) { "-m" } else { "-rm" };
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &TIME_LIMIT_SECONDS.to_string(), "unshare", user, "--pid", "--fork"]);
        command.args(["--kill-child", "--net", "bash", "-c", include_str!("enter.sh"), "enter"]);
        command.arg(self.folder).arg(self.program).stdin(Stdio::null());
        command.env("EXAMPLE_SMALL", small.collect::<String>()).env("EXAMPLE_SERVERS", servers);
        let output = command.output().unwrap_or_else(|error| panic!("timeout: {error}"));
        let failed = fs::read_to_string(self.folder.join("example/failed")).unwrap_or_default();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            failed: failed.trim().parse().ok(),
            late: self.folder.join("example/late").exists(),
        }
    }
}

fn is_root(facts: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(facts) == 0
}
