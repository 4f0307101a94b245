//! Clients that are slow, silent, greedy or send something else. Each of them runs during the whole training, and the
//! run has the same counts as without them, ends in time, and answers an honest client meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{LIMIT, OPEN, ask, end, final_page, free_address, page};
use crate::util::{Dir, SMALL};

/// What a hostile client does with a connection; returns when the connection is lost.
type Attack = fn(TcpStream) -> std::io::Result<()>;

const ATTACKS: [(&str, Attack); 8] = [
    ("sends nothing", |mut stream| stream.read(&mut [0]).map(drop)),
    ("sends one byte at a time", |mut stream| {
        for byte in b"GET /metrics HTTP/1.1\r\nx: ".iter().cycle() {
            stream.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }),
    ("sends garbage", |mut stream| {
        stream.write_all(&[0xff, 0, b'\n', 7].repeat(500))?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
    ("sends a gigabyte", |mut stream| {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ")?;
        (0..1 << 10).try_for_each(|_| stream.write_all(&[b'a'; 1 << 20]))
    }),
    ("sends a body", |mut stream| {
        stream.write_all(b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n")?;
        (0..1 << 10).try_for_each(|_| stream.write_all(&[b'a'; 1 << 20]))
    }),
    ("never reads the answer", |mut stream| {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }),
    ("closes at once", |stream| stream.shutdown(Shutdown::Both)),
    ("closes one half", |mut stream| {
        stream.write_all(b"GET /metr")?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }),
];

/// Attacks until the flag is set; counts the connections.
fn attack(address: &str, attack: Attack, over: &AtomicBool, connections: &AtomicU64) {
    while !over.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(address) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        // A client that waits for the server must end when the test does.
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        connections.fetch_add(1, Ordering::Relaxed);
        // The server ends most of these connections, which is an error here.
        let _ = attack(stream);
    }
}

#[test]
fn hostile_clients_change_nothing_in_a_run() {
    let (dir, address) = (Dir::new(), free_address());
    dir.write("w.yaml", SMALL.replace("computation_time: 0", "computation_time: 0.1"));
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--json"];
    let alone = dir.feedline(&args).args(&["--results-dir", "alone"]).run().ran().json();
    let (over, counts) = (AtomicBool::new(false), ATTACKS.map(|_| AtomicU64::new(0)));
    let mut answered = 0;
    let attacked = std::thread::scope(|scope| {
        for ((_, kind), count) in ATTACKS.iter().zip(&counts) {
            // Several of each, more than the server has connections.
            for _ in 0..4 {
                scope.spawn(|| attack(&address, *kind, &over, count));
            }
        }
        let mut running = dir.feedline(&args).args(&["--metrics", &address]).start();
        let has_ended = running.until_or_end(|| {
            answered += u64::from(page(&address, OPEN).is_some());
            false
        });
        over.store(true, Ordering::Relaxed);
        assert!(has_ended);
        running.wait_for(LIMIT)
    });
    let attacked = attacked.ran().json();
    for ((name, _), count) in ATTACKS.iter().zip(counts) {
        assert!(count.into_inner() > 0, "{name}: no connection");
    }
    assert!(answered > 0, "an honest client gets its answer");
    for (one, other) in [(&alone, &attacked)] {
        let of = |summary: &serde_json::Value, key: &str| {
            let epochs = summary["feedline"]["epochs"].as_array().unwrap();
            epochs.iter().map(|epoch| epoch[key].clone()).collect::<Vec<_>>()
        };
        for key in ["digest", "samples_delivered", "bytes_read", "samples_failed"] {
            assert_eq!(of(one, key), of(other, key), "{key}");
        }
    }
}

#[test]
fn every_request_is_answered_or_refused() {
    let (dir, address) = (Dir::small_with_data(), free_address());
    let args =
        ["run", "w.yaml", "--quiet", "--no-calibration", "--metrics", &address, "--metrics-linger", "60s"];
    let mut running = dir.feedline(&args).start();
    running.until("the server", || TcpStream::connect(&address).is_ok());
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        ("\x16\x03\x01 a handshake of TLS\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = ask(&address, request).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(8 << 10));
    assert!(ask(&address, &long).unwrap().starts_with("HTTP/1.1 431 "));
    final_page(&mut running, &address);
    end(running).ran();
}
