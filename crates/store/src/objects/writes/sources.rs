//! Where credentials come from. Keys and tokens that the options name are used as they are. Those of a role, a metadata
//! service or a file are fetched by the library, when a store is opened and again before they expire.

use std::sync::Arc;
use std::time::Duration;

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, Service};
use model::secret::Secret;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::azure::{AzureConfigKey, AzureCredential, AzureCredentialProvider, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use tokio::time::timeout;

use super::super::credential::Credential;
use super::library::{azure_credential, wire};
use super::seen::Seen;
use super::wire::{Wire, gives_credentials, observed};
use crate::StoreError;

/// How long the source of credentials may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked for new ones. The library answers from memory until the old ones are about to expire.
pub(super) const RENEWAL: Duration = Duration::from_secs(60);

/// The pause after it was asked because a credential was refused: many requests are refused at the same time.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The credential that the options themselves contain; `None` if the library fetches it.
pub(super) fn given(
    place: &ObjectPlace,
    source: &CredentialSource,
) -> Result<Option<Credential>, StoreError> {
    let credential = match source.clone() {
        CredentialSource::Anonymous => Credential::Anonymous,
        CredentialSource::Keys { id, secret, token } => Credential::Keys { id, secret, token },
        CredentialSource::AccountKey(key) => Credential::AccountKey(key),
        CredentialSource::SharedAccess(query) => Credential::SharedAccess(query),
        CredentialSource::Bearer(token) => Credential::Bearer(token),
        CredentialSource::Library(_) => return Ok(None),
    };
    let fits = match place.service {
        Service::S3 => matches!(credential, Credential::Anonymous | Credential::Keys { .. }),
        Service::Gcs => {
            matches!(credential, Credential::Anonymous | Credential::Keys { .. } | Credential::Bearer(_))
        }
        Service::Azure => {
            matches!(credential, Credential::Anonymous) || azure_credential(&credential).is_ok()
        }
    };
    if fits {
        return Ok(Some(credential));
    }
    Err(StoreError::Refused(format!(
        "the credentials for {place} are not of a kind that {} accepts, or not well-formed",
        service_name(place.service)
    )))
}

fn service_name(service: Service) -> &'static str {
    match service {
        Service::S3 => "S3",
        Service::Gcs => "Google Cloud Storage",
        Service::Azure => "Azure Blob Storage",
    }
}

/// What fetches the credential of a service.
#[derive(Clone, Debug)]
enum Provider {
    Aws(AwsCredentialProvider),
    Gcp(GcpCredentialProvider),
    Azure(AzureCredentialProvider),
}

/// Fetches credentials with the library.
#[derive(Debug)]
pub(super) struct Fetcher {
    provider: Provider,
    place: ObjectPlace,
    options: ObjectOptions,
}

impl Fetcher {
    /// What fetches the credentials of these options; `None` if the options contain them.
    pub(super) fn new(place: &ObjectPlace, options: &ObjectOptions) -> Result<Option<Fetcher>, StoreError> {
        let CredentialSource::Library(settings) = &options.credentials else { return Ok(None) };
        check(place, settings)?;
        let wire = wire(options, None, &Arc::default())?;
        let provider = match place.service {
            Service::S3 => aws(place, options, settings, wire),
            Service::Gcs => gcp(place, settings, wire),
            Service::Azure => azure(place, options, settings, wire),
        };
        let named: Vec<&str> = settings.iter().map(|(key, _)| key.as_str()).collect();
        let provider = provider.map_err(|_| {
            StoreError::Refused(format!(
                "the credentials for {place} cannot be read; check what is set: {}",
                if named.is_empty() { "nothing".to_owned() } else { named.join(", ") }
            ))
        })?;
        Ok(Some(Fetcher { provider, place: place.clone(), options: options.clone() }))
    }

    /// The same without what the library remembers, to get other credentials before the old ones expire.
    pub(super) fn afresh(&self) -> Result<Option<Fetcher>, StoreError> {
        Fetcher::new(&self.place, &self.options)
    }

    /// The current credential.
    pub(super) async fn fetch(&self) -> Result<Credential, StoreError> {
        let (fetched, seen) = observed(timeout(PATIENCE, self.provider.fetch())).await;
        match fetched {
            Ok(Ok(Some(credential))) => Ok(credential),
            Ok(Ok(None)) => Err(StoreError::Refused(format!(
                "the library fetched a credential for {} that feedline cannot use",
                self.place
            ))),
            Ok(Err(_)) => Err(self.unavailable(&seen, "")),
            Err(_) => Err(self.unavailable(&seen, "no answer within 5 s")),
        }
    }

