//! Azure Blob Storage: accounts, connection strings, keys, signatures and identities.

use std::collections::BTreeMap;

use model::objects::CredentialSource;
use model::secret::Secret;
use model::spec::address_mistake;

use super::network::{endpoints, with_scheme};
use super::{Found, Given, StoreUser, library, refused};
use crate::error::Error;

/// The account of Azure's emulator, which Microsoft publishes, so that its key is no secret.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_URL: &str = "http://127.0.0.1:10000";

const ACCOUNTS: [&str; 2] = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNT_KEYS: [&str; 3] =
    ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"];
const SIGNATURES: [&str; 2] = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
const TOKEN: &str = "AZURE_STORAGE_TOKEN";
const ENDPOINTS: [&str; 3] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"];

pub(super) fn find(
    given: &mut Given<'_>,
    user: StoreUser,
    account_of_data: Option<&str>,
) -> Result<Found, Error> {
    let connection = connection(given)?;
    let keys = given.keys;
    let of_url = match &keys.account_url {
        Some(url) => Some(account_of_url(url).ok_or_else(|| {
            refused("storage.storage_options.account_url does not begin with the account's name".to_owned())
        })?),
        None => None,
    };
    let named = keys.account.as_deref().or(keys.account_name.as_deref());
    let account = named.or(account_of_data).or(of_url).map(str::to_owned);
    let account = account.or_else(|| connection.account.clone());
    let account = account.or_else(|| given.first(&ACCOUNTS).map(|(_, name)| name));
    let is_emulated =
        given.is_true("AZURE_STORAGE_USE_EMULATOR") || account.as_deref() == Some(EMULATOR_ACCOUNT);
    let mut servers = endpoints(given, user, &ENDPOINTS)?;
    if servers.is_empty() {
        servers.extend(connection.endpoint.clone());
        // The blob service has another name than that of the hierarchy, and the same objects.
        let of_blobs = |url: &String| with_scheme(url, keys.secure).replace(".dfs.", ".blob.");
        servers.extend(keys.account_url.as_ref().filter(|_| connection.endpoint.is_none()).map(of_blobs));
    } else if keys.account_url.is_some() {
        given.unused("storage.storage_options.account_url", "another endpoint is given");
    }
    if servers.is_empty() && is_emulated {
        servers.push(EMULATOR_URL.to_owned());
    }
    let is_local = servers.iter().any(|server| server.starts_with("http://"));
    let account = match account {
        None if is_emulated || is_local => EMULATOR_ACCOUNT.to_owned(),
        Some(account) if account.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') => account,
        Some(_) => {
            return Err(refused("the name of the Azure account may have letters and digits only".to_owned()));
        }
        None => {
            return Err(refused(
                "the Azure account is not known: set storage.account or AZURE_STORAGE_ACCOUNT".to_owned(),
            ));
        }
    };
    let (credentials, credentials_from) = credentials(given, &connection, &account)?;
    let endpoints = servers.iter().map(|server| of_account(server, &account)).collect();
    Ok(Found {
        endpoints,
        region: None,
        path_style: None,
        account: Some(account),
        credentials,
        credentials_from,
        ca_bundle: None,
    })
}

/// The address below which the containers of an account are. A server that does not have the account in its name has it
/// in the path.
fn of_account(server: &str, account: &str) -> String {
    let host = server.split_once("://").map_or(server, |(_, rest)| rest);
    let is_complete = host.starts_with(&format!("{account}.")) || host.contains('/');
    if is_complete { server.to_owned() } else { format!("{server}/{account}") }
}

fn account_of_url(url: &str) -> Option<&str> {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next()?;
    host.split_once('.').map(|(account, _)| account).filter(|account| !account.is_empty())
}

/// What a connection string says.
#[derive(Debug, Default)]
struct AzureConnection {
    /// The setting that it is from.
    from: &'static str,
    account: Option<String>,
    endpoint: Option<String>,
    credentials: Option<CredentialSource>,
}

fn connection(given: &mut Given<'_>) -> Result<AzureConnection, Error> {
    let found = match &given.keys.connection_string {
        Some(text) => {
            let key = "storage.storage_options.connection_string";
            given.unused_variables(&[CONNECTION], &format!("{key} is given"));
            Some((key, text.clone()))
        }
        None => given.secret(&[CONNECTION]),
    };
    match found {
        Some((from, text)) => parse(from, text.expose()),
        None => Ok(AzureConnection::default()),
    }
}

