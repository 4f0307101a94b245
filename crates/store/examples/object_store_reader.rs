//! The reference for reads from an object store: the crate object_store on one thread, for a time, with a number of
//! requests in flight. It takes the flags of `object_reader` and prints the same line of JSON, so that a bench can
//! compare the two: `object_store_reader --endpoint URL --bucket B --key-template 16384/k{} --objects N --bytes 16384
//! --in-flight 16 --seconds 3 [--range-bytes R]`. Credentials are those of the environment.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use rustix::time::{ClockId, clock_gettime};

/// Connections are made and buffers grow before the measured time.
const WARM_UP: Duration = Duration::from_millis(500);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct Work {
    store: Arc<dyn ObjectStore>,
    template: String,
    objects: u64,
    object_bytes: u64,
    range_bytes: u64,
    next: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    is_over: AtomicBool,
}

/// Counts at one moment.
struct Moment {
    at: Instant,
    cpu: Duration,
    requests: u64,
    bytes: u64,
    allocations: u64,
}

impl Work {
    /// Requests one after the other, until the time is over.
    async fn repeat(&self) -> Outcome<()> {
        let parts = self.object_bytes.div_ceil(self.range_bytes);
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let object = number / parts % self.objects;
            let path = Path::parse(self.template.replace("{}", &object.to_string()))?;
            let bytes = if parts == 1 {
                self.store.get(&path).await?.bytes().await?
            } else {
                let from = number % parts * self.range_bytes;
                let to = (from + self.range_bytes).min(self.object_bytes);
                self.store.get_range(&path, from..to).await?
            };
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Moment {
            at: Instant::now(),
            cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            allocations: ALLOCATIONS.load(Ordering::Relaxed),
        }
    }
}

fn flags() -> Outcome<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let name = name.strip_prefix("--").ok_or(format!("{name}: not a flag"))?.to_owned();
        let value = if name == "keep" { Some(String::new()) } else { arguments.next() };
        found.insert(name, value.ok_or("a flag without a value")?);
    }
    Ok(found)
}

fn peak_kib() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn main() -> Outcome<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let flags = flags()?;
    let text = |name: &str| flags.get(name).cloned().ok_or(format!("--{name} is missing"));
    let number = |name: &str| -> Outcome<u64> { Ok(text(name)?.parse()?) };
    let seconds: f64 = text("seconds")?.parse()?;
    let object_bytes = number("bytes")?;
    let store = AmazonS3Builder::from_env()
        .with_endpoint(text("endpoint")?)
        .with_bucket_name(text("bucket")?)
        .with_region("us-east-1")
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .build()?;
    let work = Arc::new(Work {
        store: Arc::new(store),
        template: text("key-template")?,
        objects: number("objects")?,
        object_bytes,
        range_bytes: number("range-bytes").unwrap_or(object_bytes),
        next: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let in_flight = number("in-flight")?;
    let (before, after) = runtime.block_on(async {
        let spawn = |_| {
            let work = Arc::clone(&work);
            tokio::spawn(async move { work.repeat().await })
        };
        let tasks: Vec<_> = (0..in_flight).map(spawn).collect();
        tokio::time::sleep(WARM_UP).await;
        let before = work.moment();
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let after = work.moment();
        work.is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await??;
        }
        Outcome::Ok((before, after))
    })?;
    println!(
        "{{\"requests\": {}, \"bytes\": {}, \"seconds\": {}, \"cpu_seconds\": {}, \"allocations\": {}, \
         \"rss_kib\": {}}}",
        after.requests - before.requests,
        after.bytes - before.bytes,
        (after.at - before.at).as_secs_f64(),
        (after.cpu - before.cpu).as_secs_f64(),
        after.allocations - before.allocations,
        peak_kib()?
    );
    Ok(())
}
