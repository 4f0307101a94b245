//! Objects in S3, Google Cloud Storage and Azure Blob Storage.
//!
//! Reads are our own code, from the signature to the socket (`lane`): a benchmark must not be limited by its client.
//! The library `object_store` fetches credentials, uploads and removes (`writes`), which is not on the measured path.

mod addresses;
pub(crate) mod answer;
pub(crate) mod base64;
mod body;
mod bucket;
mod chunks;
pub(crate) mod client;
#[cfg(test)]
mod client_tests;
mod connection;
pub(crate) mod contract;
pub(crate) mod credential;
mod date;
pub(crate) mod endpoint;
pub(crate) mod files;
pub(crate) mod keys;
mod lane;
#[cfg(test)]
mod live;
#[cfg(test)]
pub(crate) mod memory;
mod proxy;
mod queries;
pub(crate) mod random;
pub(crate) mod retry;
#[cfg(test)]
mod scripted;
mod sign;
mod site;
pub(crate) mod store;
mod stream;
pub(crate) mod writes;
mod xml;
