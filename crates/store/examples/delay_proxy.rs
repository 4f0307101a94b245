//! Adds a latency to every request to an object store, for benches: `delay_proxy ENDPOINT MILLISECONDS` prints its own
//! endpoint and serves until it is killed. It is the proxy of the tests.

#![expect(clippy::print_stdout, reason = "a measuring program: this is its output")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the proxy is written for tests")]

#[allow(dead_code, reason = "a bench needs the latency only")]
#[path = "../../feedline/tests/objects/proxy.rs"]
mod proxy;

use std::io::Write as _;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: delay_proxy ENDPOINT MILLISECONDS";
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().ok_or(usage)?;
    let latency = Duration::from_millis(arguments.next().ok_or(usage)?.parse()?);
    let proxy = proxy::Proxy::to(&endpoint).latency(latency).start();
    println!("{}", proxy.endpoint());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