    fn unavailable(&self, seen: &Seen, how: &str) -> StoreError {
        let host = seen.endpoint.split(':').next().unwrap_or_default();
        let asked = match (gives_credentials(host), self.place.service) {
            _ if host.is_empty() => "no service".to_owned(),
            (true, Service::S3) if host == "169.254.170.2" => {
                format!("the container's credentials service ({host})")
            }
            (true, _) => format!("the metadata service of the instance ({host})"),
            (false, _) => format!("the token service {}", seen.endpoint),
        };
        let how = match (&seen.lost, seen.status) {
            _ if !how.is_empty() => how.to_owned(),
            (Some(lost), _) => lost.cause.clone(),
            (None, Some(status)) if seen.code.is_empty() => format!("it answered {status}"),
            (None, Some(status)) => format!("it answered {status} {}", seen.code),
            (None, None) => "a file could not be read, or a program could not be run".to_owned(),
        };
        StoreError::Refused(format!(
            "there are no credentials for {}: {asked} was asked, because no keys are set: {how}; set keys, or \
             anonymous access for a public bucket",
            self.place
        ))
    }
}

impl Provider {
    async fn fetch(&self) -> object_store::Result<Option<Credential>> {
        Ok(match self {
            Provider::Aws(provider) => {
                let keys = provider.get_credential().await?;
                Some(Credential::Keys {
                    id: Secret::new(&keys.key_id),
                    secret: Secret::new(&keys.secret_key),
                    token: keys.token.as_deref().map(Secret::new),
                })
            }
            Provider::Gcp(provider) => {
                Some(Credential::Bearer(Secret::new(&provider.get_credential().await?.bearer)))
            }
            Provider::Azure(provider) => match &*provider.get_credential().await? {
                AzureCredential::BearerToken(token) => Some(Credential::Bearer(Secret::new(token))),
                AzureCredential::AccessKey(_) | AzureCredential::SASToken(_) => None,
            },
        })
    }
}

/// Settings that would make the library ask another source than the one that is set.
fn check(place: &ObjectPlace, settings: &[(String, Secret)]) -> Result<(), StoreError> {
    let has = |name: &str| settings.iter().any(|(key, _)| key.to_lowercase().ends_with(name));
    let full_uri = has("container_credentials_full_uri") && !has("container_credentials_relative_uri");
    if place.service == Service::S3 && full_uri && !has("container_authorization_token_file") {
        return Err(StoreError::Refused(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI is supported together with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE \
             only; set that, or keys"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A few quick attempts: a source of credentials is near.
fn patience() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: 2, retry_timeout: PATIENCE }
}

fn aws(
    place: &ObjectPlace,
    options: &ObjectOptions,
    settings: &[(String, Secret)],
    wire: Wire,
) -> object_store::Result<Provider> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&place.bucket)
        .with_region(options.region.as_deref().unwrap_or("us-east-1"))
        .with_http_connector(wire)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(patience());
    for (key, value) in settings {
        builder = builder.with_config(key.to_lowercase().parse::<AmazonS3ConfigKey>()?, value.expose());
    }
    Ok(Provider::Aws(Arc::clone(builder.build()?.credentials())))
}

fn gcp(place: &ObjectPlace, settings: &[(String, Secret)], wire: Wire) -> object_store::Result<Provider> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&place.bucket)
        .with_http_connector(wire)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(patience());
    for (key, value) in settings {
        builder = builder.with_config(key.to_lowercase().parse::<GoogleConfigKey>()?, value.expose());
    }
    Ok(Provider::Gcp(Arc::clone(builder.build()?.credentials())))
}

fn azure(
    place: &ObjectPlace,
    options: &ObjectOptions,
    settings: &[(String, Secret)],
    wire: Wire,
) -> object_store::Result<Provider> {
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(&place.bucket)
        .with_account(options.account.as_deref().unwrap_or_default())
        .with_http_connector(wire)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(patience());
    for (key, value) in settings {
        builder = builder.with_config(key.to_lowercase().parse::<AzureConfigKey>()?, value.expose());
    }
    Ok(Provider::Azure(Arc::clone(builder.build()?.credentials())))
}
