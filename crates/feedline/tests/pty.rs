//! A pseudo-terminal for a command, and a screen on which its output can be read as a user sees it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::termios::Winsize;

use crate::util::{Dir, worker_of};

const TIME_LIMIT: Duration = Duration::from_secs(120);
const ROWS: u16 = 50;

/// A command that runs on a pseudo-terminal of its own.
pub(crate) struct PtyCommand {
    child: Child,
    control: File,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    shown: String,
}

fn size(columns: u16) -> Winsize {
    Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Both ends of a new pseudo-terminal.
fn open() -> (OwnedFd, OwnedFd) {
    let (mut control, mut terminal) = (-1, -1);
    let (name, modes, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the call fills the two numbers, which outlive it; the other arguments may be null.
    let opened = unsafe { libc::openpty(&raw mut control, &raw mut terminal, name, modes, size) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call succeeded, so both are open descriptors that nothing else owns.
    unsafe { (OwnedFd::from_raw_fd(control), OwnedFd::from_raw_fd(terminal)) }
}

impl PtyCommand {
    /// Starts feedline in the folder, on a terminal of this width, with these environment variables.
    pub(crate) fn start(dir: &Dir, columns: u16, args: &[&str], variables: &[(&str, &str)]) -> PtyCommand {
        let (control, terminal) = open();
        rustix::termios::tcsetwinsize(&terminal, size(columns)).unwrap();
        let stdio = || Stdio::from(terminal.try_clone().unwrap());
        // With a session of its own, Ctrl-C reaches the command and nothing else.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_feedline")]).args(args);
        command
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("COLUMNS");
        command.envs(variables.iter().copied()).current_dir(dir.path("."));
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        drop((command, terminal));
        let control = File::from(control);
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut from, into) = (control.try_clone().unwrap(), Arc::clone(&output));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the last process on the terminal is an error here.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        PtyCommand { child, control, output, reader, shown: format!("feedline {}", args.join(" ")) }
    }

    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the output contains the text.
    pub(crate) fn until(&mut self, text: &str) {
        self.until_seen(text, |command| command.output().contains(text));
    }

    /// Waits until `seen` returns true; fails if the command ends before that or takes too long.
    fn until_seen(&mut self, what: &str, seen: impl Fn(&PtyCommand) -> bool) {
        let begin = Instant::now();
        while !seen(self) {
            let has_ended = self.child.try_wait().unwrap().is_some() && !seen(self);
            let late = has_ended || begin.elapsed() > TIME_LIMIT;
            assert!(!late, "{}: no '{what}' in:\n{}", self.shown, self.output());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the process that does the work exists. From then on, signals are handled.
    pub(crate) fn until_it_works(&mut self) {
        self.until_seen("worker", |command| worker_of(command.child.id()).is_some());
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.control.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16) {
        rustix::termios::tcsetwinsize(self.control.as_fd(), size(columns)).unwrap();
    }

    /// The exit code and the output.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > TIME_LIMIT {
                self.child.kill().unwrap();
                panic!("{} did not end:\n{}", self.shown, self.output());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        self.reader.join().unwrap();
        (status.code(), String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned())
    }
}

/// Runs feedline on a terminal of this width to its end; returns exit code and output.
pub(crate) fn run(dir: &Dir, columns: u16, args: &[&str]) -> (Option<i32>, String) {
    PtyCommand::start(dir, columns, args, &[]).wait()
}

/// What a terminal shows after this output, line by line. It understands the sequences that feedline uses, and fails on
/// others.
pub(crate) fn screen(output: &str, columns: usize) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut characters = output.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                assert_eq!(characters.next(), Some('['));
                let mut number = String::new();
                let end = loop {
                    match characters.next().unwrap() {
                        digit if digit.is_ascii_digit() || digit == ';' => number.push(digit),
                        end => break end,
                    }
                };
                match end {
                    'm' => {}
                    'K' => rows[row].truncate(column),
                    'J' => {
                        rows[row].truncate(column);
                        rows.truncate(row + 1);
                    }
                    'A' => row = row.saturating_sub(number.parse().unwrap_or(1)),
                    other => panic!("unknown sequence {number}{other} in {output:?}"),
                }
            }
            _ => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                while rows.len() <= row {
                    rows.push(Vec::new());
                }
                while rows[row].len() <= column {
                    rows[row].push(' ');
                }
                rows[row][column] = character;
                column += 1;
            }
        }
        while rows.len() <= row {
            rows.push(Vec::new());
        }
    }
    rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
}
