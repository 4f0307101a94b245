//! The behaviour that every world must have, tested with members that are threads.

use store::Now;

use super::threads::{ThreadMember, members};
use super::*;
use crate::meter::FakeClock;

/// Runs `work` at all members at the same time.
fn at_all<T: Send>(count: u64, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let (worlds, work) = (members(count), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || work(&world))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
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
    for count in [1, 2, 4] {
        let mut seen = at_all(count, |world| exchange(world));
        if count == 1 {
            seen.push(exchange(&Solo::new()));
            seen[1].3 = seen[0].3;
        }
        for (member, (shared, gathered, all, entropy)) in seen.iter().enumerate() {
            assert_eq!(*shared, [0; 3]);
            let expected = (0..count).map(|from| (from, vec![from as u8, 7])).collect::<Vec<_>>();
            let hears = member == 0 || count == 1;
            assert_eq!(*gathered, if hears { expected } else { Vec::new() });
            assert_eq!(*all, (0..count).map(|from| vec![from as u8]).collect::<Vec<_>>());
            assert_eq!(*entropy, seen[0].3);
        }
    }
}

#[test]
fn a_barrier_is_released_at_the_latest_moment_on_each_members_clock() {
    // Member i's clock is i seconds ahead of member 0's.
    let ahead = |world: &ThreadMember| world.member() * 1_000_000_000;
    let releases = at_all(4, |world| {
        let (clock, stop) = (FakeClock::default(), stop());
        clock.sleep_until(Nanos(ahead(world)), &|| false);
        let offset = world.synchronize(&clock, &stop).unwrap();
        assert_eq!((offset.offset_ns, offset.bound_ns), (-(ahead(world) as i64), Nanos(0)));
        let mut releases = Vec::new();
        for step in 0..50 {
            // Another member is the last in each step.
            let own = if step % 4 == world.member() { 900 } else { 100 };
            world.arrive(barrier(step), clock.now() + Nanos(own));
            releases.push(wait_for_release(world, &stop).unwrap().0 - ahead(world));
        }
        // A member that leaves would end the waits of members that still look for the last release.
        world.agree(Ok(()), &stop).unwrap();
        releases
    });
    assert_eq!(releases, vec![vec![900; 50]; 4]);
}

#[test]
fn different_barriers_at_two_members_are_an_error_that_names_both() {
    let ended = at_all(2, |world| {
        world.arrive(barrier(7 + world.member()), Nanos(0));
        wait_for_release(world, &stop()).unwrap_err()
    });
    assert_eq!(ended[0], ended[1]);
    let words = ended[0].to_string();
    assert!(
        words.contains("epoch 1 (train), step 7") && words.contains("epoch 1 (train), step 8"),
        "{words}"
    );
}

#[test]
fn all_members_learn_which_one_cannot_continue_and_why() {
    for cause in [Cause::Stopped, Cause::Failed("the disk is full".to_owned())] {
        let ended = at_all(4, |world| {
            let here = if world.member() == 2 { Err(cause.clone()) } else { Ok(()) };
            (world.agree(here, &stop()).unwrap_err(), world.broadcast(&mut Vec::new(), &stop()).unwrap_err())
        });
        let node = "host2".to_owned();
        let expected = EarlyEnd { member: 2, node, cause, place: None };
        assert!(ended.iter().all(|(first, later)| *first == expected && *later == expected), "{ended:?}");
    }
}

#[test]
fn a_stop_request_ends_a_wait_and_is_announced_to_all() {
    let ended = at_all(3, |world| {
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
    assert_eq!(ended, vec![Err(EarlyEnd { member: 1, node, cause, place: None }); 3]);
}

#[test]
fn different_collective_calls_are_an_error_that_names_both() {
    let ended = at_all(2, |world| match world.member() {
        0 => world.agree(Ok(()), &stop()),
        _ => world.broadcast(&mut Vec::new(), &stop()),
    });
    assert_eq!(ended[0], ended[1]);
    assert!(
        matches!(&ended[0], Err(EarlyEnd { cause: Cause::Failed(why), .. }) if why.contains("while others"))
    );
}

#[test]
fn a_member_that_leaves_or_does_not_respond_ends_every_wait() {
    type Wait = fn(&ThreadMember, &Stop) -> Result<(), EarlyEnd>;
    let waits: [Wait; 5] = [
        |world, stop| wait_for_release(world, stop).map(drop),
        |world, stop| world.agree(Ok(()), stop),
        |world, stop| world.broadcast(&mut Vec::new(), stop),
        |world, stop| world.gather(&[], stop, &mut |_, _| {}),
        |world, stop| world.synchronize(&FakeClock::default(), stop).map(drop),
    ];
    for (wait, leaves) in waits.into_iter().flat_map(|wait| [(wait, true), (wait, false)]) {
        let mut worlds = members(2);
        let last = worlds.pop().unwrap();
        let kept = if leaves {
            drop(last);
            None
        } else {
            Some(last)
        };
        let stop = Stop::default().with_patience(Some(Nanos(100_000_000)));
        let EarlyEnd { member, cause, .. } = wait(&worlds[0], &stop).unwrap_err();
        let expected = if leaves { cause == Cause::Left } else { matches!(cause, Cause::Silent(_)) };
        assert!(member == 1 && expected, "{cause:?}");
        drop(kept);
    }
}

#[test]
fn background_calls_are_independent_of_the_others() {
    let sums = at_all(3, |world| {
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                (0..20)
                    .map(|_| gather_to_all(world.background(), &[1], &stop()).unwrap().len())
                    .sum::<usize>()
            });
            let own: usize = (0..20).map(|_| gather_to_all(world, &[1], &stop()).unwrap().len()).sum();
            let beside = beside.join().unwrap();
            world.agree(Ok(()), &stop()).unwrap();
            (own, beside)
        })
    });
    assert_eq!(sums, [(60, 60); 3]);
}

#[test]
fn member_0_knows_the_progress_of_the_others() {
    let seen = at_all(3, |world| {
        world.publish(Progress { samples: 10 * (1 + world.member()), ..Progress::default() });
        world.agree(Ok(()), &stop()).unwrap();
        let samples = world.progress().samples;
        world.agree(Ok(()), &stop()).unwrap();
        samples
    });
    assert_eq!(seen, [50, 0, 0]);
}
