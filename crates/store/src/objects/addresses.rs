//! The addresses of a store's servers. They are looked up when the store is opened, and again when a connection could
//! not be made or some time has passed. A lookup can take seconds, so a thread of its own does it, and connections are
//! made to the old addresses meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::endpoint::Endpoint;
use crate::StoreError;

/// Seconds after which addresses are looked up again when a connection is made: name services of stores give new
/// addresses after a minute or less.
const OLD: u64 = 60;
/// The same after a connection could not be made.
const OLD_AFTER_FAILURE: u64 = 1;

/// Finds the addresses of a server.
type LookUp = fn(&Endpoint) -> Result<Vec<SocketAddr>, StoreError>;

#[derive(Debug)]
pub(crate) struct Addresses {
    endpoints: Vec<Endpoint>,
    /// Those of each endpoint, or of its proxy; never empty.
    current: RwLock<Vec<Vec<SocketAddr>>>,
    /// When they were last looked up, in seconds.
    looked_up: AtomicU64,
    is_looking: AtomicBool,
    look_up: LookUp,
}

impl Addresses {
    /// Looks all addresses up.
    pub(crate) fn new(endpoints: &[Endpoint], now: u64) -> Result<Addresses, StoreError> {
        Addresses::by(endpoints, now, Endpoint::addresses)
    }

    fn by(endpoints: &[Endpoint], now: u64, look_up: LookUp) -> Result<Addresses, StoreError> {
        let current = endpoints.iter().map(look_up).collect::<Result<_, _>>()?;
        Ok(Addresses {
            endpoints: endpoints.to_vec(),
            current: RwLock::new(current),
            looked_up: AtomicU64::new(now),
            is_looking: AtomicBool::new(false),
            look_up,
        })
    }

    /// The same address list for every endpoint.
    #[cfg(test)]
    pub(crate) fn fixed(endpoints: &[Endpoint], addresses: &[SocketAddr]) -> Addresses {
        let current = endpoints.iter().map(|_| addresses.to_vec()).collect();
        let all = Addresses::by(&[], 0, Endpoint::addresses).unwrap();
        Addresses { current: RwLock::new(current), ..all }
    }

    /// The address for a connection; connections are distributed over all of them.
    pub(crate) fn get(self: &Arc<Self>, endpoint: usize, connection: usize, now: u64) -> SocketAddr {
        self.refresh(now, OLD);
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let all = &current[endpoint];
        all[connection % all.len()]
    }

    /// A connection could not be made; the server may have moved.
    pub(crate) fn failed(self: &Arc<Self>, now: u64) {
        self.refresh(now, OLD_AFTER_FAILURE);
    }

    /// Begins to look up addresses that are as old as this.
    fn refresh(self: &Arc<Self>, now: u64, old: u64) {
        // Relaxed: the list has a lock of its own, and a second lookup at the same time would do no harm.
        if now.saturating_sub(self.looked_up.load(Ordering::Relaxed)) < old
            || !self.endpoints.iter().any(Endpoint::has_name)
            || self.is_looking.swap(true, Ordering::Relaxed)
        {
            return;
        }
        self.looked_up.store(now, Ordering::Relaxed);
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("look-up".to_owned());
        if thread.spawn(move || own.look_up_all()).is_err() {
            self.is_looking.store(false, Ordering::Relaxed);
        }
    }

    fn look_up_all(&self) {
        for (number, endpoint) in self.endpoints.iter().enumerate() {
            // A name that cannot be looked up keeps its addresses: the name service may be what fails.
            if let Ok(found) = (self.look_up)(endpoint) {
                self.current.write().unwrap_or_else(PoisonError::into_inner)[number] = found;
            }
        }
        self.is_looking.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use model::objects::{ObjectOptions, ObjectPlace, Service};

    use super::*;
    use crate::objects::endpoint::endpoints;

    fn servers(url: &str) -> Vec<Endpoint> {
        let options = ObjectOptions { endpoints: vec![url.to_owned()], ..ObjectOptions::default() };
        endpoints(&ObjectPlace::parse(Service::S3, "b"), &options).unwrap()
    }

    static LOOKUPS: AtomicU64 = AtomicU64::new(0);

    /// Another address at every lookup, and an error at the third.
    fn moving(_: &Endpoint) -> Result<Vec<SocketAddr>, StoreError> {
        let number = LOOKUPS.fetch_add(1, Ordering::SeqCst) as u8;
        if number == 2 {
            Err(StoreError::GivenUp)
        } else {
            Ok(vec![SocketAddr::from(([10, 0, 0, number], 1))])
        }
    }

    #[test]
    fn addresses_are_looked_up_again_after_a_failure_and_when_they_are_old() {
        let addresses = Arc::new(Addresses::by(&servers("http://s3.lan:1"), 1000, moving).unwrap());
        let last = |now| addresses.get(0, 0, now).to_string();
        let until = |expected: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !expected() || addresses.is_looking.load(Ordering::SeqCst) {
                assert!(begin.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!((last(1000), last(1059)), ("10.0.0.0:1".to_owned(), "10.0.0.0:1".to_owned()));
        addresses.failed(1000);
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1, "not twice in a second");
        addresses.failed(1001);
        until(&|| last(1001) == "10.0.0.1:1");
        last(1061);
        until(&|| LOOKUPS.load(Ordering::SeqCst) == 3);
        assert_eq!(last(1062), "10.0.0.1:1", "a failed lookup changes nothing");
        addresses.failed(1063);
        until(&|| last(1063) == "10.0.0.3:1");
        // An address is no name.
        let fixed = Arc::new(Addresses::by(&servers("http://10.1.1.1:1"), 0, moving).unwrap());
        fixed.failed(5000);
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 5);
    }
}