/// Reads `NAME=VALUE;NAME=VALUE`. Messages do not repeat any of it.
fn parse(from: &'static str, text: &str) -> Result<AzureConnection, Error> {
    let mut values = BTreeMap::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| refused(format!("{from} is no connection string: a part of it has no '='")))?;
        values.insert(name.trim().to_lowercase(), value.trim());
    }
    let value = |name: &str| values.get(name).copied().filter(|value| !value.is_empty());
    if value("usedevelopmentstorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        let proxy =
            value("developmentstorageproxyuri").map(|url| format!("{}:10000", url.trim_end_matches('/')));
        return Ok(AzureConnection {
            from,
            account: Some(EMULATOR_ACCOUNT.to_owned()),
            endpoint: Some(proxy.unwrap_or_else(|| EMULATOR_URL.to_owned())),
            credentials: Some(CredentialSource::AccountKey(Secret::new(EMULATOR_KEY))),
        });
    }
    let account = value("accountname").map(str::to_owned);
    let protocol = value("defaultendpointsprotocol").unwrap_or("https");
    let of_suffix =
        || Some(format!("{protocol}://{}.blob.{}", account.as_deref()?, value("endpointsuffix")?));
    let endpoint = value("blobendpoint").map(|url| url.trim_end_matches('/').to_owned()).or_else(of_suffix);
    if let Some((what, help)) = endpoint.as_deref().and_then(address_mistake) {
        return Err(refused(format!("BlobEndpoint in {from} {what}; {help}")));
    }
    let account = account.or_else(|| endpoint.as_deref().and_then(account_of_url).map(str::to_owned));
    let credentials = match (value("accountkey"), value("sharedaccesssignature")) {
        (Some(key), _) => Some(CredentialSource::AccountKey(Secret::new(key))),
        (None, Some(signature)) => Some(shared(signature)),
        (None, None) => None,
    };
    if account.is_none() && endpoint.is_none() {
        return Err(refused(format!("{from} names neither AccountName nor BlobEndpoint")));
    }
    Ok(AzureConnection { from, account, endpoint, credentials })
}

fn shared(signature: &str) -> CredentialSource {
    CredentialSource::SharedAccess(Secret::new(signature.trim_start_matches('?')))
}

/// The first way that is given; the others are reported.
fn credentials(
    given: &mut Given<'_>,
    connection: &AzureConnection,
    account: &str,
) -> Result<(CredentialSource, String), Error> {
    let keys = given.keys;
    let mut ways: Vec<(&str, CredentialSource)> = Vec::new();
    if keys.anonymous {
        ways.push(("storage.anonymous", CredentialSource::Anonymous));
    }
    ways.extend(
        keys.account_key.clone().map(|key| ("storage.account_key", CredentialSource::AccountKey(key))),
    );
    ways.extend(keys.sas_token.as_ref().map(|token| ("storage.sas_token", shared(token.expose()))));
    ways.extend(connection.credentials.clone().map(|found| (connection.from, found)));
    let key = given.secret(&ACCOUNT_KEYS);
    ways.extend(key.map(|(name, key)| (name, CredentialSource::AccountKey(key))));
    ways.extend(given.secret(&SIGNATURES).map(|(name, token)| (name, shared(token.expose()))));
    ways.extend(given.secret(&[TOKEN]).map(|(name, token)| (name, CredentialSource::Bearer(token))));
    ways.extend(identity(given)?);
    let mut ways = ways.into_iter();
    let Some((first, source)) = ways.next() else { return Ok(without_settings(given, account)) };
    for (name, _) in ways {
        given.unused(name, &format!("{first} is given"));
    }
    let from = match (first, first.starts_with("storage.")) {
        ("storage.anonymous", _) => "none: storage.anonymous is true".to_owned(),
        (_, true) => "keys of the workload".to_owned(),
        (name, false) => format!("environment: {name}"),
    };
    Ok((source, from))
}

/// An application with a secret, or a workload with a token.
fn identity(given: &Given<'_>) -> Result<Option<(&'static str, CredentialSource)>, Error> {
    let value = |names: &[&'static str]| given.secret(names).map(|(_, value)| value);
    let id = value(&["AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"]);
    let tenant = value(&["AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"]);
    let host = value(&["AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"]);
    let ways = [
        (given.secret(&["AZURE_FEDERATED_TOKEN_FILE"]), "azure_federated_token_file"),
        (given.secret(&["AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"]), "azure_client_secret"),
    ];
    let Some(((name, secret), key)) = ways.into_iter().find_map(|(found, key)| Some((found?, key))) else {
        return Ok(None);
    };
    if id.is_none() || tenant.is_none() {
        let what =
            format!("{name} is set, but not both of AZURE_CLIENT_ID and AZURE_TENANT_ID; set all three");
        return Err(refused(what));
    }
    let settings = [
        (key, Some(secret)),
        ("azure_client_id", id),
        ("azure_tenant_id", tenant),
        ("azure_authority_host", host),
    ];
    Ok(Some((name, library(settings))))
}

/// The emulator's own key, the program `az`, or the identity of the host.
fn without_settings(given: &Given<'_>, account: &str) -> (CredentialSource, String) {
    if account == EMULATOR_ACCOUNT {
        let key = CredentialSource::AccountKey(Secret::new(EMULATOR_KEY));
        return (key, "the published key of the emulator".to_owned());
    }
    if given.is_true("AZURE_USE_AZURE_CLI") {
        let settings = [("azure_use_azure_cli", Some(Secret::new("true")))];
        return (library(settings), "the program az: AZURE_USE_AZURE_CLI".to_owned());
    }
    let value = |names: &[&'static str]| given.secret(names).map(|(_, value)| value);
    let settings = [
        ("azure_client_id", value(&["AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"])),
        ("azure_msi_endpoint", value(&["AZURE_MSI_ENDPOINT", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"])),
        ("azure_object_id", value(&["AZURE_OBJECT_ID"])),
        ("azure_msi_resource_id", value(&["AZURE_MSI_RESOURCE_ID"])),
    ];
    let from = "the managed identity, because no key, signature or client secret was found";
    (library(settings), from.to_owned())
}
