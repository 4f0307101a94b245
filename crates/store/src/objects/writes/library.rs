//! The clients of the library `object_store`: how the options of a store become its settings. Its own retries are off,
//! its requests go through [`Wire`], and it signs with the credential that all parts of a store share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use model::objects::{ObjectOptions, ObjectPlace, Service};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum, S3ConditionalPut};
use object_store::azure::{AzureAccessKey, AzureCredential, MicrosoftAzureBuilder, split_sas};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, CredentialProvider, ObjectStore, RetryConfig};
use reqwest::header::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::credential::{Credential, CredentialCell};
use super::super::proxy::Proxy;
use super::super::sign::region;
use super::google::GoogleSigner;
use super::wire::Wire;
use crate::{StoreError, WallClock};

/// How long it may take to make a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A client of the library for one endpoint.
pub(super) trait LibraryClient: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> LibraryClient for T {}

/// The settings of HTTP that all clients of a place share.
pub(super) fn wire(
    options: &ObjectOptions,
    signs: Option<GoogleSigner>,
    progress: &Arc<AtomicU64>,
) -> Result<Wire, StoreError> {
    let tls = tls(options.ca_bundle.as_deref())?;
    let builder = || {
        reqwest::Client::builder()
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT)
            .tls_backend_preconfigured(tls.clone())
    };
    let built = |builder: reqwest::ClientBuilder| {
        builder.build().map_err(|_| StoreError::Refused("the HTTP client cannot be set up".to_owned()))
    };
    let direct = built(builder())?;
    let client = match Proxy::of(options)? {
        None => direct.clone(),
        Some(proxy) => built(builder().proxy(library_proxy(proxy)?))?,
    };
    let (silence, progress) = (options.retry.silence.0.max(1), Arc::clone(progress));
    Ok(Wire { client, direct, silence: Duration::from_nanos(silence), progress, signs })
}

/// The proxy, with the rule of reads for the hosts that are reached through it.
fn library_proxy(proxy: Proxy) -> Result<reqwest::Proxy, StoreError> {
    let invalid = || StoreError::Refused("the URL of the proxy is not valid".to_owned());
    let url: reqwest::Url = format!("http://{}", proxy.label()).parse().map_err(|_| invalid())?;
    let authorization = proxy.authorization.clone();
    let through = reqwest::Proxy::custom(move |target| {
        proxy.applies_to(target.host_str().unwrap_or_default()).then(|| url.clone())
    });
    Ok(match authorization {
        None => through,
        Some(secret) => {
            let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            through.custom_http_auth(value)
        }
    })
}

