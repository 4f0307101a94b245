//! Azure Blob Storage: accounts, connection strings, keys, signatures and identities.

use std::collections::BTreeMap;

use model::objects::CredentialSource;
use model::secret::Secret;
use model::spec::address_mistake;

use super::network::{AddressSources, endpoints, with_scheme};
use super::{ANONYMOUS, Found, Given, NamedValue, StoreUser, because, library, refused};
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
const EMULATED: &str = "AZURE_STORAGE_USE_EMULATOR";
/// GDAL's variable for public containers.
const NO_SIGN: &str = "AZURE_NO_SIGN_REQUEST";
const FEDERATED: &str = "AZURE_FEDERATED_TOKEN_FILE";
const CLIENT_SECRETS: [&str; 2] = ["AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"];
const CLIENTS: [&str; 2] = ["AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"];
const CONNECTION_KEY: &str = "storage.storage_options.connection_string";
const URL_KEY: &str = "storage.storage_options.account_url";

pub(super) fn find(
    given: &mut Given<'_>,
    user: StoreUser,
    account_of_data: Option<&str>,
) -> Result<Found, Error> {
    let connection = connection(given)?;
    let account = account(given, &connection, account_of_data)?;
    let fits = |other: Option<&str>| other.is_none() || account.as_deref() == other;
    // What describes another account is not used at all.
    let connection =
        if fits(connection.account.as_deref()) { connection } else { AzureConnection::default() };
    let url = given.keys.account_url.clone().filter(|url| fits(account_of_url(url)));
    let is_emulated = given.is_true(EMULATED);
    let mut servers = endpoints(given, user, addresses(given, &connection, url))?;
    if is_emulated && !servers.is_empty() && account.is_some() {
        given.unused(EMULATED, "another endpoint is given");
    }
    if servers.is_empty() && (is_emulated || account.as_deref() == Some(EMULATOR_ACCOUNT)) {
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
    Ok(Found {
        endpoints: servers.iter().map(|server| of_account(server, &account)).collect(),
        region: None,
        path_style: None,
        account: Some(account),
        credentials,
        credentials_from,
        ca_bundle: None,
    })
}

/// The account: that of the first setting that names one. Those that name another are reported.
fn account(
    given: &mut Given<'_>,
    connection: &AzureConnection,
    of_data: Option<&str>,
) -> Result<Option<String>, Error> {
    let keys = given.keys;
    let named =
        |name: &str, account: Option<&str>| account.map(|account| (name.to_owned(), account.to_owned()));
    let settings = [
        named("storage.account", keys.account.as_deref()),
        named("storage.storage_options.account_name", keys.account_name.as_deref()),
        named("the account in the URL of the data", of_data),
        named(URL_KEY, keys.account_url.as_deref().and_then(account_of_url)),
        named(connection.from, connection.account.as_deref()),
    ];
    let all = settings.into_iter().flatten().chain(given.variables(&ACCOUNTS)).collect();
    let account = given.pick(all).map(|(_, account)| account);
    match (&account, &keys.account_url) {
        (None, Some(_)) => {
            Err(refused(format!("{URL_KEY} does not name the account, and storage.account is not given")))
        }
        _ => Ok(account),
    }
}

/// Where addresses of servers are, apart from the usual keys. A connection string of the environment comes last.
fn addresses(
    given: &Given<'_>,
    connection: &AzureConnection,
    account_url: Option<String>,
) -> AddressSources<'static> {
    // The blob service has another name than that of the hierarchy, and the same objects.
    let of_blobs = |url: String| with_scheme(&url, given.keys.secure).replace(".dfs.", ".blob.");
    let mut keys: Vec<NamedValue> =
        account_url.map(|url| (URL_KEY.to_owned(), of_blobs(url))).into_iter().collect();
    let mut last =
        connection.endpoint.clone().map(|url| (format!("the endpoint in {}", connection.from), url));
    if connection.from == CONNECTION_KEY {
        keys.extend(last.take());
    }
    AddressSources { keys, variables: &ENDPOINTS, last }
}

/// The address below which the containers of an account are. A server that does not have the account in its name has it
/// in the path.
fn of_account(server: &str, account: &str) -> String {
    let host = server.split_once("://").map_or(server, |(_, rest)| rest);
    let is_complete = host.starts_with(&format!("{account}.")) || host.contains('/');
    if is_complete { server.to_owned() } else { format!("{server}/{account}") }
}

/// The account in an address: the first part of the host's name or, for a server without a name of several parts, of
/// the path.
fn account_of_url(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    let account = match host.split_once('.') {
        Some((account, _)) if !is_address => account,
        _ => path.split('/').next().unwrap_or_default(),
    };
    Some(account).filter(|account| !account.is_empty())
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
    let of_key = given.keys.connection_string.as_ref().map(|text| text.expose().to_owned());
    let of_variable = given.variable(CONNECTION);
    if let (Some(key), Some(variable)) = (&of_key, &of_variable)
        && key != variable
    {
        given.unused(CONNECTION, &because(CONNECTION_KEY));
    }
    match (of_key, of_variable) {
        (Some(text), _) => parse(CONNECTION_KEY, &text),
        (None, Some(text)) => parse(CONNECTION, &text),
        (None, None) => Ok(AzureConnection::default()),
    }
}

