//! How to reach an object store: from the keys of the workload, then the environment, then profile files, then the
//! roles of the container or host. Reads no file but profiles, and accesses no store.
//!
//! Every value that was given but is not used is reported. No message contains a value of a secret.

mod amazon;
mod azure;
mod google;
mod network;
mod profile;
#[cfg(test)]
mod tests;

use model::location::Location;
use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, RetryPolicy, Service};
use model::secret::Secret;
use model::spec::{ObjectSpec, Spec};
use model::units::Nanos;
use model::warning::Warning;

use crate::backend::ask_of_place;
use crate::error::Error;

/// Looks up a variable of the environment.
pub(crate) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process that opens a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreUser {
    /// Its number in the run.
    pub(crate) process: u64,
    /// Readers that it runs.
    pub(crate) readers: u64,
}

/// Where the credentials for a service come from if the workload says nothing about them. It contains no value of a
/// secret.
pub fn credentials_from(service: Service) -> Result<String, Error> {
    let place = ObjectPlace { service, bucket: "bucket".to_owned(), prefix: String::new() };
    let asked = ask_of_place(Location::Objects(place.clone()), Vec::new())?;
    let environment = |name: &str| std::env::var(name).ok();
    let (options, _) = options(&asked.spec, &place, StoreUser { process: 0, readers: 1 }, &environment)?;
    Ok(options.credentials_from)
}

/// The way to reach a place of an object store, and what was given without effect.
pub(crate) fn options(
    spec: &Spec,
    place: &ObjectPlace,
    user: StoreUser,
    environment: VariableLookup<'_>,
) -> Result<(ObjectOptions, Vec<Warning>), Error> {
    let mut given = Given { keys: &spec.storage.objects, environment, warnings: Vec::new() };
    given.report_keys_of_others(place.service);
    let found = match place.service {
        Service::S3 => amazon::find(&mut given, user)?,
        Service::Gcs => google::find(&mut given, user)?,
        Service::Azure => azure::find(&mut given, user, spec.account_of_data())?,
    };
    let Found { endpoints, region, path_style, account, credentials, credentials_from, ca_bundle } = found;
    let (proxy, no_proxy) = network::proxy(&mut given, &endpoints)?;
    let options = ObjectOptions {
        endpoints,
        region,
        path_style,
        account,
        credentials,
        credentials_from,
        ca_bundle: given.ca_bundle(ca_bundle),
        proxy,
        no_proxy,
        requests_in_flight: requests_in_flight(given.keys, user.readers),
        part_bytes: given.keys.part_size,
        parts_in_flight: given.keys.parts_in_flight,
        retry: given.retry(),
    };
    if given.keys.proxy.is_some() && store::avoids_proxy(place, &options) {
        given.unused("storage.proxy", "NO_PROXY excludes the server");
    }
    Ok((options, given.warnings))
}

/// What differs from service to service.
#[derive(Debug)]
struct Found {
    endpoints: Vec<String>,
    region: Option<String>,
    path_style: Option<bool>,
    account: Option<String>,
    credentials: CredentialSource,
    credentials_from: String,
    /// Certificates that count if neither the workload nor the environment names any.
    ca_bundle: Option<NamedValue>,
}

/// A value, and the setting that has it, as messages call it.
type NamedValue<T = String> = (String, T);

const ANONYMOUS: &str = "storage.anonymous";
const ACCESS_KEY: &str = "storage.storage_options.access_key_id";
const REGION: &str = "storage.storage_options.region";

/// Why another setting is not used.
fn because(used: &str) -> String {
    let is_variable = used.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    match used {
        ANONYMOUS => format!("{used} is true"),
        _ if is_variable => format!("{used} is set"),
        _ => format!("{used} is given"),
    }
}

/// What results say about requests without credentials.
fn unsigned(why: &str) -> (CredentialSource, String) {
    (CredentialSource::Anonymous, format!("none: {}", because(why)))
}

/// DLIO counts requests per worker, feedline per process.
fn requests_in_flight(keys: &ObjectSpec, readers: u64) -> u64 {
    let per_reader = keys.prefetch_window.into_iter().chain(keys.max_outstanding).min();
    let of_readers = per_reader.map_or(u64::MAX, |each| each.saturating_mul(readers.max(1)));
    keys.requests_in_flight.min(of_readers)
}

/// What was given, and what of it turned out to be of no use.
struct Given<'a> {
    keys: &'a ObjectSpec,
    environment: VariableLookup<'a>,
    warnings: Vec<Warning>,
}

