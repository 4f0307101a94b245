//! Addresses of servers and proxies.

use model::secret::Secret;
use model::spec::address_mistake;

use super::{Given, StoreUser, refused};
use crate::error::Error;

/// The servers that the workload names, and otherwise those of the first variable that is set.
pub(super) fn endpoints(
    given: &mut Given<'_>,
    user: StoreUser,
    variables: &[&'static str],
) -> Result<Vec<String>, Error> {
    let keys = given.keys;
    let (mut endpoints, by_process) = match (keys.endpoint_uris.as_slice(), &keys.endpoint_url) {
        ([], None) => by_variables(given, variables)?,
        ([], Some(one)) => (vec![one.clone()], false),
        (several, one) => {
            if one.as_ref().is_some_and(|one| !several.contains(one)) {
                let key = "storage.storage_options.endpoint_url";
                given.unused(key, "storage.endpoint_uris is given");
            }
            (several.to_vec(), false)
        }
    };
    let is_key = !keys.endpoint_uris.is_empty() || keys.endpoint_url.is_some();
    if is_key {
        given.unused_variables(variables, "the workload names the server");
    }
    count(given, &mut endpoints)?;
    if keys.use_mpi_endpoint_distribution && endpoints.len() < 2 {
        let key = "storage.use_mpi_endpoint_distribution";
        given.unused(key, "there are not several endpoints (storage.endpoint_uris)");
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

/// The servers of the first variable that is set. A list is DLIO's: each process uses one of its entries.
fn by_variables(given: &mut Given<'_>, variables: &[&'static str]) -> Result<(Vec<String>, bool), Error> {
    let Some((name, value)) = given.first(variables) else { return Ok((Vec::new(), false)) };
    let endpoints: Vec<String> =
        value.split(',').map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect();
    if let Some((what, help)) = endpoints.iter().find_map(|entry| address_mistake(entry)) {
        return Err(refused(format!("the address in {name} {what}; {help}")));
    }
    let others: Vec<&str> = variables.iter().copied().filter(|other| *other != name).collect();
    given.unused_variables(&others, &format!("{name} is set"));
    Ok((endpoints, true))
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
    let variables: &[&'static str] = match plain {
        true => &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        false => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let found = match &given.keys.proxy {
        Some(proxy) => Some(("storage.proxy", proxy.clone())),
        None => given.secret(variables),
    };
    let Some((name, proxy)) = found else { return Ok((None, None)) };
    let url = with_scheme(proxy.expose(), false);
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(refused(format!("{name} names no HTTP proxy; write http://HOST:PORT")));
    }
    Ok((Some(Secret::new(url)), given.first(&["no_proxy", "NO_PROXY"]).map(|(_, hosts)| hosts)))
}
