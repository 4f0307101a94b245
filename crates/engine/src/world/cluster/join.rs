//! How a process that a launcher started becomes a member: it loads the MPI library, compares versions with all others,
//! and connects to member 0. If one process cannot, none does, and all know why.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use model::units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::super::launcher::Launch;
use super::super::mpi::{self, Mpi, MpiError};
use super::super::{DistributionError, HostIdentity, Topology};
use super::over_mpi::MpiStreams;
use super::streams::{ByteStreams, TcpStreams};
use super::{Cluster, interfaces, lock};
use crate::meter;
use crate::stop::Stop;

/// Bytes of a record in the first exchanges. Records of all processes have the same length.
const RECORD_BYTES: usize = 4096;
/// The longest text of an error in a record.
const PROBLEM_BYTES: usize = 2000;
/// How long an attempt to connect to one address takes at most, and all connections together.
const CONNECTING: Duration = Duration::from_secs(3);
const CONNECTED: Duration = Duration::from_secs(60);
/// How long joining takes at most: the stall timeout, but at least this long, because a library needs seconds to start;
/// without a stall timeout, this long.
const SHORTEST_JOINING: Nanos = Nanos(10_000_000_000);
const JOINING: Nanos = Nanos(300_000_000_000);

/// How the members of a run exchange messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    #[default]
    Tcp,
    /// For networks without IP. Its waits poll.
    Mpi,
}

/// How to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    pub launch: Launch,
    /// Which network member 0 is reached on: an interface, an address or a network.
    pub interface: Option<String>,
    pub transport: Transport,
    /// The MPI library, if it is not the one that the system finds.
    pub library: Option<String>,
    /// Version of the program, and this host.
    pub version: String,
    pub host: HostIdentity,
    /// Ranks of each process, if they are not distributed evenly.
    pub shares: Option<Vec<u64>>,
    /// The stall timeout.
    pub patience: Option<Nanos>,
}

/// Why this process is not a member of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    #[error(transparent)]
    Mpi(#[from] MpiError),
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error("{0}")]
    Here(String),
    #[error("process {member} on {node}: {problem}")]
    Elsewhere { member: u64, node: String, problem: String },
    #[error(
        "process 0 on {node} is feedline {version}, but process {other} on {other_node} is feedline {other_version}; \
         install the same version on every host"
    )]
    OtherVersion { node: String, version: String, other: u64, other_node: String, other_version: String },
    #[error(
        "process 0 on {node} and process {other} on {other_node} were started with different values of {flag}; \
         give all processes the same"
    )]
    OtherFlag { flag: &'static str, node: String, other: u64, other_node: String },
}

/// What a process tells all others first.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MemberRecord {
    version: String,
    host: HostIdentity,
    /// Where process 0 listens.
    addresses: Vec<SocketAddr>,
    /// Distinguishes connections of this job from others.
    token: u64,
    /// The ranks of each process, if they were given; and how messages are to be carried.
    shares: Option<Vec<u64>>,
    transport: Transport,
    problem: Option<String>,
}

/// Joins the run of the job. It returns when all processes of the job have joined, or none can.
pub fn join(options: &JoinOptions, stop: &Stop) -> Result<Cluster, JoinError> {
    let deadline = JoinDeadline::start(options.patience, stop);
    let mpi = mpi::start(&options.launch, options.library.as_deref())?;
    let (member, members) = (mpi.rank()?, mpi.size()?);
    let listening = (member == 0 && options.transport == Transport::Tcp)
        .then(|| ConnectionListener::open(options.interface.as_deref()))
        .transpose();
    let (listening, problem) = match listening {
        Ok(listening) => (listening, None),
        Err(problem) => (None, Some(problem)),
    };
    let record = MemberRecord {
        version: options.version.clone(),
        host: options.host.clone(),
        addresses: listening.as_ref().map(|listening| listening.addresses.clone()).unwrap_or_default(),
        token: meter::entropy(),
        shares: options.shares.clone(),
        transport: options.transport,
        problem,
    };
    let records = exchange(mpi, member, members, &record)?;
    let topology = compare(&records, member)?;
    let topology =
        options.shares.clone().map_or(Ok(topology.clone()), |shares| topology.with_shares(shares))?;
    let streams: Box<dyn ByteStreams> = match options.transport {
        Transport::Mpi => Box::new(MpiStreams::new(mpi, member, members).map_err(here)?),
        Transport::Tcp => connect(mpi, member, &records, listening)?,
    };
    let cluster = Cluster::new(topology, member, streams, Some(mpi), stop).map_err(here)?;
    lock(&cluster.shared().state).patience = options.patience;
    drop(deadline);
    Ok(cluster)
}

