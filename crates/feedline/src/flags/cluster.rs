//! The flags of commands that several processes share, which a launcher such as mpirun starts.

use clap::Args;
use clap::builder::PossibleValuesParser;
use engine::world::cluster::Transport;

/// The values of `--agreement`.
const AGREEMENTS: [&str; 2] = ["tcp", "mpi"];

/// How the processes of a command communicate.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NetworkFlags {
    /// Network between the processes that mpirun or srun starts: an interface, an address or a subnet, such as ib0 or
    /// 10.1.0.0/16 [default: one that process 0 shares with all others]
    #[arg(long, value_name = "NET")]
    pub interface: Option<String>,
    /// How these processes agree on steps: tcp (connections between them) or mpi (for networks without IP; uses more
    /// CPU time); see 'feedline docs cluster' [default: tcp]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(AGREEMENTS), hide_possible_values = true)]
    pub agreement: Option<String>,
    /// MPI library to load [default: the one of the launcher, libmpi.so.40, libmpi.so.12 or libmpi_abi.so.1, where the
    /// system finds it, such as in LD_LIBRARY_PATH]
    #[arg(long, value_name = "FILE")]
    pub mpi_library: Option<String>,
}

/// The same, for commands whose ranks are distributed over the processes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterFlags {
    /// Number of emulated accelerators of each process that mpirun or srun starts, such as 5,3 [default: even shares]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub ranks_per_process: Vec<u64>,
    #[command(flatten)]
    pub network: NetworkFlags,
}

/// What the flags of a command request of the processes that share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterRequest<'a> {
    pub network: &'a NetworkFlags,
    /// Empty: even shares.
    shares: &'a [u64],
}

impl ClusterRequest<'_> {
    /// The ranks of each process, if they were given.
    pub(crate) fn shares(&self) -> Option<Vec<u64>> {
        (!self.shares.is_empty()).then(|| self.shares.to_vec())
    }
}

impl NetworkFlags {
    pub(crate) fn transport(&self) -> Transport {
        match self.agreement.as_deref() {
            Some("mpi") => Transport::Mpi,
            _ => Transport::Tcp,
        }
    }

    pub(crate) fn request(&self) -> ClusterRequest<'_> {
        ClusterRequest { network: self, shares: &[] }
    }
}

impl ClusterFlags {
    pub(crate) fn request(&self) -> ClusterRequest<'_> {
        ClusterRequest { network: &self.network, shares: &self.ranks_per_process }
    }

    /// The number of ranks: as given, else the sum of the shares. `None`: one for each of several processes, or the
    /// workload's.
    pub(crate) fn ranks(&self, given: Option<u64>) -> Option<u64> {
        let sum = self.ranks_per_process.iter().copied().fold(0, u64::saturating_add);
        given.or((sum > 0).then_some(sum))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::Command;
    use crate::flags::Cli;

    fn flags(args: &[&str]) -> ClusterFlags {
        let cli = Cli::try_parse_from([&["feedline", "run", "demo"], args].concat()).unwrap();
        let Command::Run(flags) = cli.command else { panic!("not a run") };
        flags.cluster
    }

    #[test]
    fn ranks_are_those_given_else_the_sum_of_shares() {
        let (none, shares) = (flags(&[]), flags(&["--ranks-per-process", "5,3"]));
        assert_eq!((none.ranks(None), none.ranks(Some(48))), (None, Some(48)));
        assert_eq!((shares.ranks(None), shares.ranks(Some(9))), (Some(8), Some(9)));
        assert_eq!((none.request().shares(), shares.request().shares()), (None, Some(vec![5, 3])));
        assert_eq!(
            (none.network.transport(), flags(&["--agreement", "mpi"]).network.transport()),
            (Transport::Tcp, Transport::Mpi)
        );
    }
}
