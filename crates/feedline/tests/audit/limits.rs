//! Limits of resources: the job ends as it does alone, and what was not observed is named.

use serde_json::Value;

use super::{PYTHON, is_named, read_by, same};
use crate::util::Dir;

/// Runs a job alone and under audit, both in a shell with this limit.
#[track_caller]
fn limited(dir: &Dir, limit: &str, job: &str) {
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let run = |prefix: &str| {
        let shell = format!("{limit}; exec {prefix}{job}");
        dir.command("bash".as_ref(), &["-c", &shell]).env("PYTHONDONTWRITEBYTECODE", "1").run()
    };
    let alone = run("");
    let done = run(&format!("{feedline} audit --results results --name job -- "));
    assert_eq!((done.code(), &done.stdout), (alone.code(), &alone.stdout), "{}", done.stderr);
}

fn ledger(dir: &Dir) -> Value {
    let results = dir.results_below("results");
    dir.json(&format!("{}/ledger.json", results[0]))["observed"].clone()
}

#[test]
fn sizes_of_files() {
    let dir = Dir::new();
    dir.write("x", "text");
    // Room for a few processes.
    limited(&dir, "ulimit -f 30000", "cat x");
    assert_eq!(read_by(&ledger(&dir), "cat"), (1, 4));
    // Room for none.
    let dir = Dir::new();
    dir.write("x", "text");
    limited(&dir, "ulimit -f 1000", "cat x");
    is_named(&ledger(&dir), "1 process", "limit");
    // Not even for the library.
    let dir = Dir::new();
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let shell = format!("ulimit -f 40; exec {feedline} audit --results results -- touch started");
    let done = dir.command("bash".as_ref(), &["-c", &shell]).run().exits(3);
    assert!(done.stderr.contains("cannot provide the preload library"), "{}", done.stderr);
    assert!(!dir.path("started").exists());
}

#[test]
fn a_job_that_reaches_its_limit_of_file_sizes() {
    // The signal of the limit ends the job, not feedline.
    let program = "import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
print('writes', flush=True)
open('x', 'wb').write(bytes(5000))";
    let seen = same(&Dir::new(), &[PYTHON, "-c", program], &[]);
    assert_eq!(seen["exit"]["signal"], 25);
}

#[test]
fn address_space() {
    let dir = Dir::new();
    dir.write("x", "text");
    limited(&dir, "ulimit -v 400000", "cat x");
    assert_eq!(read_by(&ledger(&dir), "cat"), (1, 4));
    // A job that has none left at the end.
    let program = "import resource
resource.setrlimit(resource.RLIMIT_AS, (1, 1))
try:
    bytes(1 << 30)
except MemoryError:
    print(open('x').read(), 'no memory')";
    let dir = Dir::new();
    dir.write("x", "text");
    assert_eq!(read_by(&same(&dir, &[PYTHON, "-c", program], &[]), "python"), (1, 4));
}

#[test]
fn descriptors() {
    let dir = Dir::new();
    dir.write("x", "text");
    // All in use when it forks.
    let program = "import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
fds = []
try:
    while True:
        fds.append(os.open('x', os.O_RDONLY))
except OSError as error:
    print(error.errno, len(fds))
if os.fork() == 0:
    print(os.pread(fds[0], 4, 0), flush=True)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))";
    let seen = same(&dir, &[PYTHON, "-c", program], &[]);
    is_named(&seen, "1 process", "limit");
}

#[test]
fn more_processes_than_slots_are_named() {
    let dir = Dir::new();
    // Each waits for the end of a pipe.
    let program = "import os
ends, go = os.pipe(), os.pipe()
for number in range(4200):
    if os.fork() == 0:
        os.close(go[1])
        os.write(ends[1], b'x')
        os.read(go[0], 1)
        os._exit(0)
seen = 0
while seen < 4200:
    seen += len(os.read(ends[0], 4200))
os.close(go[1])
codes = [os.wait()[1] for _ in range(4200)]
print(seen, sum(codes))";
    let seen = same(&dir, &[PYTHON, "-c", program], &[]);
    let processes = seen["coverage"]["processes_seen"].as_u64().unwrap();
    assert!((4096..=4201).contains(&processes), "{processes}");
    is_named(&seen, &format!("{} processes", 4201 - processes), "too many");
}

#[test]
fn sixty_four_processes_share_little_memory_with_feedline() {
    const MOST_MEMORY: u64 = 256 << 20;
    let dir = Dir::new();
    dir.write("x", "text");
    // Each makes as many events as fit into 2 MiB, and stays until the memory was measured.
    let program = "import os, re, time
ends, go = os.pipe(), os.pipe()
for number in range(64):
    if os.fork() == 0:
        os.close(go[1])
        fd = os.open('x', os.O_RDONLY)
        for _ in range(30000):
            os.pread(fd, 4, 0)
        os.write(ends[1], b'x')
        os.read(go[0], 1)
        os._exit(0)
seen = 0
while seen < 64:
    seen += len(os.read(ends[0], 64))
time.sleep(1)
ring = os.environ['FEEDLINE_AUDIT_RING']
status = open('/proc/%s/status' % ring.split('/')[2]).read()
print(os.stat(ring).st_blocks * 512, int(re.search('VmHWM:\\s+(\\d+)', status).group(1)) << 10)
os.close(go[1])
[os.wait() for _ in range(64)]";
    let done = super::audit(&dir, &[PYTHON, "-c", program]).run().exits(0);
    let seen = super::observed(&dir, &done);
    assert_eq!(read_by(&seen, "python"), (64, 64 * 30_000 * 4));
    let bytes: Vec<u64> = done.stdout.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
    // Whole rings of the first 16, and pages of the others: less than all events of all of them.
    assert!(bytes[0] < 80 << 20, "{} MiB are shared with the job", bytes[0] >> 20);
    assert!(bytes[1] < MOST_MEMORY, "feedline used {} MiB", bytes[1] >> 20);
}
