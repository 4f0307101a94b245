//! What the members of a run share before it begins, so that all of them compute the same plan; whether all of them
//! can begin; and what a study decides, so that all of them do the same runs. A run in one process has one member, for
//! which none of this waits.

use std::error::Error as _;

use engine::host::Host;
use engine::world::{Cause, EarlyEnd, Topology, entropy, gather_to_all};
use engine::{CacheError, Stop, World};
use model::order::mix;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, MemberFailure};
use crate::likeness::MemberDifference;

/// What a plan depends on, apart from the workload. All members have the same values, except for their own host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedFacts {
    /// Memory and cores of the smallest host. The plan must fit on every host.
    pub(crate) memory_bytes: u64,
    pub(crate) cores: u64,
    /// Seeds everything for which the workload sets no seed.
    pub(crate) entropy: u64,
    /// Which ranks run on which host.
    pub(crate) topology: Topology,
    /// The host of this member.
    pub(crate) node: u64,
}

impl SharedFacts {
    /// Gathers the host facts of all members; member 0 draws the entropy.
    pub(crate) fn share(host: &Host, world: &dyn World, stop: &Stop) -> Result<SharedFacts, Error> {
        let own = [host.memory_bytes, host.cores].map(u64::to_le_bytes).concat();
        let all = gather_to_all(world, &own, stop)?;
        let smallest = |fact: usize| {
            let facts = all.iter().filter_map(|bytes| bytes.chunks_exact(8).nth(fact)?.try_into().ok());
            facts.map(u64::from_le_bytes).min().unwrap_or_default()
        };
        let entropy = entropy(world, stop)?;
        let (topology, node) = (world.topology().clone(), world.node());
        Ok(SharedFacts { memory_bytes: smallest(0), cores: smallest(1), entropy, topology, node })
    }

    /// The same facts for another run of a study, which draws other numbers.
    pub(crate) fn for_run(&self, number: u64) -> SharedFacts {
        SharedFacts { entropy: mix(self.entropy, number), ..self.clone() }
    }
}

/// What the first member that has something to report has reported.
struct MemberReport<T> {
    member: u64,
    what: T,
    /// Whether all members report the same.
    by_all: bool,
}

/// The report of the first member that has one, at all members. Only this one is sent to the others.
fn first_report<T: Serialize + DeserializeOwned>(
    here: Option<&T>,
    world: &dyn World,
    stop: &Stop,
) -> Result<Option<MemberReport<T>>, Error> {
    let mut first: Option<(u64, Vec<u8>)> = None;
    let (own, mut same) = (here.map(encode).unwrap_or_default(), 0);
    world.gather(&own, stop, &mut |member, bytes| {
        if !bytes.is_empty() {
            let (_, known) = first.get_or_insert_with(|| (member, bytes.to_vec()));
            same += u64::from(known == bytes);
        }
    })?;
    let by_all = same == world.members();
    let mut packed = encode(&first.map(|(member, bytes)| (member, bytes, by_all)));
    world.broadcast(&mut packed, stop)?;
    let Some((member, bytes, by_all)) = decode::<Option<(u64, Vec<u8>, bool)>>(&packed, world, 0)? else {
        return Ok(None);
    };
    Ok(Some(MemberReport { member, what: decode(&bytes, world, member)?, by_all }))
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // The documents that are sent have string keys, which is all that JSON requires.
    serde_json::to_vec(value).unwrap_or_default()
}

/// What a member has sent. If it cannot be read, the run ends, because the others do not know it.
fn decode<T: DeserializeOwned>(bytes: &[u8], world: &dyn World, from: u64) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        let cause =
            Cause::Failed(format!("cannot read what {} has sent: {error}", world.topology().shown(from)));
        world.announce(cause.clone());
        Error::from(EarlyEnd::new(world.topology(), world.member(), cause))
    })
}

/// How a front end's error reaches the other members.
pub trait SharedFailure: From<Error> {
    /// What it says, and the kind of error that it is.
    fn described(&self) -> (ErrorKind, String);
    /// The end of the run that all members know already, if that is the error.
    fn known_to_all(&self) -> Option<&EarlyEnd>;
}

impl SharedFailure for Error {
    fn described(&self) -> (ErrorKind, String) {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        (self.kind(), text)
    }

    fn known_to_all(&self) -> Option<&EarlyEnd> {
        match self {
            Error::Member(ended) => Some(ended),
            Error::During { source, .. } => source.known_to_all(),
            _ => None,
        }
    }
}

/// Waits until all members have done a part of the work that does not involve the others. If it fails at one of them,
/// all return the same error, which names that member; if it fails at all of them for the same reason, each returns its
/// own. The members can continue after an error.
pub fn agree<T, F: SharedFailure>(here: Result<T, F>, world: &dyn World, stop: &Stop) -> Result<T, F> {
    let known = here.as_ref().err().is_some_and(|error| error.known_to_all().is_some());
    if world.members() == 1 || known {
        return here;
    }
    let failure = here.as_ref().err().map(SharedFailure::described);
    match first_report(failure.as_ref(), world, stop)? {
        None => here,
        Some(report) if report.by_all => here,
        Some(MemberReport { member, what: (kind, message), .. }) => {
            let process = world.topology().shown(member);
            Err(Error::At(Box::new(MemberFailure { process, kind, message })).into())
        }
    }
}

/// An error that ended this member's work, with the name of the member if there are others: they know the error as this
/// member's, and any of them may print it.
pub(crate) fn named(error: Error, world: &dyn World) -> Error {
    let of_another = matches!(error, Error::Member(_) | Error::Cache(CacheError::Elsewhere(_)));
    if world.members() == 1 || of_another {
        return error;
    }
    let (kind, message) = error.described();
    Error::At(Box::new(MemberFailure { process: world.topology().shown(world.member()), kind, message }))
}

/// The value that member 0 has, at all members.
pub fn of_member_0<T: Serialize + DeserializeOwned>(
    own: T,
    world: &dyn World,
    stop: &Stop,
) -> Result<T, Error> {
    if world.members() == 1 {
        return Ok(own);
    }
    let mut bytes = encode(&own);
    world.broadcast(&mut bytes, stop)?;
    decode(&bytes, world, 0)
}

/// Compares a document of every member with that of member 0. `differ` describes the difference between member 0's,
/// which is given first, and this member's.
pub(crate) fn compare<D: Serialize + DeserializeOwned>(
    own: &D,
    world: &dyn World,
    stop: &Stop,
    differ: impl FnOnce(&D, &D) -> Option<MemberDifference>,
) -> Result<(), Error> {
    if world.members() == 1 {
        return Ok(());
    }
    let mut bytes = encode(own);
    world.broadcast(&mut bytes, stop)?;
    let first: D = decode(&bytes, world, 0)?;
    let difference = differ(&first, own);
    match first_report(difference.as_ref(), world, stop)? {
        None => Ok(()),
        Some(MemberReport { member, what, .. }) => {
            let [first, other] = [0, member].map(|member| world.topology().shown(member));
            Err(Error::Unlike(Box::new((first, other, what))))
        }
    }
}
