//! S3: keys, profiles and roles, in the order of Amazon's own programs.

use model::objects::CredentialSource;
use model::secret::Secret;
use model::warning::Warning;

use super::network::{AddressSources, endpoints};
use super::profile::{self, Profile, UnusableProfile};
use super::{
    ACCESS_KEY, ANONYMOUS, Found, Given, NamedValue, REGION, StoreUser, because, library, refused, unsigned,
};
use crate::error::Error;

const ENDPOINTS: [&str; 3] = ["S3_ENDPOINT_URIS", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
/// Variables of mlpstorage that DLIO does not read either.
const IGNORED_ENDPOINTS: [&str; 3] = ["S3_ENDPOINT_TEMPLATE", "S3_ENDPOINT_FILE", "S3_ENDPOINT"];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const PROFILES: [&str; 2] = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"];
const PROFILE_KEY: &str = "storage.storage_options.s3_profile";
const TOKENS: [&str; 2] = ["AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"];
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const WEB_IDENTITY: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
/// GDAL's variable for public buckets; `--no-sign-request` is the flag of Amazon's own program.
const NO_SIGN: &str = "AWS_NO_SIGN_REQUEST";
const BY_METADATA: &str = "the instance metadata service, because no keys, profile or role were found";

pub(super) fn find(given: &mut Given<'_>, user: StoreUser) -> Result<Found, Error> {
    let of_key = given.keys.s3_profile.clone().map(|name| (PROFILE_KEY.to_owned(), name));
    let named = given.pick(of_key.into_iter().chain(given.variables(&PROFILES)).collect());
    let read = profile::read(given, named.as_ref());
    let (credentials, credentials_from) = credentials(given, &read)?;
    let profile = read.unwrap_or_else(|UnusableProfile { name, why }| {
        given.warnings.push(Warning::ProfileNotRead { profile: name, why });
        Profile::default()
    });
    let (variables, last) = (&ENDPOINTS[..], profile.named("endpoint_url"));
    let endpoints = endpoints(given, user, AddressSources { keys: Vec::new(), variables, last })?;
    given.unused_variables(&IGNORED_ENDPOINTS, "feedline reads S3_ENDPOINT_URIS and AWS_ENDPOINT_URL");
    Ok(Found {
        endpoints,
        region: region(given, profile.named("region")),
        path_style: path_style(given, &profile),
        account: None,
        credentials,
        credentials_from,
        ca_bundle: profile.named("ca_bundle"),
    })
}

fn region(given: &mut Given<'_>, of_profile: Option<NamedValue>) -> Option<String> {
    let of_key = given.keys.region.clone().map(|region| (REGION.to_owned(), region));
    let all = of_key.into_iter().chain(given.variables(&REGIONS)).chain(of_profile).collect();
    given.pick(all).map(|(_, region)| region)
}

fn path_style(given: &mut Given<'_>, profile: &Profile) -> Option<bool> {
    let of_key = given.keys.s3_force_path_style.then_some(true);
    let key = "storage.storage_options.s3_force_path_style";
    let of_profile = profile.named("s3.addressing_style").and_then(|(name, style)| match style.as_str() {
        "path" => Some((name, true)),
        "virtual" => Some((name, false)),
        _ => None,
    });
    let of_key = of_key.map(|style| (key.to_owned(), style));
    given.pick(of_key.into_iter().chain(of_profile).collect()).map(|(_, style)| style)
}

/// The credentials, and where they come from. An unusable profile is an error only if they have to come from it.
fn credentials(
    given: &mut Given<'_>,
    profile: &Result<Profile, UnusableProfile>,
) -> Result<(CredentialSource, String), Error> {
    let token = given.keys.session_token.as_ref();
    let keys = given.access_key(token)?;
    if token.is_some() && keys.is_none() {
        given.unused("storage.storage_options.session_token", &format!("{ACCESS_KEY} is not given"));
    }
    let of_environment = [KEY_ID, SECRET].map(|name| given.variable(name).is_some());
    let chosen = given.choose(&[
        (ANONYMOUS, given.keys.anonymous),
        (ACCESS_KEY, keys.is_some()),
        // If something better is given, other values of the profile still count.
        (PROFILE_KEY, given.keys.s3_profile.is_some() && !given.keys.anonymous && keys.is_none()),
        (NO_SIGN, given.is_true(NO_SIGN)),
        (if of_environment[0] { KEY_ID } else { SECRET }, of_environment.contains(&true)),
        (WEB_IDENTITY, given.variable(WEB_IDENTITY).is_some()),
    ]);
    if !of_environment.contains(&true) {
        given.unused_variables(&TOKENS, &format!("{KEY_ID} is not set"));
    }
    if let (Some(chosen), Ok(profile)) = (chosen.filter(|chosen| *chosen != PROFILE_KEY), profile) {
        report_key_of(given, profile, chosen);
    }
    let usable = || profile.as_ref().map_err(UnusableProfile::error);
    match (chosen, keys) {
        (Some(ACCESS_KEY), Some(keys)) => Ok((keys, "keys of the workload".to_owned())),
        (Some(why @ (ANONYMOUS | NO_SIGN)), _) => Ok(unsigned(why)),
        (Some(PROFILE_KEY), _) => of_profile(usable()?)?.ok_or_else(|| {
            let name = given.keys.s3_profile.as_deref().unwrap_or_default();
            refused(format!("{PROFILE_KEY} names the profile '{name}', which has no access key"))
        }),
        (Some(KEY_ID | SECRET), _) => by_variables(given),
        (Some(_), _) => web_identity(given),
        (None, _) => match of_profile(usable()?)? {
            Some(found) => Ok(found),
            None => role(given),
        },
    }
}

/// Reports the access key of a profile that something else wins over. The profile `default` is reported only if it is
/// named: variables beside it are usual.
fn report_key_of(given: &mut Given<'_>, profile: &Profile, chosen: &str) {
    let is_named = given.keys.s3_profile.is_some() || !given.variables(&PROFILES).is_empty();
    if is_named && profile.get("aws_access_key_id").is_some() {
        given.unused(&format!("the access key of the profile '{}'", profile.name), &because(chosen));
    }
}

/// The access key in the environment; an error if it is not complete.
fn by_variables(given: &mut Given<'_>) -> Result<(CredentialSource, String), Error> {
    let [id, secret] = [KEY_ID, SECRET].map(|name| given.secret(&[name]));
    let token = given.secret(&TOKENS).map(|(_, token)| token);
    match (id, secret) {
        (Some((_, id)), Some((_, secret))) => {
            Ok((CredentialSource::Keys { id, secret, token }, format!("environment: {KEY_ID}")))
        }
        (Some(_), _) => Err(refused(missing(KEY_ID, SECRET))),
        (None, _) => Err(refused(missing(SECRET, KEY_ID))),
    }
}

fn missing(there: &str, other: &str) -> String {
    format!("{there} is set, but {other} is not; set both, or neither")
}

fn web_identity(given: &mut Given<'_>) -> Result<(CredentialSource, String), Error> {
    let [file, role, session, sts] =
        [WEB_IDENTITY, "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS"]
            .map(|name| given.secret(&[name]).map(|(_, value)| value));
    if role.is_none() {
        return Err(refused(missing(WEB_IDENTITY, "AWS_ROLE_ARN")));
    }
    let settings = [
        ("aws_web_identity_token_file", file),
        ("aws_role_arn", role),
        ("aws_role_session_name", session),
        ("aws_endpoint_url_sts", sts),
        ("aws_region", region(given, None).map(Secret::new)),
    ];
    Ok((library(settings), format!("environment: {WEB_IDENTITY} and AWS_ROLE_ARN")))
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
fn role(given: &mut Given<'_>) -> Result<(CredentialSource, String), Error> {
    let mut value = |name: &str| given.secret(&[name]).map(|(_, value)| value);
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
