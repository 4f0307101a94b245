//! Tests of writes: against a server in this process that answers by a script, and against real servers.

mod faults;
mod scripted;
mod servers;
