//! Members that are threads of one process, connected through the loopback interface.

use std::net::{TcpListener, TcpStream};

use model::ledger::Phase;

use super::super::HostIdentity;
use super::streams::TcpStreams;
use super::*;

/// Members on the named hosts, as this process sees them.
pub(in super::super) fn over_loopback(hosts: &[&str]) -> Vec<Cluster> {
    let identity = |name: &&str| HostIdentity { name: (*name).to_owned(), boot_id: String::new() };
    let topology = Topology::new(&hosts.iter().map(identity).collect::<Vec<_>>());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = |member: u64| {
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        ((member, accepted), vec![(0, out)])
    };
    let (first, mut others): (Vec<_>, Vec<_>) = (1..hosts.len() as u64).map(pair).unzip();
    others.insert(0, first);
    let member = |(number, streams)| {
        let streams = Box::new(TcpStreams::new("loopback".to_owned(), streams).unwrap());
        Cluster::new(topology.clone(), number, streams, None, &Stop::default()).unwrap()
    };
    (0..).zip(others).map(member).collect()
}

impl Cluster {
    /// Ends the signs of life, as if the process had been stopped.
    pub(in super::super) fn freeze(&mut self) {
        self.close();
    }
}

/// Runs `work` at all members at the same time.
fn at_all<T: Send>(hosts: &[&str], work: impl Fn(Cluster) -> T + Sync) -> Vec<T> {
    let (worlds, work) = (over_loopback(hosts), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || work(world))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn step(step: u64) -> Barrier {
    Barrier { epoch: 1, phase: Phase::Train, step, checkpoint: false }
}

fn patient() -> Stop {
    Stop::default().with_patience(Some(Nanos(20_000_000_000)))
}

#[test]
fn the_offset_of_a_clock_is_within_its_bound() {
    let reference = Monotonic::new();
    let readings = at_all(&["a", "b", "c"], |world| {
        meter::pause(Duration::from_millis(30 * world.member()));
        let clock = Monotonic::new();
        let begun = ClockReading::between(clock.now(), reference.now(), clock.now());
        let wall = world.synchronize(&clock, &patient()).unwrap();
        assert!(wall.offset_ns.unsigned_abs() <= wall.bound_ns.0, "all members are on one host: {wall:?}");
        let offset = lock(&world.shared().barriers).offset;
        world.conclude(0);
        (begun, offset)
    });
    let (first, _) = readings[0];
    for (begun, offset) in &readings {
        let error = (begun.offset_ns - first.offset_ns - offset.offset_ns).unsigned_abs();
        let bound = offset.bound_ns + begun.bound_ns + first.bound_ns;
        assert!(error <= bound.0, "off by {error} ns, bound {bound}");
    }
}

#[test]
fn processes_of_one_host_have_one_clock() {
    let reference = Monotonic::new();
    let readings = at_all(&["a", "a"], |world| {
        meter::pause(Duration::from_millis(30 * world.member()));
        let clock = Monotonic::new();
        let begun = ClockReading::between(clock.now(), reference.now(), clock.now());
        assert_eq!(world.synchronize(&clock, &patient()).unwrap(), ClockReading::default());
        let offset = lock(&world.shared().barriers).offset;
        world.conclude(0);
        (begun, offset)
    });
    let [(first, _), (begun, offset)] = readings[..] else { unreachable!("two members") };
    let error = (begun.offset_ns - first.offset_ns - offset.offset_ns).unsigned_abs();
    let bound = offset.bound_ns + begun.bound_ns + first.bound_ns;
    assert!(error <= bound.0, "off by {error} ns, bound {bound}");
}

#[test]
fn the_node_that_others_wait_for_is_recorded() {
    let hosts = ["a", "b", "a", "c"];
    let seen = at_all(&hosts, |world| {
        for number in 0..10 {
            // The second member of a is the last of all in 7 steps, by 40 ns; then c, by 10 ns.
            let own = match (world.member(), number < 7) {
                (2, true) => 140,
                (3, _) => 100,
                _ => 90,
            };
            world.arrive(step(number), Nanos(1000 * number + own));
            while world.released().is_none() {
                world.wait(&patient(), Duration::from_millis(50)).unwrap();
            }
        }
        world.agree(Ok(()), &patient()).unwrap();
        let seen = world.take_agreement();
        assert_eq!(world.take_agreement(), [], "taken once");
        world.conclude(0);
        seen
    });
    let of = |member: usize, node: u64| seen[member].iter().find(|(of, _)| *of == node).map(|(_, seen)| seen);
    let lasts = [0, 1, 2].map(|node| of(0, node).map_or((0, Nanos::ZERO), |seen| (seen.last, seen.last_ns)));
    assert_eq!(lasts, [(7, Nanos(280)), (0, Nanos::ZERO), (3, Nanos(30))]);
    assert_eq!(of(0, 0).unwrap().barriers, 10);
    for (member, host) in hosts.iter().enumerate() {
        let node = ["a", "b", "c"].iter().position(|name| name == host).unwrap() as u64;
        assert_eq!(of(member, node).unwrap().latency.count(), 10);
    }
}

#[test]
fn all_members_end_with_the_same_exit_code() {
    let conclude = |codes: [u8; 3], fails: Option<u64>| {
        at_all(&["a", "b", "c"], |world| {
            let member = world.member();
            if let Some(fails) = fails {
                let here = if member == fails { Err(Cause::Failed("no disk".to_owned())) } else { Ok(()) };
                world.agree(here, &patient()).unwrap_err();
            }
            world.conclude(codes[member as usize])
        })
    };
    assert_eq!(conclude([0, 0, 0], None), [0; 3]);
    assert_eq!(conclude([0, 5, 0], None), [5; 3]);
    assert_eq!(conclude([3, 3, 2], Some(2)), [2; 3], "the code of the member that failed");
}

#[test]
fn a_run_that_ends_elsewhere_stops_work_that_does_not_look() {
    let mut worlds = over_loopback(&["a", "b"]);
    let shared = Arc::clone(&worlds[0].line.shared);
    let (noticed, later) = (Nanos(200_000_000), Nanos(199_999_999));
    drop(worlds.pop());
    let ended = loop {
        if let Some(ended) = worlds[0].ended() {
            break ended;
        }
        meter::pause(Duration::from_millis(5));
    };
    assert_eq!((ended.member, ended.cause), (1, Cause::Left));
    let at = lock(&shared.state).ended_at;
    shared.end_unnoticed(at + later);
    assert!(!shared.stop.wished() || shared.clock.now() >= at + noticed);
    shared.end_unnoticed(at + noticed);
    assert!(shared.stop.wished() && !shared.stop.requested(), "no stop was requested");
}

#[test]
fn a_stop_request_before_the_end_elsewhere_remains_one() {
    let stop = Stop::default();
    stop.wish();
    stop.end_here();
    assert!(stop.requested());
}
