//! Hosts on one machine: network namespaces with a host name and mounts of their own, connected by a bridge. They need
//! root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::launch::{Job, Mpi};
use crate::util::Dir;

/// The start of all names, before the id of the process that tests.
const PREFIX: &str = "flt";

/// What a launcher runs in place of ssh: a command on a host.
const AGENT: &str = r#"#!/bin/bash
# Launchers put options of ssh before the name of the host.
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts --mount bash -c '
    hostname "$0"
    while read -r source target; do mount --bind "$source" "$target" || exit 1; done <"$MOUNTS.$0"
    exec bash -c "$*"
' "$host" "$@"
"#;

/// Some hosts. Dropping them removes everything that was created for them.
pub(crate) struct Hosts<'a> {
    dir: &'a Dir,
    names: Vec<String>,
}

impl<'a> Hosts<'a> {
    pub(crate) fn new(dir: &'a Dir, count: u64) -> Hosts<'a> {
        remove_stale();
        let id = std::process::id();
        // Cleans up if one of the next lines fails.
        let hosts = Hosts { dir, names: (1..=count).map(|host| format!("{PREFIX}{id}n{host}")).collect() };
        let bridge = bridge(id);
        ip(&["link", "add", &bridge, "type", "bridge"]);
        ip(&["address", "add", &format!("{}.254/24", subnet(id)), "dev", &bridge]);
        ip(&["link", "set", &bridge, "up"]);
        for (number, name) in (1..).zip(&hosts.names) {
            let port = port(id, number);
            ip(&["netns", "add", name]);
            ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", name]);
            ip(&["link", "set", &port, "master", &bridge, "up"]);
            ip(&["-n", name, "address", "add", &format!("{}.{number}/24", subnet(id)), "dev", "eth0"]);
            ip(&["-n", name, "link", "set", "eth0", "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            dir.write(&format!("mounts.{name}"), "");
        }
        dir.write("agent", AGENT);
        fs::set_permissions(dir.path("agent"), fs::Permissions::from_mode(0o755)).unwrap();
        hosts
    }

    /// The name of a host, from 0.
    pub(crate) fn name(&self, host: usize) -> &str {
        &self.names[host]
    }

    /// Gives a host a folder of its own at this path, and returns where other hosts find its content.
    pub(crate) fn own_folder(&self, host: usize, folder: &str) -> String {
        let (name, source) = (self.name(host), format!("{folder}.{}", self.name(host)));
        fs::create_dir_all(self.dir.path(folder)).unwrap();
        fs::create_dir_all(self.dir.path(&source)).unwrap();
        let mounts = self.dir.path(&format!("mounts.{name}"));
        let line = format!("{} {}\n", self.dir.path(&source).display(), self.dir.path(folder).display());
        fs::write(&mounts, fs::read_to_string(&mounts).unwrap() + &line).unwrap();
        source
    }

    /// Takes down the network of a host.
    pub(crate) fn cut_off(&self, host: usize) {
        ip(&["link", "set", &port(std::process::id(), host as u64 + 1), "down"]);
    }

    /// `feedline` in this many processes, which are dealt to the hosts in turn.
    pub(crate) fn feedline(&self, mpi: Mpi, processes: u64, args: &[&str]) -> Job<'a> {
        let (id, processes) = (std::process::id(), processes.to_string());
        let (agent, subnet) = (self.dir.path("agent"), format!("{}.0/24", subnet(id)));
        let agent = agent.to_str().unwrap();
        let slots: Vec<String> = self.names.iter().map(|name| format!("{name}:{processes}")).collect();
        let (slots, names, bridge) = (slots.join(","), self.names.join(","), bridge(id));
        let words = match mpi {
            Mpi::OpenMpi4 => vec![
                "--allow-run-as-root",
                "--bind-to",
                "none",
                "--map-by",
                "node",
                "--host",
                &slots,
                "--mca",
                "plm_rsh_agent",
                agent,
                "--mca",
                "oob_tcp_if_include",
                &subnet,
                "--mca",
                "btl_tcp_if_include",
                &subnet,
                "-n",
                &processes,
            ],
            Mpi::OpenMpi5 => vec![
                "--allow-run-as-root",
                "--bind-to",
                "none",
                "--map-by",
                "node",
                "--host",
                &slots,
                "--prtemca",
                "plm_ssh_agent",
                agent,
                "--prtemca",
                "prte_if_include",
                &subnet,
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "self,sm,tcp",
                "--mca",
                "btl_tcp_if_include",
                &subnet,
                "-n",
                &processes,
            ],
            // Without a transport, MPICH would communicate through the memory that these hosts share.
            Mpi::Mpich => vec![
                "-launcher",
                "rsh",
                "-launcher-exec",
                agent,
                "-iface",
                &bridge,
                "-hosts",
                &names,
                "-genv",
                "UCX_TLS",
                "tcp,self",
                "-genv",
                "UCX_NET_DEVICES",
                "eth0",
                "-n",
                &processes,
            ],
        };
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        mpi.job(self.dir, &words, args).env("MOUNTS", self.dir.path("mounts"))
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        remove(std::process::id());
    }
}

fn bridge(id: u32) -> String {
    format!("{PREFIX}{id}b")
}

/// The end of a host's network that is connected to the bridge.
fn port(id: u32, number: u64) -> String {
    format!("{PREFIX}{id}v{number}")
}

/// The first three numbers of the addresses. Tests that run at the same time have different ones.
fn subnet(id: u32) -> String {
    format!("10.{}.{}", 128 + (id >> 8) % 128, id % 256)
}

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).output().unwrap_or_else(|error| panic!("ip: {error}"));
    assert!(done.status.success(), "ip {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr));
}

/// Removes what a test that was killed left behind.
fn remove_stale() {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_prefix(PREFIX)?.strip_suffix('b')?.parse::<u32>().ok());
    ids.filter(|id| !Path::new(&format!("/proc/{id}")).exists()).for_each(remove);
}

/// Removes the hosts of a test.
fn remove(id: u32) {
    let ip = |args: &[&str]| drop(Command::new("ip").args(args).output());
    if let Ok(entries) = fs::read_dir("/run/netns") {
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let own = format!("{PREFIX}{id}n");
        names.filter(|name| name.starts_with(&own)).for_each(|name| ip(&["netns", "delete", &name]));
    }
    // A network that a process still uses is removed with that process.
    for number in 1..=8 {
        ip(&["link", "delete", &port(id, number)]);
    }
    ip(&["link", "delete", &bridge(id)]);
}
