//! Google Cloud Storage: HMAC keys, service accounts, the files of gcloud, and the metadata server.

use std::path::PathBuf;

use model::objects::CredentialSource;
use model::secret::Secret;

use super::network::{AddressSources, endpoints, with_scheme};
use super::{ACCESS_KEY, ANONYMOUS, Found, Given, REGION, StoreUser, library, refused, unsigned};
use crate::error::Error;

const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// GDAL's variable for public buckets.
const NO_SIGN: &str = "GS_NO_SIGN_REQUEST";
/// HMAC keys have no usual names; these two are the most frequent ones.
const HMAC: [(&str, &str); 2] =
    [("GCS_ACCESS_KEY_ID", "GCS_SECRET_ACCESS_KEY"), ("GOOGLE_HMAC_ACCESS_ID", "GOOGLE_HMAC_SECRET")];
const TOKEN: &str = "GOOGLE_BEARER_TOKEN";
/// Service accounts, and the library's names of these settings. The first two are one setting.
const ACCOUNTS: [(&str, &str); 4] = [
    ("GOOGLE_SERVICE_ACCOUNT", "google_service_account"),
    ("GOOGLE_SERVICE_ACCOUNT_PATH", "google_service_account"),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", "google_service_account_key"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "google_application_credentials"),
];

pub(super) fn find(given: &mut Given<'_>, user: StoreUser) -> Result<Found, Error> {
    let names_server = given.keys.endpoint_url.is_some() || !given.keys.endpoint_uris.is_empty();
    // An emulator speaks HTTP unless its address says otherwise.
    let emulator = given.variable(EMULATOR).map(|host| (EMULATOR.to_owned(), with_scheme(&host, false)));
    let is_emulated = emulator.is_some() && !names_server;
    let sources = AddressSources { last: emulator, ..AddressSources::default() };
    let endpoints = endpoints(given, user, sources)?;
    let (credentials, credentials_from) = credentials(given, is_emulated)?;
    let is_signed = matches!(credentials, CredentialSource::Keys { .. });
    if !is_signed && given.keys.region.is_some() {
        let why = "only requests that are signed with HMAC keys name a region in Google Cloud Storage";
        given.unused(REGION, why);
    }
    Ok(Found {
        endpoints,
        region: given.keys.region.clone().filter(|_| is_signed),
        path_style: None,
        account: None,
        credentials,
        credentials_from,
        ca_bundle: None,
    })
}

/// The first way that is given. An HMAC key has no session token.
fn credentials(given: &mut Given<'_>, is_emulated: bool) -> Result<(CredentialSource, String), Error> {
    let keys = given.access_key(None)?;
    let is_set = |name: &'static str| (name, given.variable(name).is_some());
    let mut ways = vec![
        (ANONYMOUS, given.keys.anonymous),
        (ACCESS_KEY, keys.is_some()),
        (NO_SIGN, given.is_true(NO_SIGN)),
        is_set(HMAC[0].0),
        is_set(HMAC[1].0),
        is_set(TOKEN),
    ];
    ways.extend(ACCOUNTS.map(|(name, _)| is_set(name)));
    let [first, second] = [ACCOUNTS[0].0, ACCOUNTS[1].0].map(|name| given.variable(name));
    if first == second {
        ways.retain(|(name, _)| *name != ACCOUNTS[1].0);
    }
    let chosen = given.choose(&ways);
    let value = chosen.and_then(|name| given.variable(name)).map(Secret::new);
    match (chosen, keys, value) {
        (Some(ACCESS_KEY), Some(keys), _) => Ok((keys, "keys of the workload".to_owned())),
        (Some(why @ (ANONYMOUS | NO_SIGN)), ..) => Ok(unsigned(why)),
        (Some(name), _, Some(value)) => {
            Ok((by_variable(given, name, value)?, format!("environment: {name}")))
        }
        _ if is_emulated => Ok(unsigned(EMULATOR)),
        _ => Ok(without_settings(given)),
    }
}

fn by_variable(given: &Given<'_>, name: &str, value: Secret) -> Result<CredentialSource, Error> {
    if let Some((_, other)) = HMAC.into_iter().find(|(id, _)| *id == name) {
        let secret = given.variable(other).map(Secret::new);
        let secret = secret.ok_or_else(|| refused(format!("{name} is set, but {other} is not; set both")))?;
        return Ok(CredentialSource::Keys { id: value, secret, token: None });
    }
    Ok(match ACCOUNTS.into_iter().find(|(account, _)| *account == name) {
        Some((_, setting)) => library([(setting, Some(value))]),
        None => CredentialSource::Bearer(value),
    })
}

/// The file that gcloud writes counts, then the metadata server.
fn without_settings(given: &Given<'_>) -> (CredentialSource, String) {
    let folder = given.variable("CLOUDSDK_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(given.variable("HOME")?).join(".config/gcloud")));
    let file = folder.map(|folder| folder.join("application_default_credentials.json"));
    match file.filter(|file| file.is_file()) {
        Some(file) => {
            let shown = file.display().to_string();
            let path = Some(Secret::new(shown.clone()));
            (library([("google_application_credentials", path)]), format!("file {shown}"))
        }
        None => {
            let from = "the metadata server, because no keys and no service account were found";
            (library::<0>([]), from.to_owned())
        }
    }
}
