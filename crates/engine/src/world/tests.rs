//! The behaviour that every world must have, tested with members that are threads, which share memory or have
//! connections.

use store::Now;

use super::cluster::over_loopback;
use super::threads::members_on;
use super::*;
use crate::figures::Progress;
use crate::meter::FakeClock;

/// The worlds of several members.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Threads,
    /// Connected through the loopback interface.
    Tcp,
}

const KINDS: [Kind; 2] = [Kind::Threads, Kind::Tcp];

impl Kind {
    fn members(self, count: u64) -> Vec<Box<dyn World + Send>> {
        let hosts: Vec<String> = (0..count).map(|member| format!("host{member}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        match self {
            Kind::Threads => members_on(&hosts).into_iter().map(|one| Box::new(one) as _).collect(),
            Kind::Tcp => over_loopback(&hosts).into_iter().map(|one| Box::new(one) as _).collect(),
        }
    }

    /// Runs `work` at all members at the same time.
    fn at_all<T: Send>(self, count: u64, work: impl Fn(&dyn World) -> T + Sync) -> Vec<T> {
        let (worlds, work) = (self.members(count), &work);
        std::thread::scope(|scope| {
            let start = |world: Box<dyn World + Send>| scope.spawn(move || work(&*world));
            let threads: Vec<_> = worlds.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

fn stop() -> Stop {
    Stop::default().with_patience(Some(Nanos(20_000_000_000)))
}

fn barrier(step: u64) -> Barrier {
    Barrier { epoch: 1, phase: Phase::Train, step, checkpoint: false }
}

/// Waits for a release as the engine does.
fn wait_for_release(world: &dyn World, stop: &Stop) -> Result<Nanos, EarlyEnd> {
    loop {
        if let Some(at) = world.released() {
            return Ok(at);
        }
        world.wait(stop, Duration::from_millis(50))?;
    }
}

/// What was broadcast, gathered at member 0 and gathered at all members, and the entropy.
type Exchanged = (Vec<u8>, Vec<(u64, Vec<u8>)>, Vec<Vec<u8>>, u64);

fn exchange(world: &dyn World) -> Exchanged {
    let (member, stop) = (world.member() as u8, stop());
    let mut shared = vec![member; 3];
    world.broadcast(&mut shared, &stop).unwrap();
    let mut gathered = Vec::new();
    world.gather(&[member, 7], &stop, &mut |from, bytes| gathered.push((from, bytes.to_vec()))).unwrap();
    let all = gather_to_all(world, &[member], &stop).unwrap();
    (shared, gathered, all, entropy(world, &stop).unwrap())
}

#[test]
fn member_0_broadcasts_to_all_and_gathers_from_all() {
    for (kind, count) in KINDS.into_iter().flat_map(|kind| [1, 2, 4].map(|count| (kind, count))) {
        let mut seen = kind.at_all(count, |world| {
            let seen = exchange(world);
            world.agree(Ok(()), &stop()).unwrap();
            seen
        });
        if count == 1 {
            seen.push(exchange(&Solo::new()));
            seen[1].3 = seen[0].3;
        }
        for (member, (shared, gathered, all, entropy)) in seen.iter().enumerate() {
            assert_eq!(*shared, [0; 3], "{kind:?}");
            let expected = (0..count).map(|from| (from, vec![from as u8, 7])).collect::<Vec<_>>();
            let hears = member == 0 || count == 1;
            assert_eq!(*gathered, if hears { expected } else { Vec::new() }, "{kind:?}");
            assert_eq!(*all, (0..count).map(|from| vec![from as u8]).collect::<Vec<_>>(), "{kind:?}");
            assert_eq!(*entropy, seen[0].3, "{kind:?}");
        }
    }
}

#[test]
fn large_messages_arrive_whole() {
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    for kind in KINDS {
        kind.at_all(3, |world| {
            let mut shared = if world.member() == 0 { bytes.clone() } else { Vec::new() };
            world.broadcast(&mut shared, &stop()).unwrap();
            assert!(shared == bytes, "{kind:?}");
            let mut gathered = 0;
            world.gather(&shared, &stop(), &mut |_, given| gathered += usize::from(given == bytes)).unwrap();
            assert_eq!(gathered, if world.member() == 0 { 3 } else { 0 }, "{kind:?}");
            // Keeps every member until all have gathered. A member that leaves first may end it for the others.
            let _ = world.agree(Ok(()), &stop());
        });
    }
}

#[test]
fn a_barrier_is_released_at_the_latest_moment_at_any_member() {
    for (kind, count) in KINDS.into_iter().flat_map(|kind| [2, 4, 20].map(|count| (kind, count))) {
        let releases = kind.at_all(count, |world| {
            let mut releases = Vec::new();
            for step in 0..50 {
                // Another member is the last in each step.
                let own = if step % count == world.member() { 900 } else { 100 };
                world.arrive(barrier(step), Nanos(1000 * step + own));
                releases.push(wait_for_release(world, &stop()).unwrap().0 - 1000 * step);
            }
            // A member that leaves would end the waits of members that still look for the last release.
            world.agree(Ok(()), &stop()).unwrap();
            releases
        });
        assert_eq!(releases, vec![vec![900; 50]; count as usize], "{kind:?}");
    }
}

#[test]
fn a_release_is_converted_to_each_members_clock() {
    // Member i's clock is i seconds ahead of member 0's.
    let ahead = |world: &dyn World| world.member() * 1_000_000_000;
    let releases = Kind::Threads.at_all(4, |world| {
        let (clock, stop) = (FakeClock::default(), stop());
        clock.sleep_until(Nanos(ahead(world)), &|| false);
        let offset = world.synchronize(&clock, &stop).unwrap();
        assert_eq!((offset.offset_ns, offset.bound_ns), (-(ahead(world) as i64), Nanos(0)));
        world.arrive(barrier(0), clock.now() + Nanos(100 * world.member()));
        let release = wait_for_release(world, &stop).unwrap().0 - ahead(world);
        world.agree(Ok(()), &stop).unwrap();
        release
    });
    assert_eq!(releases, [300; 4]);
}

#[test]
fn different_barriers_at_two_members_are_an_error_that_names_both() {
    for kind in KINDS {
        let ended = kind.at_all(2, |world| {
            world.arrive(barrier(7 + world.member()), Nanos(0));
            wait_for_release(world, &stop()).unwrap_err()
        });
        assert_eq!(ended[0], ended[1], "{kind:?}");
        let words = ended[0].to_string();
        let both = ["epoch 1 (train), step 7", "epoch 1 (train), step 8"];
        assert!(both.iter().all(|place| words.contains(place)), "{kind:?}: {words}");
    }
}

#[test]
fn all_members_learn_which_one_cannot_continue_and_why() {
    let causes = [Cause::Stopped, Cause::Failed("the disk is full".to_owned())];
    for (kind, cause) in KINDS.into_iter().flat_map(|kind| causes.clone().map(|cause| (kind, cause))) {
        let ended = kind.at_all(4, |world| {
            let here = if world.member() == 2 { Err(cause.clone()) } else { Ok(()) };
            (world.agree(here, &stop()).unwrap_err(), world.broadcast(&mut Vec::new(), &stop()).unwrap_err())
        });
        let expected = EarlyEnd { member: 2, node: "host2".to_owned(), cause, place: None };
        let all = |(first, later): &(EarlyEnd, EarlyEnd)| *first == expected && *later == expected;
        assert!(ended.iter().all(all), "{kind:?}: {ended:?}");
    }
}

#[test]
fn when_several_members_end_all_name_the_same_one() {
    for kind in KINDS {
        let ended = kind.at_all(4, |world| {
            let here = Err(Cause::Failed(format!("disk {} is full", world.member())));
            world.agree(here, &stop()).unwrap_err()
        });
        assert!(ended.iter().all(|one| *one == ended[0]), "{kind:?}: {ended:?}");
    }
}

#[test]
fn a_stop_request_ends_a_wait_and_is_announced_to_all() {
    for kind in KINDS {
        let ended = kind.at_all(3, |world| {
            let stop = stop();
            if world.member() == 1 {
                stop.wish();
            }
            // Member 0 waits for a barrier, member 2 for a broadcast.
            match world.member() {
                0 => wait_for_release(world, &stop).map(drop),
                _ => world.broadcast(&mut Vec::new(), &stop),
            }
        });
        let (node, cause) = ("host1".to_owned(), Cause::Stopped);
        let expected = EarlyEnd { member: 1, node, cause, place: None };
        assert_eq!(ended, vec![Err(expected); 3], "{kind:?}");
    }
}

#[test]
fn different_collective_calls_are_an_error_that_names_both() {
    for kind in KINDS {
        let ended = kind.at_all(2, |world| match world.member() {
            0 => world.agree(Ok(()), &stop()),
            _ => world.broadcast(&mut Vec::new(), &stop()),
        });
        assert_eq!(ended[0], ended[1], "{kind:?}");
        let cause = ended[0].as_ref().unwrap_err().cause.to_string();
        assert!(cause.contains("while others called"), "{kind:?}: {cause}");
    }
}

type Wait = fn(&dyn World, &Stop) -> Result<(), EarlyEnd>;

const WAITS: [Wait; 5] = [
    |world, stop| wait_for_release(world, stop).map(drop),
    |world, stop| world.agree(Ok(()), stop),
    |world, stop| world.broadcast(&mut Vec::new(), stop),
    |world, stop| world.gather(&[], stop, &mut |_, _| {}),
    |world, stop| world.synchronize(&FakeClock::default(), stop).map(drop),
];

#[test]
fn a_member_that_leaves_ends_every_wait() {
    for (kind, wait) in KINDS.into_iter().flat_map(|kind| WAITS.map(|wait| (kind, wait))) {
        let mut worlds = kind.members(2);
        worlds[1].arrive(barrier(3), Nanos(0));
        drop(worlds.pop());
        let ended = wait(&*worlds[0], &stop()).unwrap_err();
        assert_eq!((ended.member, &ended.cause), (1, &Cause::Left), "{kind:?}");
        let words = ended.to_string();
        assert!(words.ends_with("the last it reached is epoch 1 (train), step 3"), "{kind:?}: {words}");
    }
}

#[test]
fn a_member_that_does_not_respond_ends_every_wait() {
    let stop = Stop::default().with_patience(Some(Nanos(100_000_000)));
    for wait in WAITS {
        let worlds = Kind::Threads.members(2);
        let ended = wait(&*worlds[0], &stop).unwrap_err();
        assert!(ended.member == 1 && matches!(ended.cause, Cause::Silent(_)), "{ended:?}");
        // A thread that sends no sign of life, like that of a process that was stopped.
        let mut worlds = over_loopback(&["a", "b"]);
        worlds[1].freeze();
        let ended = wait(&worlds[0], &stop).unwrap_err();
        assert!(ended.member == 1 && matches!(ended.cause, Cause::Silent(_)), "{ended:?}");
    }
}

#[test]
fn a_member_that_works_longer_than_the_stall_timeout_is_waited_for() {
    let stop = Stop::default().with_patience(Some(Nanos(200_000_000)));
    Kind::Tcp.at_all(2, |world| {
        world.agree(Ok(()), &stop).unwrap();
        if world.member() == 1 {
            meter::pause(Duration::from_millis(800));
        }
        world.agree(Ok(()), &stop).unwrap();
    });
}

#[test]
fn background_calls_are_independent_of_the_others() {
    for kind in KINDS {
        let sums = kind.at_all(3, |world| {
            std::thread::scope(|scope| {
                let beside = scope.spawn(|| {
                    let all = |_| gather_to_all(world.background(), &[1], &stop()).unwrap().len();
                    (0..20).map(all).sum::<usize>()
                });
                let own: usize = (0..20).map(|_| gather_to_all(world, &[1], &stop()).unwrap().len()).sum();
                let beside = beside.join().unwrap();
                world.agree(Ok(()), &stop()).unwrap();
                (own, beside)
            })
        });
        assert_eq!(sums, [(60, 60); 3], "{kind:?}");
    }
}

#[test]
fn member_0_knows_the_progress_of_the_others() {
    for kind in KINDS {
        let seen = kind.at_all(3, |world| {
            // The stall timeout makes signs of life frequent.
            let stop = Stop::default().with_patience(Some(Nanos(1_000_000_000)));
            let totals = Progress { samples: 10 * (1 + world.member()), ..Progress::default() };
            world.publish(LiveFigures { totals, ..LiveFigures::default() });
            world.agree(Ok(()), &stop).unwrap();
            let known = || -> Vec<(u64, u64)> {
                world.figures().iter().map(|(member, figures)| (*member, figures.totals.samples)).collect()
            };
            while world.member() == 0 && known() != [(1, 20), (2, 30)] {
                meter::pause(Duration::from_millis(5));
            }
            let samples = known().iter().map(|(_, samples)| samples).sum::<u64>();
            world.agree(Ok(()), &stop).unwrap();
            samples
        });
        assert_eq!(seen, [50, 0, 0], "{kind:?}");
    }
}

/// The last figures of some work are there before anything that a member sends later, without a sign of life.
#[test]
fn the_last_figures_are_sent_at_once() {
    for kind in KINDS {
        let seen = kind.at_all(3, |world| {
            // Without a stall timeout, a sign of life is sent once a second.
            let stop = Stop::default();
            world.agree(Ok(()), &stop).unwrap();
            for samples in 1..=20 {
                let totals = Progress { samples, ..Progress::default() };
                world.publish(LiveFigures { totals, ended: true, ..LiveFigures::default() });
                world.agree(Ok(()), &stop).unwrap();
                let known = world.figures();
                assert!(known.iter().all(|(_, figures)| figures.totals.samples == samples), "{known:?}");
                world.agree(Ok(()), &stop).unwrap();
            }
            world.figures().len()
        });
        assert_eq!(seen, [2, 0, 0], "{kind:?}");
    }
}