fn here(cause: impl std::fmt::Display) -> JoinError {
    JoinError::Here(format!("cannot set up the communication with other processes: {cause}"))
}

/// The records of all processes.
fn exchange(
    mpi: &Mpi,
    member: u64,
    members: u64,
    record: &MemberRecord,
) -> Result<Vec<MemberRecord>, JoinError> {
    let mut own = serde_json::to_vec(record).map_err(here)?;
    if own.len() > RECORD_BYTES {
        let (addresses, problem) = (Vec::new(), Some("its record is too long".to_owned()));
        own = serde_json::to_vec(&MemberRecord { addresses, problem, ..record.clone() }).map_err(here)?;
    }
    own.resize(RECORD_BYTES, b' ');
    let all = mpi.gather_to_all(&own, members)?;
    let records = all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<Vec<_>, _>>();
    let records: Vec<MemberRecord> = records.map_err(here)?;
    check(&records, member)?;
    Ok(records)
}

/// The first problem that a process has told.
fn check(records: &[MemberRecord], own: u64) -> Result<(), JoinError> {
    let told =
        (0..).zip(records).find_map(|(member, record)| Some((member, record, record.problem.clone()?)));
    match told {
        None => Ok(()),
        Some((member, _, problem)) if member == own => Err(JoinError::Here(problem)),
        Some((member, record, problem)) => {
            Err(JoinError::Elsewhere { member, node: record.host.name.clone(), problem })
        }
    }
}

/// The hosts of all processes, which must be of one version.
fn compare(records: &[MemberRecord], member: u64) -> Result<Topology, JoinError> {
    check(records, member)?;
    let first = &records[0];
    if let Some((other, record)) = (0..).zip(records).find(|(_, record)| record.version != first.version) {
        return Err(JoinError::OtherVersion {
            node: first.host.name.clone(),
            version: first.version.clone(),
            other,
            other_node: record.host.name.clone(),
            other_version: record.version.clone(),
        });
    }
    let unlike = |flag: &'static str, is_same: &dyn Fn(&MemberRecord) -> bool| {
        let (other, record) = (0..).zip(records).find(|(_, record)| !is_same(record))?;
        let (node, other_node) = (first.host.name.clone(), record.host.name.clone());
        Some(JoinError::OtherFlag { flag, node, other, other_node })
    };
    let unlike = unlike("--ranks-per-process", &|record| record.shares == first.shares)
        .or_else(|| unlike("--agreement", &|record| record.transport == first.transport));
    if let Some(error) = unlike {
        return Err(error);
    }
    let hosts: Vec<HostIdentity> = records.iter().map(|record| record.host.clone()).collect();
    Ok(Topology::new(&hosts))
}

/// Connects this process with member 0, or member 0 with all others.
fn connect(
    mpi: &Mpi,
    member: u64,
    records: &[MemberRecord],
    listening: Option<ConnectionListener>,
) -> Result<Box<dyn ByteStreams>, JoinError> {
    let (members, token) = (records.len() as u64, records[0].token);
    let accepting = listening.map(|listening| listening.accept(members, token)).transpose().map_err(here)?;
    let connected = (accepting.is_none()).then(|| connect_to_first(member, records)).transpose();
    let (connected, problem) = match connected {
        Ok(connected) => (connected, None),
        Err(problem) => (None, Some(problem)),
    };
    let record = MemberRecord { addresses: Vec::new(), problem, ..records[member as usize].clone() };
    let told = exchange(mpi, member, members, &record);
    let mut streams: Vec<(u64, TcpStream)> = Vec::new();
    if let Some(accepting) = accepting {
        if told.is_err() {
            accepting.over.store(true, Ordering::Relaxed);
        }
        let accepted = accepting.thread.join().map_err(|_| here("a thread panicked"))?;
        told?;
        streams = accepted.map_err(here)?;
    } else {
        told?;
        streams.extend(connected.map(|stream| (0, stream)));
    }
    // The address of member 0, as all members see it.
    let address = |(_, stream): &(u64, TcpStream)| match member {
        0 => stream.local_addr().ok(),
        _ => stream.peer_addr().ok(),
    };
    let network = streams.first().and_then(address);
    let network = network.map_or("none".to_owned(), |address| address.ip().to_canonical().to_string());
    Ok(Box::new(TcpStreams::new(network, streams).map_err(here)?))
}

