//! Google Cloud Storage: HMAC keys, service accounts, the files of gcloud, and the metadata server.

use std::path::PathBuf;

use model::objects::CredentialSource;
use model::secret::Secret;

use super::network::endpoints;
use super::{Found, Given, StoreUser, library, refused};
use crate::error::Error;

const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// HMAC keys have no usual names; these two are the most frequent ones.
const HMAC: [(&str, &str); 2] =
    [("GCS_ACCESS_KEY_ID", "GCS_SECRET_ACCESS_KEY"), ("GOOGLE_HMAC_ACCESS_ID", "GOOGLE_HMAC_SECRET")];
const FILES: [&str; 2] = ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"];
const OTHERS: [&str; 8] = [
    "GCS_ACCESS_KEY_ID",
    "GOOGLE_HMAC_ACCESS_ID",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    EMULATOR,
];

pub(super) fn find(given: &mut Given<'_>, user: StoreUser) -> Result<Found, Error> {
    // An emulator speaks HTTP unless its address says otherwise.
    let variable = given.variable(EMULATOR);
    let has_key = given.keys.endpoint_url.is_some() || !given.keys.endpoint_uris.is_empty();
    let mut found = endpoints(given, user, &[EMULATOR])?;
    if let Some(host) = variable.filter(|host| !has_key && !host.contains("://")) {
        found = vec![super::network::with_scheme(&host, false)];
    }
    let (credentials, credentials_from) = credentials(given, has_key)?;
    let is_signed = matches!(credentials, CredentialSource::Keys { .. });
    if !is_signed && given.keys.region.is_some() {
        let why = "only requests that are signed with HMAC keys name a region in Google Cloud Storage";
        given.unused("storage.storage_options.region", why);
    }
    Ok(Found {
        endpoints: found,
        region: given.keys.region.clone().filter(|_| is_signed),
        path_style: None,
        account: None,
        credentials,
        credentials_from,
        ca_bundle: None,
    })
}

/// The first way that is given. The others are reported, apart from an emulator's address, which is used.
fn credentials(given: &mut Given<'_>, has_endpoint: bool) -> Result<(CredentialSource, String), Error> {
    let keys = given.access_key()?;
    if given.keys.anonymous {
        let given_keys = [("storage.storage_options.access_key_id", keys.is_some())];
        given.unused_keys(&given_keys, "storage.anonymous is true");
        given.unused_variables(&OTHERS[..7], "storage.anonymous is true");
        return Ok((CredentialSource::Anonymous, "none: storage.anonymous is true".to_owned()));
    }
    let (name, source, from) = match keys {
        Some(keys) => {
            let key = "storage.storage_options.access_key_id";
            (key, keys, "keys of the workload".to_owned())
        }
        None => match by_variables(given)? {
            Some((name, source)) => (name, source, format!("environment: {name}")),
            None => return Ok(without_variables(given, has_endpoint)),
        },
    };
    let others: Vec<&str> =
        OTHERS[..7].iter().copied().filter(|other| *other != name && !is_pair(name, other)).collect();
    given.unused_variables(&others, &format!("{name} is given"));
    Ok((source, from))
}

/// The two names of the file of a service account are one setting.
fn is_pair(name: &str, other: &str) -> bool {
    FILES.contains(&name) && FILES.contains(&other)
}

fn by_variables(given: &Given<'_>) -> Result<Option<(&'static str, CredentialSource)>, Error> {
    for (id, secret) in HMAC {
        match (given.secret(&[id]), given.secret(&[secret])) {
            (Some((_, key)), Some((_, value))) => {
                return Ok(Some((id, CredentialSource::Keys { id: key, secret: value, token: None })));
            }
            (Some(_), None) => return Err(refused(format!("{id} is set, but {secret} is not; set both"))),
            (None, _) => {}
        }
    }
    if let Some((name, token)) = given.secret(&["GOOGLE_BEARER_TOKEN"]) {
        return Ok(Some((name, CredentialSource::Bearer(token))));
    }
    let settings = [
        (&FILES[..], "google_service_account"),
        (&["GOOGLE_SERVICE_ACCOUNT_KEY"], "google_service_account_key"),
        (&["GOOGLE_APPLICATION_CREDENTIALS"], "google_application_credentials"),
    ];
    let found = settings.into_iter().find_map(|(names, setting)| {
        let (name, value) = given.secret(names)?;
        Some((name, library([(setting, Some(value))])))
    });
    Ok(found)
}

/// An emulator needs no credentials. Otherwise the file that gcloud writes counts, then the metadata server.
fn without_variables(given: &Given<'_>, has_endpoint: bool) -> (CredentialSource, String) {
    if given.variable(EMULATOR).is_some() && !has_endpoint {
        return (CredentialSource::Anonymous, format!("none: {EMULATOR} is set"));
    }
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