/// Reads `NAME=VALUE;NAME=VALUE`. Messages do not repeat any of it.
fn parse(from: &'static str, text: &str) -> Result<AzureConnection, Error> {
    let mut values = BTreeMap::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| refused(format!("{from} is not a connection string: a part of it has no '='")))?;
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
    let of_connection = connection.credentials.clone().map(|found| (connection.from.to_owned(), found));
    let (of_key, of_variable) = match connection.from {
        CONNECTION_KEY => (of_connection, None),
        _ => (None, of_connection),
    };
    let key = keys.account_key.clone().map(CredentialSource::AccountKey);
    let signature = keys.sas_token.as_ref().map(|token| shared(token.expose()));
    let account_key =
        given.secret(&ACCOUNT_KEYS).map(|(name, key)| (name, CredentialSource::AccountKey(key)));
    let token = given.secret(&SIGNATURES).map(|(name, token)| (name, shared(token.expose())));
    let bearer = given.secret(&[TOKEN]).map(|(name, token)| (name, CredentialSource::Bearer(token)));
    let unsigned =
        |name: &str, is_given: bool| is_given.then(|| (name.to_owned(), CredentialSource::Anonymous));
    let ways = [
        unsigned(ANONYMOUS, keys.anonymous),
        key.map(|key| ("storage.account_key".to_owned(), key)),
        signature.map(|token| ("storage.sas_token".to_owned(), token)),
        of_key,
        unsigned(NO_SIGN, given.is_true(NO_SIGN)),
        of_variable,
        account_key,
        token,
        bearer,
    ];
    let Some((first, source)) = given.pick(ways.into_iter().flatten().collect()) else {
        return without_keys(given, account);
    };
    given.unused_variables(&[FEDERATED, CLIENT_SECRETS[0], CLIENT_SECRETS[1]], &because(&first));
    let from = match first.as_str() {
        ANONYMOUS | NO_SIGN => format!("none: {}", because(&first)),
        name if name.starts_with("storage.") => "keys of the workload".to_owned(),
        name => format!("environment: {name}"),
    };
    Ok((source, from))
}

/// An application with a secret, a workload with a token, or what needs no settings.
fn without_keys(given: &mut Given<'_>, account: &str) -> Result<(CredentialSource, String), Error> {
    let token = given.secret(&[FEDERATED]).map(|(name, file)| (name, file, "azure_federated_token_file"));
    let secret = given.secret(&CLIENT_SECRETS).map(|(name, secret)| (name, secret, "azure_client_secret"));
    if let (Some((token, ..)), Some((secret, ..))) = (&token, &secret) {
        given.unused(secret, &because(token));
    }
    let Some((name, value, setting)) = token.or(secret) else { return Ok(without_settings(given, account)) };
    let mut value_of = |names: &[&str]| given.secret(names).map(|(_, value)| value);
    let id = value_of(&CLIENTS);
    let tenant = value_of(&["AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"]);
    let host = value_of(&["AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"]);
    if id.is_none() || tenant.is_none() {
        let what =
            format!("{name} is set, but not both of AZURE_CLIENT_ID and AZURE_TENANT_ID; set all three");
        return Err(refused(what));
    }
    let settings = [
        (setting, Some(value)),
        ("azure_client_id", id),
        ("azure_tenant_id", tenant),
        ("azure_authority_host", host),
    ];
    Ok((library(settings), format!("environment: {name}")))
}

/// The emulator's own key, the program `az`, or the identity of the host.
fn without_settings(given: &mut Given<'_>, account: &str) -> (CredentialSource, String) {
    if account == EMULATOR_ACCOUNT {
        let key = CredentialSource::AccountKey(Secret::new(EMULATOR_KEY));
        return (key, "the published key of the emulator".to_owned());
    }
    if given.is_true("AZURE_USE_AZURE_CLI") {
        let settings = [("azure_use_azure_cli", Some(Secret::new("true")))];
        return (library(settings), "the program az: AZURE_USE_AZURE_CLI".to_owned());
    }
    let mut value = |names: &[&str]| given.secret(names).map(|(_, value)| value);
    let settings = [
        ("azure_client_id", value(&CLIENTS)),
        ("azure_msi_endpoint", value(&["AZURE_MSI_ENDPOINT", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"])),
        ("azure_object_id", value(&["AZURE_OBJECT_ID"])),
        ("azure_msi_resource_id", value(&["AZURE_MSI_RESOURCE_ID"])),
    ];
    let from = "the managed identity, because no key, signature or client secret was found";
    (library(settings), from.to_owned())
}
