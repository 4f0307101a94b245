//! What tests of object stores use, and its own tests: the servers, a proxy that injects faults, objects of boto3.

pub(crate) mod proxy;
pub(crate) mod servers;

mod proxy_tests;
mod server_tests;