/// TLS with the certificates that the system trusts and those of a file.
fn tls(bundle: Option<&str>) -> Result<rustls::ClientConfig, StoreError> {
    let mut roots = rustls::RootCertStore::empty();
    // Certificates of the system that cannot be parsed are left out; a missing one is noticed when a server uses it.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(bundle) = bundle {
        let unusable = |why: &dyn std::fmt::Display| {
            StoreError::Refused(format!("the file of certificates {bundle} cannot be used: {why}"))
        };
        let text = std::fs::read(bundle).map_err(|error| unusable(&error))?;
        let parsed = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let (added, _) = roots.add_parsable_certificates(parsed.map_err(|error| unusable(&error))?);
        if added == 0 {
            return Err(unusable(&"it has no certificates in PEM format"));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|_| StoreError::Refused("TLS cannot be set up".to_owned()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// No retries: the loop above the library has its own.
fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

/// One client for each endpoint; one for the service's own if none is given.
pub(super) fn clients(
    place: &ObjectPlace,
    options: &ObjectOptions,
    cell: &Arc<CredentialCell>,
    wall: WallClock,
    progress: &Arc<AtomicU64>,
) -> Result<Vec<Arc<dyn LibraryClient>>, StoreError> {
    if place.bucket.is_empty() {
        return Err(StoreError::Refused(format!("{place} names no bucket; write {place}BUCKET/PREFIX")));
    }
    let signer = || GoogleSigner { cell: Arc::clone(cell), region: region(place, options), wall };
    let wire = wire(options, (place.service == Service::Gcs).then(signer), progress)?;
    let endpoints: Vec<Option<&str>> = match options.endpoints.as_slice() {
        [] => vec![None],
        given => given.iter().map(|url| Some(url.as_str())).collect(),
    };
    let client = |endpoint: Option<&str>| -> object_store::Result<Arc<dyn LibraryClient>> {
        let wire = wire.clone();
        match place.service {
            Service::S3 => s3(place, options, cell, endpoint, wire),
            Service::Gcs => gcs(place, cell, endpoint, wire),
            Service::Azure => azure(place, options, cell, endpoint, wire),
        }
    };
    let refused = |endpoint: Option<&str>| {
        let shown = endpoint.map(model::secret::redact).unwrap_or_default();
        let account = if place.service == Service::Azure { ", or the account is missing" } else { "" };
        StoreError::Refused(format!("cannot use {place}: the endpoint '{shown}' is not a valid URL{account}"))
    };
    endpoints.into_iter().map(|endpoint| client(endpoint).map_err(|_| refused(endpoint))).collect()
}

fn s3(
    place: &ObjectPlace,
    options: &ObjectOptions,
    cell: &Arc<CredentialCell>,
    endpoint: Option<&str>,
    wire: Wire,
) -> object_store::Result<Arc<dyn LibraryClient>> {
    let virtual_host = !options.names_bucket_in_path(place);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&place.bucket)
        .with_region(options.region.as_deref().unwrap_or("us-east-1"))
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_http_connector(wire)
        .with_retry(no_retries())
        .with_credentials(Arc::new(SharedKeys(Arc::clone(cell))))
        .with_skip_signature(matches!(*cell.get(), Credential::Anonymous))
        // Each part carries a checksum instead, which is much cheaper than a signed digest.
        .with_unsigned_payload(true)
        .with_checksum_algorithm(Checksum::CRC64NVME)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_virtual_hosted_style_request(virtual_host);
    if let Some(endpoint) = endpoint {
        // For virtual hosts, the library expects the bucket in the endpoint.
        let endpoint = match endpoint.split_once("://") {
            Some((scheme, host)) if virtual_host => format!("{scheme}://{}.{host}", place.bucket),
            _ => endpoint.to_owned(),
        };
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    Ok(Arc::new(builder.build()?))
}

fn gcs(
    place: &ObjectPlace,
    cell: &Arc<CredentialCell>,
    endpoint: Option<&str>,
    wire: Wire,
) -> object_store::Result<Arc<dyn LibraryClient>> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&place.bucket)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_http_connector(wire)
        .with_retry(no_retries())
        .with_credentials(Arc::new(SharedBearer(Arc::clone(cell))));
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    Ok(Arc::new(builder.build()?))
}

fn azure(
    place: &ObjectPlace,
    options: &ObjectOptions,
    cell: &Arc<CredentialCell>,
    endpoint: Option<&str>,
    wire: Wire,
) -> object_store::Result<Arc<dyn LibraryClient>> {
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(&place.bucket)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_http_connector(wire)
        .with_retry(no_retries())
        .with_credentials(Arc::new(SharedAzure(Arc::clone(cell))))
        .with_skip_signature(matches!(*cell.get(), Credential::Anonymous));
    if let Some(account) = &options.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    Ok(Arc::new(builder.build()?))
}

/// What an asynchronous method of a trait of the library returns.
type PendingCredential<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<Arc<T>>> + Send + 'a>>;

/// The error for a credential of another service, which only a mistake in a program can cause.
fn other_service<T>() -> object_store::Result<T> {
    Err(object_store::Error::NotImplemented { operation: "sign".into(), implementer: "feedline".into() })
}

/// The shared credential, as the library's for S3.
#[derive(Debug)]
struct SharedKeys(Arc<CredentialCell>);

impl CredentialProvider for SharedKeys {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(&'a self) -> PendingCredential<'b, AwsCredential>
    where
        'a: 'b,
        Self: 'b,
    {
        let credential = match &*self.0.get() {
            Credential::Keys { id, secret, token } => Ok(Arc::new(AwsCredential {
                key_id: id.expose().to_owned(),
                secret_key: secret.expose().to_owned(),
                token: token.as_ref().map(|token| token.expose().to_owned()),
            })),
            _ => other_service(),
        };
        Box::pin(async { credential })
    }
}

/// The shared credential, as the library's for Google. What is not a token is replaced when the request is sent.
#[derive(Debug)]
struct SharedBearer(Arc<CredentialCell>);

impl CredentialProvider for SharedBearer {
    type Credential = GcpCredential;

    fn get_credential<'a, 'b>(&'a self) -> PendingCredential<'b, GcpCredential>
    where
        'a: 'b,
        Self: 'b,
    {
        let bearer = match &*self.0.get() {
            Credential::Bearer(token) => token.expose().to_owned(),
            _ => String::new(),
        };
        Box::pin(async { Ok(Arc::new(GcpCredential { bearer })) })
    }
}

/// The shared credential, as the library's for Azure.
#[derive(Debug)]
struct SharedAzure(Arc<CredentialCell>);

impl CredentialProvider for SharedAzure {
    type Credential = AzureCredential;

    fn get_credential<'a, 'b>(&'a self) -> PendingCredential<'b, AzureCredential>
    where
        'a: 'b,
        Self: 'b,
    {
        let credential = azure_credential(&self.0.get());
        Box::pin(async { credential.map(Arc::new) })
    }
}

/// A credential as the library's for Azure; an error if a key or signature is not well-formed.
pub(super) fn azure_credential(credential: &Credential) -> object_store::Result<AzureCredential> {
    match credential {
        Credential::AccountKey(key) => Ok(AzureCredential::AccessKey(AzureAccessKey::try_new(key.expose())?)),
        Credential::SharedAccess(query) => {
            Ok(AzureCredential::SASToken(split_sas(query.expose().trim_start_matches('?'))?))
        }
        Credential::Bearer(token) => Ok(AzureCredential::BearerToken(token.expose().to_owned())),
        Credential::Anonymous | Credential::Keys { .. } => other_service(),
    }
}
