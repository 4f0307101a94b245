//! A connection to a server that never waits: TCP, and TLS over it as a state machine. Its owner waits until the
//! socket is ready.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use model::objects::ObjectOptions;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::endpoint::Endpoint;
use crate::StoreError;

/// The outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivedBytes {
    Bytes(usize),
    /// Nothing has arrived yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// Why a connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamError {
    /// The network, or the server's end of the connection.
    Lost(Errno),
    /// The certificate of the server is not trusted, or not for its name.
    Certificate(String),
    /// The server sent something else than TLS.
    NotTls,
    /// TLS failed in another way.
    Tls(String),
    /// The proxy answered with this status instead of passing the connection on.
    Proxy(u16),
    /// The answer of the proxy cannot be understood.
    ProxyNonsense(&'static str),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Lost(cause) => cause.fmt(f),
            StreamError::Certificate(cause) => f.write_str(cause),
            StreamError::NotTls => f.write_str("it does not speak TLS; is the endpoint an http:// one?"),
            StreamError::Tls(cause) => write!(f, "TLS failed: {cause}"),
            StreamError::Proxy(status) => write!(f, "the proxy answered {status}"),
            StreamError::ProxyNonsense(what) => write!(f, "the proxy cannot be understood: {what}"),
        }
    }
}