/// Connects to member 0 at the first of its addresses that responds.
fn connect_to_first(member: u64, records: &[MemberRecord]) -> Result<TcpStream, String> {
    let (first, own) = (&records[0], &records[member as usize]);
    let port = first.addresses.first().map_or(0, SocketAddr::port);
    // On one host, the loopback interface is faster and not subject to a firewall.
    let local = (own.host == first.host).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let mut failures = Vec::new();
    for address in local.into_iter().chain(first.addresses.iter().copied()) {
        match shake_hands(address, first.token, member) {
            Ok(stream) => return Ok(stream),
            Err(cause) => failures.push(format!("{address}: {cause}")),
        }
    }
    let mut problem = format!(
        "cannot connect to process 0 on {} ({}); open the network between the hosts, choose another with --interface, \
         or use --agreement mpi",
        first.host.name,
        failures.join("; ")
    );
    problem.truncate(PROBLEM_BYTES);
    Err(problem)
}

fn shake_hands(address: SocketAddr, token: u64, member: u64) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECTING)?;
    stream.set_read_timeout(Some(CONNECTING))?;
    stream.write_all(&[token.to_le_bytes(), member.to_le_bytes()].concat())?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    if u64::from_le_bytes(answer) != token {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "another program listens there"));
    }
    Ok(stream)
}

/// Where member 0 waits for connections.
#[derive(Debug)]
struct ConnectionListener {
    listener: TcpListener,
    addresses: Vec<SocketAddr>,
}

/// The thread that takes the connections.
struct Accepting {
    thread: JoinHandle<std::io::Result<Vec<(u64, TcpStream)>>>,
    /// Ends it early.
    over: Arc<AtomicBool>,
}

impl ConnectionListener {
    fn open(interface: Option<&str>) -> Result<ConnectionListener, String> {
        let addresses = interfaces::addresses(interface)?;
        let everywhere = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        // The first serves both versions of IP, where there are both. If the user selects one address, only that.
        let bound = match (interface, &addresses[..]) {
            (Some(_), [one]) => TcpListener::bind((*one, 0)),
            _ => TcpListener::bind((everywhere[0], 0)).or_else(|_| TcpListener::bind((everywhere[1], 0))),
        };
        let listener = bound.map_err(|cause| format!("cannot listen for connections: {cause}"))?;
        let port = listener.local_addr().map_err(|cause| cause.to_string())?.port();
        let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        Ok(ConnectionListener { listener, addresses })
    }

    /// Takes one connection of every other member in a thread of its own.
    fn accept(self, members: u64, token: u64) -> std::io::Result<Accepting> {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        self.listener.set_nonblocking(true)?;
        let work = move || {
            let (begin, mut streams) = (meter::Monotonic::new(), Vec::<(u64, TcpStream)>::new());
            while (streams.len() as u64) < members - 1 {
                // Relaxed: a late look takes a connection that is not used.
                let late = store::Now::now(&begin).0 > CONNECTED.as_nanos() as u64;
                if late || ends.load(Ordering::Relaxed) {
                    return Err(ErrorKind::TimedOut.into());
                }
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        let known = greet(stream, token).ok().flatten();
                        let is_new = |member: u64| streams.iter().all(|(known, _)| *known != member);
                        streams.extend(known.filter(|(member, _)| *member < members && is_new(*member)));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        meter::pause(Duration::from_millis(1));
                    }
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(streams)
        };
        let thread = std::thread::Builder::new().name("connections".to_owned()).spawn(work)?;
        Ok(Accepting { thread, over })
    }
}

/// The member that connected; `None` if it is not of this job.
fn greet(mut stream: TcpStream, token: u64) -> std::io::Result<Option<(u64, TcpStream)>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CONNECTING))?;
    let mut greeting = [0; 16];
    stream.read_exact(&mut greeting)?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    if number(&greeting[..8]) != token {
        return Ok(None);
    }
    stream.write_all(&token.to_le_bytes())?;
    Ok(Some((number(&greeting[8..]), stream)))
}

/// Ends the process if joining takes too long: calls of an MPI library have no timeout.
struct JoinDeadline {
    _done: Sender<()>,
}

impl JoinDeadline {
    fn start(patience: Option<Nanos>, stop: &Stop) -> JoinDeadline {
        let limit = patience.map_or(JOINING, |patience| patience.max(SHORTEST_JOINING));
        let ((done, over), stop) = (channel::<()>(), stop.clone());
        let watch = move || {
            if over.recv_timeout(Duration::from_nanos(limit.0)) == Err(RecvTimeoutError::Timeout) {
                stop.abandon(&format!(
                    "the processes of the job did not all start within {limit}; check that all hosts are reachable, or \
                     raise --stall-timeout"
                ));
            }
        };
        // Without the thread, only a job that hangs while it starts is not ended.
        let _ = std::thread::Builder::new().name("joining".to_owned()).spawn(watch);
        JoinDeadline { _done: done }
    }
}
