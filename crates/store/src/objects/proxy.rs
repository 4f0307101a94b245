//! The proxy in front of a store: which hosts are reached through it. Reads and writes decide by the same rule.

use std::net::IpAddr;

use model::objects::ObjectOptions;
use model::secret::Secret;

use super::endpoint::{Url, bracketed, decoded};
use crate::StoreError;

/// A proxy that passes connections on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization`, if its URL has a user.
    pub(crate) authorization: Option<Secret>,
    /// Hosts that are reached without it.
    exceptions: Vec<Exception>,
}

impl Proxy {
    /// The proxy of these options, if there is one.
    pub(crate) fn of(options: &ObjectOptions) -> Result<Option<Proxy>, StoreError> {
        let Some(url) = &options.proxy else { return Ok(None) };
        let invalid = || {
            StoreError::Refused(
                "the proxy (storage.proxy, HTTPS_PROXY) is not a URL of the form http://HOST:PORT".into(),
            )
        };
        let Url { tls, host, port, user, .. } = Url::parse(url.expose()).ok_or_else(invalid)?;
        if tls {
            return Err(StoreError::Refused(
                "the proxy is an https:// URL; only proxies that are reached by http:// are supported".into(),
            ));
        }
        let authorization = user.map(|user| {
            // The colon between user and password is not encoded, those in them are.
            Secret::new(format!("Basic {}", super::base64::encode(&decoded(&user))))
        });
        let listed = options.no_proxy.as_deref().unwrap_or_default();
        let entries = listed.split([',', ' ', '\t']).filter(|entry| !entry.is_empty());
        Ok(Some(Proxy { host, port, authorization, exceptions: entries.map(Exception::parse).collect() }))
    }

    /// Whether this host is reached through it. The address of an IPv6 host may be in brackets.
    pub(crate) fn applies_to(&self, host: &str) -> bool {
        let host = unbracketed(host).to_ascii_lowercase();
        let host = host.trim_end_matches('.');
        !self.exceptions.iter().any(|exception| exception.holds_for(host))
    }

    /// The proxy in messages and facts, without its user.
    pub(crate) fn label(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    /// Addresses that begin with the same bits.
    Network {
        address: IpAddr,
        bits: u32,
    },
    /// A domain in lower case and all below it.
    Domain(String),
}

impl Exception {
    fn parse(entry: &str) -> Exception {
        if entry == "*" {
            return Exception::Everything;
        }
        let entry = entry.to_ascii_lowercase();
        let (address, bits) = entry.split_once('/').map_or((entry.as_str(), None), |(a, b)| (a, Some(b)));
        let found = unbracketed(without_port(address)).parse::<IpAddr>();
        if let Ok(address) = found {
            let most = if address.is_ipv4() { 32 } else { 128 };
            match bits.map_or(Ok(most), str::parse) {
                Ok(bits) if bits <= most => return Exception::Network { address, bits },
                // Not a network: no host has such a name either.
                _ => return Exception::Domain(entry),
            }
        }
        let domain = without_port(&entry).trim_start_matches('*').trim_matches('.');
        Exception::Domain(domain.to_owned())
    }

    fn holds_for(&self, host: &str) -> bool {
        match self {
            Exception::Everything => true,
            Exception::Network { address, bits } => {
                host.parse().is_ok_and(|host| is_in_network(host, *address, *bits))
            }
            Exception::Domain(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with('.')),
        }
    }
}

fn is_in_network(host: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            let differing = host.to_bits() ^ network.to_bits();
            differing.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => {
            let differing = host.to_bits() ^ network.to_bits();
            differing.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// An entry without its port; an IPv6 address has several colons, or brackets.
fn without_port(entry: &str) -> &str {
    match entry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            if host.contains(':') && !host.ends_with(']') { entry } else { host }
        }
        _ => entry,
    }
}

#[cfg(test)]
mod tests {
    use model::objects::{ObjectPlace, Service};

    use super::*;
    use crate::objects::endpoint::endpoints;
    use crate::objects::scripted::{Reply, Server};
    use crate::objects::writes::Writes;