/// The certificates that TLS trusts, and how it encrypts; shared by all connections. Reading the system's certificates
/// takes longer than all other preparations, so it is done only if TLS `is_used`.
pub(crate) fn tls_config(options: &ObjectOptions, is_used: bool) -> Result<Arc<ClientConfig>, StoreError> {
    let mut roots = RootCertStore::empty();
    if is_used {
        // Certificates that cannot be read are ignored, like everywhere: the system has hundreds.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(path) = &options.ca_bundle {
        let unusable = |cause: String| {
            StoreError::Refused(format!(
                "the certificates in {path} (storage.ca_bundle) cannot be used: {cause}"
            ))
        };
        let certificates =
            CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
        let mut count = 0;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(unusable("it holds no certificate in PEM form".to_owned()));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Refused(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Ring's cryptography, with the cheapest strong cipher first: AES-128 takes two thirds of the time of AES-256.
fn provider() -> rustls::crypto::CryptoProvider {
    use rustls::CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    use rustls::CipherSuite::{TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS13_AES_128_GCM_SHA256};

    let cheap = [
        TLS13_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !cheap.contains(&suite.suite()));
    provider
}

pub(crate) struct Stream {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Stream {
    /// Begins to connect. The socket becomes writable when that is done.
    pub(crate) fn connect(address: SocketAddr) -> Result<Stream, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // A request is one small write, which must not wait for the acknowledgement of another.
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Stream { socket, tls: None }),
            Err(cause) => Err(cause),
        }
    }

    /// Whether connecting succeeded, once the socket is writable.
    pub(crate) fn connected(&self) -> Result<(), Errno> {
        match sockopt::socket_error(&self.socket)? {
            Ok(()) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    /// Begins TLS on a connected stream.
    pub(crate) fn begin_tls(
        &mut self,
        config: &Arc<ClientConfig>,
        endpoint: &Endpoint,
    ) -> Result<(), StreamError> {
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|_| StreamError::Certificate(format!("'{}' is not a valid host name", endpoint.host)))?;
        let tls = ClientConnection::new(Arc::clone(config), name)
            .map_err(|error| StreamError::Tls(error.to_string()))?;
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Continues the handshake; returns whether it is complete.
    pub(crate) fn handshake(&mut self) -> Result<bool, StreamError> {
        loop {
            self.flush()?;
            let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_handshaking()) else { return Ok(true) };
            match receive_tls(tls, &self.socket)? {
                ReceivedBytes::Bytes(_) => {}
                ReceivedBytes::Nothing => return Ok(false),
                ReceivedBytes::End => return Err(StreamError::Lost(Errno::CONNRESET)),
            }
        }
    }

    /// Whether encrypted bytes wait until the socket is writable.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends encrypted bytes that wait.
    pub(crate) fn flush(&mut self) -> Result<(), StreamError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut Socket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(lost(&error)),
            }
        }
        Ok(())
    }

    /// Sends bytes and returns how many were accepted.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        if let Some(tls) = &mut self.tls {
            let accepted = tls.writer().write(bytes).map_err(|error| lost(&error))?;
            self.flush()?;
            return Ok(accepted);
        }
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(cause) => Err(StreamError::Lost(cause)),
        }
    }

    /// Receives into a buffer that is not empty.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<ReceivedBytes, StreamError> {
        let Some(tls) = &mut self.tls else { return plain(&self.socket, into) };
        loop {
            match tls.reader().read(into) {
                Ok(0) => return Ok(ReceivedBytes::End),
                Ok(bytes) => return Ok(ReceivedBytes::Bytes(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without the message that announces it: the length of the answer shows whether it is whole.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(ReceivedBytes::End),
                Err(error) => return Err(lost(&error)),
            }
            match receive_tls(tls, &self.socket)? {
                ReceivedBytes::Bytes(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Receives into two buffers, first into `head`. Returns the sum of the bytes.
    pub(crate) fn receive_two(
        &mut self,
        head: &mut [u8],
        body: &mut [u8],
    ) -> Result<ReceivedBytes, StreamError> {
        if self.tls.is_some() {
            return self.receive(head);
        }
        match rustix::io::readv(&self.socket, &mut [IoSliceMut::new(head), IoSliceMut::new(body)]) {
            Ok(0) => Ok(ReceivedBytes::End),
            Ok(bytes) => Ok(ReceivedBytes::Bytes(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(ReceivedBytes::Nothing),
            Err(cause) => Err(StreamError::Lost(cause)),
        }
    }

    /// Whether bytes may have been received and decrypted that the socket no longer announces.
    pub(crate) fn holds_back(&self) -> bool {
        self.tls.is_some()
    }
}

fn plain(socket: &OwnedFd, into: &mut [u8]) -> Result<ReceivedBytes, StreamError> {
    match rustix::net::recv(socket, into, RecvFlags::empty()) {
        Ok((0, _)) => Ok(ReceivedBytes::End),
        Ok((bytes, _)) => Ok(ReceivedBytes::Bytes(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(ReceivedBytes::Nothing),
        Err(cause) => Err(StreamError::Lost(cause)),
    }
}

/// Receives and decrypts a part of what the server sent.
fn receive_tls(tls: &mut ClientConnection, socket: &OwnedFd) -> Result<ReceivedBytes, StreamError> {
    let received = match tls.read_tls(&mut Socket(socket)) {
        Ok(0) => ReceivedBytes::End,
        Ok(bytes) => ReceivedBytes::Bytes(bytes),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReceivedBytes::Nothing),
        Err(error) => return Err(lost(&error)),
    };
    match tls.process_new_packets() {
        Ok(_) => Ok(received),
        Err(error) => {
            // The server gets the reason, if possible.
            let _ = tls.write_tls(&mut Socket(socket));
            Err(explain(&error))
        }
    }
}

fn explain(error: &rustls::Error) -> StreamError {
    match error {
        rustls::Error::InvalidCertificate(cause) => StreamError::Certificate(format!(
            "its certificate is not trusted ({cause:?}); if it is your own, name the certificate of its authority in \
             storage.ca_bundle or AWS_CA_BUNDLE"
        )),
        rustls::Error::NoCertificatesPresented => {
            StreamError::Certificate("it has no certificate".to_owned())
        }
        rustls::Error::InvalidMessage(_) => StreamError::NotTls,
        error => StreamError::Tls(error.to_string()),
    }
}

fn lost(error: &io::Error) -> StreamError {
    StreamError::Lost(Errno::from_io_error(error).unwrap_or(Errno::CONNRESET))
}

/// The socket as rustls reads from it and writes to it.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, into, RecvFlags::empty())?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
