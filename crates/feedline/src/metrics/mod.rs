//! Live figures for collectors: `--metrics` serves them over HTTP, `--metrics-file` writes them to a file. Process 0
//! has the figures of all processes. A thread copies them from the counters of the work several times a second; the
//! server and the file only use that copy, so that no reader of metrics can slow the work down.

mod figures;
mod file;
mod server;

use std::net::{TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use engine::meter::Monotonic;
use engine::{Detail, Stop, World, meter};
use model::ledger::Ledger;
use model::units::Nanos;
use session::{Activity, ObservedWork, Observer};
use store::Now;

use crate::commands::stop_on_signals;
use crate::exit::{CommandResult, Failure};
use crate::flags::metrics::MetricsFlags;
use crate::progress::beside;
use crate::report;
use figures::MetricsBoard;
use file::MetricsFile;
use server::MetricsServer;

/// How often the figures are copied from the counters of the work.
const PERIOD: Duration = Duration::from_millis(100);
/// How often a wait looks for a stop request.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// Where live figures go while a command runs; nowhere without flags, and in processes other than 0.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    board: Option<Arc<MetricsBoard>>,
    /// Serves until it is dropped.
    _server: Option<MetricsServer>,
    file: Option<MetricsFile>,
}

/// Runs a command while its figures are served and written, as the flags say.
pub(crate) fn serving(
    flags: &MetricsFlags,
    (command, quiet): (&'static str, bool),
    world: &dyn World,
    work: impl FnOnce(&Metrics) -> CommandResult,
) -> CommandResult {
    let metrics = match world.member() {
        0 => Metrics::start(flags, command, quiet)?,
        _ => Metrics::default(),
    };
    let ended = work(&metrics);
    metrics.finish();
    if let Some(span) = flags.metrics_linger.filter(|_| flags.metrics.is_some()) {
        linger(span, ended.is_ok(), world, &stop_on_signals()?);
    }
    ended
}

/// Serves the final figures for some time, or until the command is asked to stop. The other processes wait, because a
/// launcher ends all of them together.
fn linger(span: Nanos, is_ok: bool, world: &dyn World, stop: &Stop) {
    if world.members() > 1 && !is_ok {
        return;
    }
    let clock = Monotonic::new();
    while world.member() == 0 && clock.now() < span && !stop.wished() {
        meter::pause(LOOK_AROUND.min(Duration::from_nanos((span - clock.now()).0)));
    }
    // The result is complete, so an early end of another process changes nothing.
    let _ = world.agree(Ok(()), &Stop::default());
}

impl Metrics {
    /// Binds the address and writes the file for the first time, so that a mistake is found before the work begins.
    fn start(flags: &MetricsFlags, command: &'static str, quiet: bool) -> Result<Metrics, Failure> {
        let MetricsFlags { metrics, metrics_file, .. } = flags;
        if metrics.is_none() && metrics_file.is_none() {
            return Ok(Metrics::default());
        }
        let board = Arc::new(MetricsBoard::new(command));
        let listener = metrics.as_deref().map(listen).transpose()?;
        let file = metrics_file.as_deref().map(|path| MetricsFile::start(path, &board)).transpose()?;
        let server = match listener {
            Some((listener, asks_for_any)) => {
                let server = MetricsServer::start(listener, &board).map_err(|cause| cannot_serve(&cause))?;
                announce(&server, asks_for_any, quiet);
                Some(server)
            }
            None => None,
        };
        Ok(Metrics { board: Some(board), _server: server, file })
    }

    /// An observer that shows the work as `inner` does, and copies its figures.
    pub(crate) fn observer<'a>(&'a self, inner: &'a dyn Observer) -> MeteredObserver<'a> {
        MeteredObserver { inner, board: self.board.as_deref() }
    }

    pub(crate) fn set_workload(&self, name: &str) {
        if let Some(board) = &self.board {
            board.set_workload(name);
        }
    }

    pub(crate) fn set_plan(&self, digest: impl FnOnce() -> String) {
        if let Some(board) = &self.board {
            board.set_plan(&digest());
        }
    }

    /// All totals are final: they are written once more, and served from now on.
    fn finish(&self) {
        if let Some(board) = &self.board {
            board.finish();
        }
        if let Some(file) = &self.file {
            file.finish();
        }
    }
}

/// Binds an address that a user gave; also returns whether it leaves the port to the system.
fn listen(text: &str) -> Result<(TcpListener, bool), Failure> {
    let shown = report::printable(text);
    let remedy = "give an address and a port, such as 127.0.0.1:9184 or [::1]:9184";
    let addresses = text
        .to_socket_addrs()
        .map_err(|cause| Failure::usage(anyhow!("--metrics {shown}: {cause}; {remedy}")))?;
    let mut failure = None;
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok((listener, address.port() == 0)),
            Err(cause) => failure = Some(cause),
        }
    }
    let Some(cause) = failure else {
        return Err(Failure::usage(anyhow!("--metrics {shown}: it has no address; {remedy}")));
    };
    let remedy = match cause.kind() {
        std::io::ErrorKind::AddrInUse => "choose another port, or end the program that uses it",
        std::io::ErrorKind::PermissionDenied => "choose a port above 1023",
        _ => "choose an address of this host",
    };
    Err(Failure::refused(anyhow!("cannot serve metrics at {shown}: {cause}; {remedy}")))
}

fn cannot_serve(cause: &std::io::Error) -> Failure {
    Failure::refused(anyhow!("cannot serve metrics: {cause}; leave out --metrics"))
}

/// Prints the port that the system chose, and warns if other hosts can read the figures.
fn announce(server: &MetricsServer, chose_port: bool, quiet: bool) {
    let address = server.address();
    if chose_port {
        report::note(&format!("metrics at http://{address}/metrics"));
    }
    if !address.ip().is_loopback() && !quiet {
        let what = format!("every host that can reach {address} can read the figures of this run");
        report::warn(&what, "serve them at 127.0.0.1, unless that is intended");
    }
}

/// Copies figures beside another observer.
#[derive(Clone, Copy)]
pub(crate) struct MeteredObserver<'a> {
    inner: &'a dyn Observer,
    board: Option<&'a MetricsBoard>,
}

impl Observer for MeteredObserver<'_> {
    fn during(&self, goal: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        let Some(board) = self.board else { return self.inner.during(goal, shown, work) };
        // Created before the work starts, so that its first events are not lost.
        let stream = shown.events.listen(Detail::Milestones);
        board.begin(goal);
        let copy = |over: &AtomicBool| loop {
            // Acquire: pairs with the Release at the end of the work, so that the last copy is complete.
            let is_over = over.load(Ordering::Acquire);
            stream.drain().events.iter().for_each(|stamped| board.take(stamped.event));
            board.copy(goal, &shown);
            if is_over {
                return;
            }
            stream.wait(PERIOD);
        };
        beside("metrics", &mut || self.inner.during(goal, shown, work), copy);
        board.end();
    }

    fn measured(&self, ledger: &Ledger) {
        if let Some(board) = self.board {
            board.set_ledger(ledger);
        }
        self.inner.measured(ledger);
    }
}