impl Given<'_> {
    /// A variable; an empty one counts as not set.
    fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Those of these variables that are set, with their values.
    fn variables(&self, names: &[&str]) -> Vec<NamedValue> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.variable(name)?))).collect()
    }

    /// The first of several settings of the same value counts. Those that say something else are reported.
    fn pick<T: PartialEq>(&mut self, settings: Vec<NamedValue<T>>) -> Option<NamedValue<T>> {
        let mut settings = settings.into_iter();
        let (used, value) = settings.next()?;
        for (other, _) in settings.filter(|(_, other)| *other != value) {
            self.unused(&other, &because(&used));
        }
        Some((used, value))
    }

    /// The first of several variables of the same value that is set.
    fn first(&mut self, names: &[&str]) -> Option<NamedValue> {
        self.pick(self.variables(names))
    }

    /// A secret in the first of several variables that is set.
    fn secret(&mut self, names: &[&str]) -> Option<NamedValue<Secret>> {
        self.first(names).map(|(name, value)| (name, Secret::new(value)))
    }

    fn is_true(&self, name: &str) -> bool {
        self.variable(name).is_some_and(|value| ["true", "1", "yes"].contains(&value.to_lowercase().as_str()))
    }

    /// Reports a setting that is not used.
    fn unused(&mut self, setting: &str, why: &str) {
        let warning = Warning::Unused { setting: setting.to_owned(), why: why.to_owned() };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Reports those of these keys that are given.
    fn unused_keys(&mut self, keys: &[(&str, bool)], why: &str) {
        for (key, _) in keys.iter().filter(|(_, is_given)| *is_given) {
            self.unused(key, why);
        }
    }

    /// Reports those of these variables that are set.
    fn unused_variables(&mut self, names: &[&str], why: &str) {
        for (name, _) in self.variables(names) {
            self.unused(&name, why);
        }
    }

    /// Chooses between ways to get credentials: the first one that is given. The others are reported.
    fn choose(&mut self, ways: &[(&'static str, bool)]) -> Option<&'static str> {
        let mut given = ways.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name);
        let chosen = given.next()?;
        for other in given {
            self.unused(other, &because(chosen));
        }
        Some(chosen)
    }

    /// The file of certificates: the key's, the variable's, or that of a profile.
    fn ca_bundle(&mut self, of_profile: Option<NamedValue>) -> Option<String> {
        let of_key = self.keys.ca_bundle.clone().map(|path| ("storage.ca_bundle".to_owned(), path));
        let of_variable = self.variables(&["AWS_CA_BUNDLE"]);
        let all = of_key.into_iter().chain(of_variable).chain(of_profile).collect();
        self.pick(all).map(|(_, path)| path)
    }

    /// Reports keys that only another service has.
    fn report_keys_of_others(&mut self, service: Service) {
        let keys = self.keys;
        let of_azure = [
            ("storage.account", keys.account.is_some()),
            ("storage.account_key", keys.account_key.is_some()),
            ("storage.sas_token", keys.sas_token.is_some()),
            ("storage.storage_options.connection_string", keys.connection_string.is_some()),
            ("storage.storage_options.account_url", keys.account_url.is_some()),
            ("storage.storage_options.account_name", keys.account_name.is_some()),
        ];
        let of_keys = [
            (ACCESS_KEY, keys.access_key_id.is_some()),
            ("storage.storage_options.secret_access_key", keys.secret_access_key.is_some()),
        ];
        let of_s3 = [
            ("storage.storage_options.session_token", keys.session_token.is_some()),
            ("storage.storage_options.s3_profile", keys.s3_profile.is_some()),
            ("storage.storage_options.s3_force_path_style", keys.s3_force_path_style),
        ];
        if service != Service::Azure {
            self.unused_keys(&of_azure, "it is for Azure");
        } else {
            self.unused_keys(
                &of_keys,
                "it is for S3 and Google Cloud Storage; Azure has storage.account_key",
            );
            let region = [(REGION, keys.region.is_some())];
            self.unused_keys(&region, "the account determines the region in Azure");
        }
        if service != Service::S3 {
            self.unused_keys(&of_s3, "it is for S3");
        }
    }

    /// The access key of the workload; an error if it is not complete. Only S3 has a session token.
    fn access_key(&self, token: Option<&Secret>) -> Result<Option<CredentialSource>, Error> {
        let ObjectSpec { access_key_id, secret_access_key, .. } = self.keys;
        match (access_key_id, secret_access_key) {
            (Some(id), Some(secret)) => Ok(Some(CredentialSource::Keys {
                id: id.clone(),
                secret: secret.clone(),
                token: token.cloned(),
            })),
            (None, None) => Ok(None),
            (id, _) => {
                let [there, missing] = match id {
                    Some(_) => ["access_key_id", "secret_access_key"],
                    None => ["secret_access_key", "access_key_id"],
                };
                Err(refused(format!(
                    "storage.storage_options.{there} is given without {missing}; give both, or neither to use the \
                     environment"
                )))
            }
        }
    }

    fn retry(&mut self) -> RetryPolicy {
        let defaults = RetryPolicy::default();
        let ObjectSpec { retry_attempts, s3_max_attempts, retry_deadline, silence_timeout, .. } = *self.keys;
        if retry_attempts.is_some() && s3_max_attempts != u64::from(defaults.attempts) {
            let key = "storage.storage_options.s3_max_attempts";
            self.unused(key, "storage.retry_attempts is given");
        }
        // A library's 0 turns retries off, and the first attempt remains.
        let attempts = retry_attempts.unwrap_or(s3_max_attempts).max(1);
        RetryPolicy {
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            deadline: Nanos::from_seconds(retry_deadline),
            silence: Nanos::from_seconds(silence_timeout),
            ..defaults
        }
    }
}

/// An error in what was given.
fn refused(what: String) -> Error {
    Error::ObjectSettings(what)
}

/// Settings for the library, by its own names.
fn library<const N: usize>(settings: [(&str, Option<Secret>); N]) -> CredentialSource {
    let given = settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    CredentialSource::Library(given.collect())
}
