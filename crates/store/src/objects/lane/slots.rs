//! Where a lane finds its connections: by the token of an event, or as an idle one to an endpoint.

use crate::objects::connection::Connection;

/// The slots of a lane's connections.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    /// Distinguishes a connection from an earlier one in the same slot.
    generation: u64,
}

impl Slots {
    pub(super) fn reserve(&mut self) -> (usize, u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.generation += 1;
        (slot, (self.generation & 0x7fff_ffff) << 32 | slot as u64)
    }

    /// Takes the connection of a token out of its slot.
    pub(super) fn take(&mut self, token: u64) -> Option<Box<Connection>> {
        let slot = self.connections.get_mut((token & 0xffff_ffff) as usize)?;
        if slot.as_ref().is_some_and(|connection| connection.token == token) { slot.take() } else { None }
    }

    pub(super) fn put(&mut self, connection: Box<Connection>) {
        let slot = (connection.token & 0xffff_ffff) as usize;
        self.connections[slot] = Some(connection);
    }

    pub(super) fn release(&mut self, token: u64) {
        self.free.push((token & 0xffff_ffff) as usize);
    }
}

/// The connections to one endpoint.
#[derive(Debug)]
pub(super) struct EndpointConnections {
    pub(super) idle: Vec<u64>,
    /// Counts those that were begun; it selects the address of the next one.
    pub(super) made: usize,
}

impl EndpointConnections {
    pub(super) fn new(first: u64) -> EndpointConnections {
        EndpointConnections { idle: Vec::new(), made: first as usize }
    }
}
