//! Reads objects through a lane for some time and prints what that took as one line of JSON, for `scripts/bench
//! objects`.
//!
//!     object_reader --endpoint URL --bucket B --key-template 'k{}' --objects N --bytes SIZE --in-flight 16 --seconds 3
//!         [--range-bytes R] [--keep]
//!
//! The key and secret are those of the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), and so are further
//! certificates (AWS_CA_BUNDLE).

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

extern crate feedline_store as store;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::extent::Extent;
use model::location::Location;
use model::names::Name;
use model::objects::{CredentialSource, ObjectOptions};
use model::plan::RequestPlan;
use model::secret::Secret;
use model::units::Nanos;
use store::{Buffer, Fetch, FetchWait, Lane, Mode, Now, ObjectStore, Purpose, Selection, Store, Traffic};

/// Counts allocations, so that the bench can show that a request makes none.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises hold for the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer is from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Clock(Instant);

impl Now for Clock {
    fn now(&self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

struct Flags {
    endpoint: String,
    bucket: String,
    template: String,
    objects: usize,
    bytes: u64,
    in_flight: usize,
    seconds: f64,
    range_bytes: u64,
    keep: bool,
}

impl Flags {
    fn read() -> Flags {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name);
            at.and_then(|at| arguments.get(at + 1)).cloned()
        };
        let number =
            |name: &str, default: f64| value(name).map_or(default, |text| text.parse().unwrap_or(default));
        Flags {
            endpoint: value("--endpoint").unwrap_or_else(|| "http://127.0.0.1:9000".to_owned()),
            bucket: value("--bucket").unwrap_or_else(|| "bench".to_owned()),
            template: value("--key-template").unwrap_or_else(|| "k{}".to_owned()),
            objects: number("--objects", 1.0) as usize,
            bytes: number("--bytes", 16384.0) as u64,
            in_flight: number("--in-flight", 16.0) as usize,
            seconds: number("--seconds", 3.0),
            range_bytes: number("--range-bytes", (8 << 20) as f64) as u64,
            keep: arguments.iter().any(|argument| argument == "--keep"),
        }
    }
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn cpu_seconds() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}

/// A figure of /proc/self/status in KiB.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn open(flags: &Flags) -> Result<ObjectStore, Box<dyn std::error::Error>> {
    let credentials = match (std::env::var("AWS_ACCESS_KEY_ID"), std::env::var("AWS_SECRET_ACCESS_KEY")) {
        (Ok(id), Ok(secret)) => {
            CredentialSource::Keys { id: Secret::new(id), secret: Secret::new(secret), token: None }
        }
        _ => CredentialSource::Anonymous,
    };
    let options = ObjectOptions {
        endpoints: flags.endpoint.split(',').map(str::to_owned).collect(),
        credentials,
        ca_bundle: std::env::var("AWS_CA_BUNDLE").ok(),
        requests_in_flight: flags.in_flight as u64,
        ..ObjectOptions::default()
    };
    let selection = Selection::named("s3", Mode::default())?.with_objects(options, wall);
    Ok(ObjectStore::open(&Location::parse(format!("s3://{}", flags.bucket)), &selection)?)
}

/// Fetches one object after another with every reader.
struct Loop<'a> {
    flags: &'a Flags,
    names: &'a [Name],
    whole: [Extent; 1],
    next: usize,
    requests: u64,
    bytes: u64,
}

impl Loop<'_> {
    fn submit(&mut self, lane: &mut dyn Lane, reader: usize, buffer: Option<Buffer>) {
        let name = &self.names[self.next % self.names.len()];
        self.next += 1;
        let fetch = Fetch {
            name,
            purpose: Purpose::Upkeep,
            ranges: &self.whole,
            file_bytes: self.flags.bytes,
            version: None,
            keep_open: false,
            at: Nanos::ZERO,
            into: buffer,
        };
        lane.submit(reader, fetch);
    }

    /// Runs for some time; what was in flight then is awaited, but not counted. Returns the seconds.
    fn run(
        &mut self,
        lane: &mut dyn Lane,
        seconds: f64,
        idle: &mut Vec<(usize, Option<Buffer>)>,
    ) -> Result<f64, store::StoreError> {
        let (begin, mut took) = (Instant::now(), 0.0);
        loop {
            if took == 0.0 {
                let elapsed = begin.elapsed().as_secs_f64();
                took = if elapsed >= seconds { elapsed } else { 0.0 };
            }
            while took == 0.0
                && let Some((reader, buffer)) = idle.pop()
            {
                self.submit(lane, reader, buffer);
            }
            match (lane.reap(), lane.awaits()) {
                (Some(done), _) => {
                    let fetched = done.outcome?;
                    if took > 0.0 {
                        idle.push((done.reader, done.kept));
                        continue;
                    }
                    self.requests += fetched.reads;
                    self.bytes += fetched.bytes;
                    self.submit(lane, done.reader, done.kept);
                }
                (None, FetchWait::Medium) => lane.wait(Nanos(100_000_000)),
                (None, _) => return Ok(took),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::read();
    let store = open(&flags)?;
    let names: Vec<Name> = (0..flags.objects.max(1))
        .filter_map(|number| Name::new(&flags.template.replace("{}", &number.to_string())))
        .collect();
    let clock = Clock(Instant::now());
    let traffic = Traffic {
        readers: flags.in_flight,
        transfer: flags.range_bytes as usize,
        clock: &clock,
        ..Traffic::untimed()
    };
    let mut lane = store.lane(traffic)?;
    let mut idle: Vec<_> =
        (0..flags.in_flight).map(|reader| (reader, flags.keep.then(Buffer::default))).collect();
    let whole = [Extent { offset: 0, len: flags.bytes }];
    let mut reading = Loop { flags: &flags, names: &names, whole, next: 0, requests: 0, bytes: 0 };
    reading.run(&mut *lane, (flags.seconds / 5.0).min(0.5), &mut idle)?;
    lane.take_spans();
    let (allocations, cpu) = (ALLOCATIONS.load(Ordering::Relaxed), cpu_seconds());
    (reading.requests, reading.bytes) = (0, 0);
    let seconds = reading.run(&mut *lane, flags.seconds, &mut idle)?;
    let (allocations, cpu) = (ALLOCATIONS.load(Ordering::Relaxed) - allocations, cpu_seconds() - cpu);
    let spans = lane.take_spans();
    let bytes = reading.bytes;
    let kept = if flags.keep { flags.bytes } else { 0 };
    let plan = RequestPlan { encrypted: flags.endpoint.starts_with("https://"), ..RequestPlan::default() };
    let planned = plan.memory(flags.in_flight as u64, 1) + kept * flags.in_flight as u64;
    println!(
        "{{\"requests\": {}, \"bytes\": {bytes}, \"seconds\": {seconds:.6}, \"cpu_seconds\": {cpu:.6}, \
         \"allocations\": {allocations}, \"rss_kib\": {}, \"planned_bytes\": {planned}, \"connects\": {}, \
         \"failed\": {}}}",
        reading.requests,
        status("VmHWM"),
        spans.requests.connects,
        spans.requests.all_failed(),
    );
    Ok(())
}
