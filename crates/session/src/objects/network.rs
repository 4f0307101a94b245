//! Addresses of servers and proxies.

use model::secret::Secret;
use model::spec::address_mistake;

use super::{Given, NamedValue, StoreUser, because, refused};
use crate::error::Error;

const ENDPOINT_KEYS: [&str; 2] = ["storage.endpoint_uris", "storage.storage_options.endpoint_url"];

/// What can have the address of a server, apart from the keys that all services share. Earlier ones win.
#[derive(Debug, Default)]
pub(super) struct AddressSources<'a> {
    /// Other keys of the workload.
    pub(super) keys: Vec<NamedValue>,
    pub(super) variables: &'a [&'static str],
    /// What counts if nothing else has an address.
    pub(super) last: Option<NamedValue>,
}

/// A setting with addresses.
struct GivenAddresses {
    name: String,
    addresses: Vec<String>,
    /// Whether each process uses one of them, as with DLIO's lists in the environment.
    by_process: bool,
}

/// The servers that the first source names. Others that name different servers are reported.
pub(super) fn endpoints(
    given: &mut Given<'_>,
    user: StoreUser,
    sources: AddressSources<'_>,
) -> Result<Vec<String>, Error> {
    let keys = given.keys;
    let (mut endpoints, by_process) = chosen(given, sources)?;
    count(given, &mut endpoints)?;
    if keys.use_mpi_endpoint_distribution && endpoints.len() < 2 {
        let key = "storage.use_mpi_endpoint_distribution";
        given.unused(key, "fewer than two endpoints are given (storage.endpoint_uris)");
    }
    if (keys.use_mpi_endpoint_distribution || by_process) && endpoints.len() > 1 {
        let own = user.process % endpoints.len() as u64;
        endpoints = endpoints.into_iter().skip(usize::try_from(own).unwrap_or(0)).take(1).collect();
    }
    let states_scheme = endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
    if !keys.secure && (states_scheme || endpoints.is_empty()) {
        let why = if states_scheme { "the endpoint says https" } else { "no endpoint is given" };
        given.unused("storage.storage_options.secure", why);
    }
    Ok(endpoints.into_iter().map(|endpoint| with_scheme(&endpoint, keys.secure)).collect())
}

/// The addresses of the first source, and whether each process uses one of them.
fn chosen(given: &mut Given<'_>, sources: AddressSources<'_>) -> Result<(Vec<String>, bool), Error> {
    let several = [given.keys.endpoint_uris.clone(), given.keys.endpoint_url.iter().cloned().collect()];
    let of_keys = ENDPOINT_KEYS.iter().zip(several).map(|(name, addresses)| GivenAddresses {
        name: (*name).to_owned(),
        addresses,
        by_process: false,
    });
    let one = |(name, address)| GivenAddresses { name, addresses: vec![address], by_process: false };
    let of_variables = given.variables(sources.variables).into_iter().map(|(name, list)| {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        GivenAddresses { name, addresses: entries.map(str::to_owned).collect(), by_process: true }
    });
    let all = of_keys.chain(sources.keys.into_iter().map(one)).chain(of_variables);
    let mut all = all.chain(sources.last.map(one)).filter(|source| !source.addresses.is_empty());
    let Some(used) = all.next() else { return Ok((Vec::new(), false)) };
    if let Some((what, help)) = used.addresses.iter().find_map(|address| address_mistake(address)) {
        return Err(refused(format!("the address in {} {what}; {help}", used.name)));
    }
    let is_used = |address: &String| {
        let same = |used: &String| used.trim_end_matches('/') == address.trim_end_matches('/');
        used.addresses.iter().any(same)
    };
    let others: Vec<String> =
        all.filter(|other| !other.addresses.iter().all(is_used)).map(|other| other.name).collect();
    for other in others {
        given.unused(&other, &because(&used.name));
    }
    Ok((used.addresses, used.by_process))
}

/// Leaves as many endpoints as `storage.endpoint_count` says.
fn count(given: &mut Given<'_>, endpoints: &mut Vec<String>) -> Result<(), Error> {
    let Some(count) = given.keys.endpoint_count else { return Ok(()) };
    let there = endpoints.len() as u64;
    if there == 0 {
        given.unused("storage.endpoint_count", "no endpoint is given (storage.endpoint_uris)");
    } else if count > there {
        return Err(refused(format!(
            "storage.endpoint_count is {count}, but there are only {there} endpoints; add some to \
             storage.endpoint_uris"
        )));
    }
    endpoints.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(())
}

/// The address with its scheme, without a slash at its end.
pub(super) fn with_scheme(address: &str, secure: bool) -> String {
    let address = address.trim_end_matches('/');
    match address.contains("://") {
        true => address.to_owned(),
        false => format!("http{}://{address}", if secure { "s" } else { "" }),
    }
}

/// The proxy of the workload or the environment, and the hosts that are reached without it.
pub(super) fn proxy(
    given: &mut Given<'_>,
    endpoints: &[String],
) -> Result<(Option<Secret>, Option<String>), Error> {
    let plain = endpoints.first().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let variables: &[&str] = match plain {
        true => &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        false => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let of_key =
        given.keys.proxy.as_ref().map(|proxy| ("storage.proxy".to_owned(), proxy.expose().to_owned()));
    // A variable of one scheme beside that of all schemes is usual, so only the first counts.
    let of_variable = given.variables(variables).into_iter().next();
    let found = given.pick(of_key.into_iter().chain(of_variable).collect());
    let Some((name, proxy)) = found else { return Ok((None, None)) };
    let url = with_scheme(&proxy, false);
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(refused(format!("{name} is not the URL of an HTTP proxy; write http://HOST:PORT")));
    }
    Ok((Some(Secret::new(url)), given.first(&["no_proxy", "NO_PROXY"]).map(|(_, hosts)| hosts)))
}
