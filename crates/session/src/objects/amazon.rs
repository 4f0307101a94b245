//! S3: keys, profiles and roles, in the order of Amazon's own programs.

use model::objects::CredentialSource;
use model::secret::Secret;
use model::spec::address_mistake;

use super::network::{endpoints, with_scheme};
use super::profile::{self, Profile};
use super::{Found, Given, StoreUser, library, refused};
use crate::error::Error;

const ENDPOINTS: [&str; 3] = ["S3_ENDPOINT_URIS", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
/// Variables of mlpstorage that DLIO does not read either.
const IGNORED_ENDPOINTS: [&str; 3] = ["S3_ENDPOINT_TEMPLATE", "S3_ENDPOINT_FILE", "S3_ENDPOINT"];
const PROFILE_KEY: &str = "storage.storage_options.s3_profile";
const BY_METADATA: &str = "the instance metadata service, because no keys, profile or role were found";

pub(super) fn find(given: &mut Given<'_>, user: StoreUser) -> Result<Found, Error> {
    let by_variable = given.variable("AWS_PROFILE").or_else(|| given.variable("AWS_DEFAULT_PROFILE"));
    let named = match (&given.keys.s3_profile, &by_variable) {
        (Some(name), _) => Some((PROFILE_KEY, name.as_str())),
        (None, Some(name)) => Some(("AWS_PROFILE", name.as_str())),
        (None, None) => None,
    };
    let profile = profile::read(given, named)?;
    if given.keys.s3_profile.is_some() && by_variable.is_some() {
        given.unused("AWS_PROFILE", &format!("{PROFILE_KEY} is given"));
    }
    let (credentials, credentials_from) = credentials(given, &profile)?;
    let mut found = endpoints(given, user, &ENDPOINTS)?;
    given.unused_variables(&IGNORED_ENDPOINTS, "feedline reads S3_ENDPOINT_URIS and AWS_ENDPOINT_URL");
    if let Some(endpoint) = profile.get("endpoint_url").filter(|_| found.is_empty()) {
        if let Some((what, help)) = address_mistake(endpoint) {
            let name = &profile.name;
            return Err(refused(format!("endpoint_url in the profile '{name}' {what}; {help}")));
        }
        found.push(with_scheme(endpoint, given.keys.secure));
    }
    let of_profile = match profile.get("s3.addressing_style") {
        Some("path") => Some(true),
        Some("virtual") => Some(false),
        _ => None,
    };
    let ca_bundle = given.variable("AWS_CA_BUNDLE");
    if given.keys.ca_bundle.is_some() && ca_bundle.is_some() {
        given.unused("AWS_CA_BUNDLE", "storage.ca_bundle is given");
    }
    Ok(Found {
        endpoints: found,
        region: region(given, &profile),
        path_style: if given.keys.s3_force_path_style { Some(true) } else { of_profile },
        account: None,
        credentials,
        credentials_from,
        ca_bundle: ca_bundle.or_else(|| profile.get("ca_bundle").map(str::to_owned)),
    })
}

fn region(given: &mut Given<'_>, profile: &Profile) -> Option<String> {
    let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"];
    match (&given.keys.region, given.first(&variables)) {
        (Some(region), Some((name, other))) if other != *region => {
            given.unused(name, "storage.storage_options.region is given");
            Some(region.clone())
        }
        (Some(region), _) => Some(region.clone()),
        (None, Some((_, region))) => Some(region),
        (None, None) => profile.get("region").map(str::to_owned),
    }
}

/// The credentials, and where they come from.
fn credentials(given: &mut Given<'_>, profile: &Profile) -> Result<(CredentialSource, String), Error> {
    let keys = given.access_key()?;
    let by_profile_key = given.keys.s3_profile.is_some();
    let of_environment = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"];
    let ways = [("storage.storage_options.access_key_id", keys.is_some()), (PROFILE_KEY, by_profile_key)];
    if given.keys.anonymous {
        given.unused_keys(&ways, "storage.anonymous is true");
        given.unused_variables(&of_environment, "storage.anonymous is true");
        return Ok((CredentialSource::Anonymous, "none: storage.anonymous is true".to_owned()));
    }
    if let Some(keys) = keys {
        let why = "storage.storage_options.access_key_id is given";
        given.unused_keys(&ways[1..], why);
        given.unused_variables(&of_environment, why);
        return Ok((keys, "keys of the workload".to_owned()));
    }
    if by_profile_key {
        given.unused_variables(&of_environment, &format!("{PROFILE_KEY} is given"));
        return of_profile(profile)?.ok_or_else(|| {
            refused(format!("{PROFILE_KEY} names the profile '{}', which has no access key", profile.name))
        });
    }
    if let Some(keys) = by_variables(given)? {
        if profile.get("aws_access_key_id").is_some() && profile.name != "default" {
            given.unused(
                &format!("the access key of the profile '{}'", profile.name),
                "AWS_ACCESS_KEY_ID is set",
            );
        }
        given.unused_variables(&of_environment[1..], "AWS_ACCESS_KEY_ID is set");
        return Ok((keys, "environment: AWS_ACCESS_KEY_ID".to_owned()));
    }
    if let Some(found) = web_identity(given)? {
        return Ok(found);
    }
    match of_profile(profile)? {
        Some(found) => Ok(found),
        None => role(given),
    }
}

/// The access key in the environment; an error if it is not complete.
fn by_variables(given: &Given<'_>) -> Result<Option<CredentialSource>, Error> {
    let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| given.secret(&[name]));
    let token = given.secret(&["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"]).map(|(_, token)| token);
    match (id, secret) {
        (Some((_, id)), Some((_, secret))) => Ok(Some(CredentialSource::Keys { id, secret, token })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(refused(missing("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))),
        (None, Some(_)) => Err(refused(missing("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"))),
    }
}

fn missing(there: &str, other: &str) -> String {
    format!("{there} is set, but {other} is not; set both, or neither")
}

fn web_identity(given: &Given<'_>) -> Result<Option<(CredentialSource, String)>, Error> {
    let [file, role, session, sts] =
        ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS"]
            .map(|name| given.secret(&[name]).map(|(_, value)| value));
    let region = given.keys.region.clone().map(Secret::new);
    let region = region.or_else(|| Some(given.secret(&["AWS_REGION", "AWS_DEFAULT_REGION"])?.1));
    match (&file, &role) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(refused(missing("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"))),
        (Some(_), Some(_)) => {
            let settings = [
                ("aws_web_identity_token_file", file),
                ("aws_role_arn", role),
                ("aws_role_session_name", session),
                ("aws_endpoint_url_sts", sts),
                ("aws_region", region),
            ];
            Ok(Some((
                library(settings),
                "environment: AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN".to_owned(),
            )))
        }
    }
}

/// The access key of a profile; an error for a profile whose credentials feedline cannot fetch.
fn of_profile(profile: &Profile) -> Result<Option<(CredentialSource, String)>, Error> {
    let name = &profile.name;
    let value = |key: &str| profile.get(key).map(Secret::new);
    match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        (Some(id), Some(secret)) => {
            let keys = CredentialSource::Keys { id, secret, token: value("aws_session_token") };
            Ok(Some((keys, format!("profile '{name}'"))))
        }
        (None, None) => match profile.unsupported() {
            None => Ok(None),
            Some(key) => Err(refused(format!(
                "the profile '{name}' fetches its credentials by {key}, which feedline does not do; export them, for \
                 example with 'eval \"$(aws configure export-credentials --profile {name} --format env)\"'"
            ))),
        },
        _ => Err(refused(format!(
            "the profile '{name}' has only one of aws_access_key_id and aws_secret_access_key"
        ))),
    }
}

/// The role of the container, else of the host.
fn role(given: &Given<'_>) -> Result<(CredentialSource, String), Error> {
    let value = |name: &'static str| given.secret(&[name]).map(|(_, value)| value);
    if let Some(uri) = value("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        let settings = [("aws_container_credentials_relative_uri", Some(uri))];
        return Ok((library(settings), "container: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI".to_owned()));
    }
    if let Some(uri) = value("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        let file = value("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        if file.is_none() {
            return Err(refused(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is set without AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE; feedline \
                 needs the file with the token"
                    .to_owned(),
            ));
        }
        let settings = [
            ("aws_container_credentials_full_uri", Some(uri)),
            ("aws_container_authorization_token_file", file),
        ];
        return Ok((library(settings), "container: AWS_CONTAINER_CREDENTIALS_FULL_URI".to_owned()));
    }
    if given.is_true("AWS_EC2_METADATA_DISABLED") {
        return Err(refused(
            "there are no credentials for S3: no keys in the workload, no AWS_ACCESS_KEY_ID, no profile, no role of a \
             container, and AWS_EC2_METADATA_DISABLED is true; give one of them, or set storage.anonymous=true for a \
             public bucket"
                .to_owned(),
        ));
    }
    let endpoint = given.secret(&["AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_METADATA_ENDPOINT"]);
    Ok((library([("aws_metadata_endpoint", endpoint.map(|(_, url)| url))]), BY_METADATA.to_owned()))
}