    fn proxy(url: &str, no_proxy: &str) -> Proxy {
        let (proxy, no_proxy) = (Some(Secret::new(url)), Some(no_proxy.to_owned()));
        Proxy::of(&ObjectOptions { proxy, no_proxy, ..ObjectOptions::default() }).unwrap().unwrap()
    }

    #[test]
    fn exceptions_are_domains_addresses_and_networks() {
        for (entry, host, is_excepted) in [
            ("s3.lan", "s3.lan", true),
            ("S3.LAN", "s3.lan", true),
            ("s3.lan", "S3.Lan.", true),
            (".lan", "s3.lan", true),
            ("*.lan", "s3.lan", true),
            ("lan", "s3.lan", true),
            ("s3.lan:9000", "s3.lan", true),
            ("an", "s3.lan", false),
            ("s3.lan", "other.s3.lan", true),
            ("s3.lan", "s3.lan.org", false),
            ("*", "s3.lan", true),
            (".", "s3.lan", false),
            ("other.lan, s3.lan", "s3.lan", true),
            ("other.lan s3.lan", "s3.lan", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1:9000", "10.0.0.1", true),
            ("10.0.0.1", "110.0.0.1", false),
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "s3.lan", false),
            ("10.1.2.128/25", "10.1.2.127", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/33", "10.0.0.1", false),
            ("::1", "::1", true),
            ("[::1]", "[::1]", true),
            ("[::1]:9000", "::1", true),
            ("fd00::/8", "fd12:3456::1", true),
            ("fd00::/8", "[fd12:3456::1]", true),
            ("fd00::/8", "fe80::1", false),
            ("", "s3.lan", false),
        ] {
            let applies = proxy("http://proxy:3128", entry).applies_to(host);
            assert_eq!(applies, !is_excepted, "{entry} for {host}");
        }
    }

    /// Writes go through the proxy exactly if reads do, and the proxy gets the same user.
    #[test]
    fn writes_follow_the_same_rule() {
        for (no_proxy, is_proxied) in
            [("127.0.0.2", true), ("127.0.0.1:1, other", false), ("127.0.0.0/8", false)]
        {
            let ok = |_: usize, _: &_| Reply::status(200, "ETag: \"t\"\r\n", "");
            let (server, through) = (Server::start(ok), Server::start(ok));
            let options = ObjectOptions {
                endpoints: vec![server.url()],
                proxy: Some(Secret::new(format!("http://me:p%40ss@{}", through.address))),
                no_proxy: Some(no_proxy.to_owned()),
                ..ObjectOptions::default()
            };
            let place = ObjectPlace::parse(Service::S3, "bucket");
            let reads = &endpoints(&place, &options).unwrap()[0];
            assert_eq!(reads.proxy.is_some(), is_proxied, "{no_proxy}");
            Writes::open(&place, &options, || 0).unwrap().delete("k").unwrap();
            let seen = [&server, &through].map(|server| server.seen());
            let expected = if is_proxied { [0, 1] } else { [1, 0] };
            assert_eq!(seen.each_ref().map(Vec::len), expected, "{no_proxy}");
            if let Some(proxied) = seen[1].first() {
                let start = format!("DELETE http://{}/bucket/k", server.address);
                assert!(proxied.line.starts_with(&start), "{}", proxied.line);
                let sent = reads.proxy.as_ref().unwrap().authorization.as_ref().unwrap().expose();
                assert_eq!(proxied.proxy_authorization, sent);
            }
        }
    }

    #[test]
    fn users_and_passwords_are_decoded() {
        let found = proxy("http://me:pa%40ss%3A%2F@proxy:3128", "");
        assert_eq!((found.host.as_str(), found.port, found.label().as_str()), ("proxy", 3128, "proxy:3128"));
        let expected = super::super::base64::encode(b"me:pa@ss:/");
        assert_eq!(found.authorization.unwrap().expose(), format!("Basic {expected}"));
        assert_eq!(proxy("http://[::1]:3128", "").label(), "[::1]:3128");
        let https = ObjectOptions { proxy: Some(Secret::new("https://h")), ..ObjectOptions::default() };
        assert!(
            Proxy::of(&https).unwrap_err().to_string().contains("only proxies that are reached by http://")
        );
    }
}
