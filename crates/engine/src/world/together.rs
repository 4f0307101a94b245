//! Work that each member does by itself between collective calls: all members learn how it ended at each of them, and
//! none continues for long after another one has ended.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cause, EarlyEnd, Exchange, World, gather_to_all};
use crate::stop::Stop;

/// How long the thread that waits for other members waits at a time.
const PERIOD: Duration = Duration::from_millis(50);

/// Waits until all members have done a piece of work. If it failed at one of them, that member returns its own error,
/// and the others return an error that names it.
pub(crate) fn agreed<T, E>(world: &dyn Exchange, here: Result<T, E>, stop: &Stop) -> Result<T, E>
where
    E: Display + From<EarlyEnd>,
{
    let ready = here.as_ref().map(|_| ()).map_err(|error| cause(error, stop));
    let agreed = world.agree(ready, stop);
    let value = here?;
    agreed.map(|()| value).map_err(E::from)
}

/// Why this member ends, for the others.
pub(crate) fn cause(error: &impl Display, stop: &Stop) -> Cause {
    if stop.wished() { Cause::Stopped } else { Cause::Failed(error.to_string()) }
}

/// Member 0's value at all members; `decide` is called there only.
pub fn decided<T, E>(world: &dyn Exchange, stop: &Stop, decide: impl FnOnce() -> Result<T, E>) -> Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Display + From<EarlyEnd>,
{
    let here = if world.member() == 0 { decide().map(Some) } else { Ok(None) };
    let own = agreed(world, here, stop)?;
    let mut bytes = own.as_ref().and_then(|own| serde_json::to_vec(own).ok()).unwrap_or_default();
    world.broadcast(&mut bytes, stop)?;
    match own {
        Some(own) => Ok(own),
        None => Ok(read(world, 0, &bytes)?),
    }
}

/// The values of all members, at all members, in order. For small values.
pub(crate) fn shared<T>(world: &dyn Exchange, value: &T, stop: &Stop) -> Result<Vec<T>, EarlyEnd>
where
    T: Serialize + DeserializeOwned,
{
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let all = gather_to_all(world, &bytes, stop)?;
    (0..).zip(&all).map(|(member, bytes)| read(world, member, bytes)).collect()
}

/// A value that a member sent.
fn read<T: DeserializeOwned>(world: &dyn Exchange, member: u64, bytes: &[u8]) -> Result<T, EarlyEnd> {
    serde_json::from_slice(bytes).map_err(|error| {
        let cause = Cause::Failed(format!("sent a message that cannot be read: {error}"));
        EarlyEnd::new(world.topology(), member, cause)
    })
}

/// Does work while a thread waits for the other members; `end` is called if one of them ends meanwhile, or if a stop is
/// requested here, which the others then learn.
pub(crate) fn alongside<T>(
    world: &dyn World,
    stop: &Stop,
    end: &(dyn Fn(EarlyEnd) + Sync),
    work: impl FnOnce() -> T,
) -> T {
    if world.members() == 1 {
        return work();
    }
    let over = &AtomicBool::new(false);
    let follow = || {
        // Relaxed: `wake` orders it, and one extra iteration is harmless.
        while !over.load(Ordering::Relaxed) {
            if let Err(ended) = world.wait(stop, PERIOD) {
                return end(ended);
            }
        }
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("members".to_owned());
        if let Err(cause) = builder.spawn_scoped(scope, follow) {
            let cause =
                Cause::Failed(format!("cannot start the thread that waits for other members: {cause}"));
            world.announce(cause.clone());
            end(EarlyEnd::new(world.topology(), world.member(), cause));
        }
        // The thread must end, even if the work panics.
        let value = catch_unwind(AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        world.wake();
        value.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
