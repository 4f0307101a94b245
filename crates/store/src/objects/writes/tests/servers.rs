//! Writes to real servers, whose addresses `scripts/test` sets.

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, Service};
use model::secret::Secret;
use object_store::ObjectStoreExt;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpRequest, HttpRequestBody, HttpService};

use super::super::super::contract::{ObjectFacts, PutCondition, PutOutcome};
use super::super::wire::PIECE;
use super::super::{Writes, library};
use super::scripted::{keys, quick, wall};
use crate::StoreError;

const ACCOUNT: &str = "devstoreaccount1";
/// Azurite's, which is public.
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run this test with scripts/test, which starts the servers")
    })
}

/// A server, and a prefix of its own for each test.
struct Server {
    place: ObjectPlace,
    options: ObjectOptions,
}

impl Server {
    fn new(service: Service, test: &str) -> Server {
        // One bucket for all: SeaweedFS reserves space for each.
        let bucket = "feedline-writes".to_owned();
        let prefix = format!("{}-{test}-{}", service.name(), std::process::id());
        let retry = model::objects::RetryPolicy { silence: model::units::Nanos(30_000_000_000), ..quick() };
        let options = ObjectOptions { retry, part_bytes: 5 << 20, ..ObjectOptions::default() };
        let options = match service {
            Service::S3 => ObjectOptions {
                endpoints: vec![variable("FEEDLINE_TEST_S3")],
                credentials: keys(&variable("FEEDLINE_TEST_S3_KEY"), &variable("FEEDLINE_TEST_S3_SECRET")),
                ..options
            },
            Service::Gcs => ObjectOptions { endpoints: vec![variable("FEEDLINE_TEST_GCS")], ..options },
            Service::Azure => ObjectOptions {
                endpoints: vec![variable("FEEDLINE_TEST_AZURE")],
                account: Some(ACCOUNT.to_owned()),
                credentials: CredentialSource::AccountKey(Secret::new(ACCOUNT_KEY)),
                ..options
            },
        };
        let server = Server { place: ObjectPlace { service, bucket, prefix }, options };
        server.make_bucket();
        server
    }

    /// Creates the bucket with a request of its own: the library cannot.
    fn make_bucket(&self) {
        let endpoint = self.options.endpoints[0].trim_end_matches('/');
        let query = if self.place.service == Service::Azure { "?restype=container" } else { "" };
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = "PUT".parse().unwrap();
        *request.uri_mut() = format!("{endpoint}/{}{query}", self.place.bucket).parse().unwrap();
        request.headers_mut().insert("content-length", "0".parse().unwrap());
        match &self.options.credentials {
            CredentialSource::Keys { id, secret, .. } => {
                let (key_id, secret_key) = (id.expose().to_owned(), secret.expose().to_owned());
                let credential = AwsCredential { key_id, secret_key, token: None };
                AwsAuthorizer::new(&credential, "s3", "us-east-1").try_authorize(&mut request, None).unwrap();
            }
            CredentialSource::AccountKey(key) => {
                request.headers_mut().insert("x-ms-version", "2023-11-03".parse().unwrap());
                let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(key.expose()).unwrap());
                AzureAuthorizer::new(&credential, ACCOUNT).try_authorize(&mut request).unwrap();
            }
            _ => {}
        }
        let wire = library::wire(&self.options, None, &Default::default()).unwrap();
        let threads = super::super::RequestThreads::default();
        let answer = threads.run(wire.call(request)).unwrap().unwrap();
        let exists = answer.status().as_u16() == 409;
        assert!(exists || answer.status().is_success(), "the bucket cannot be created: {}", answer.status());
    }

    fn writes(&self) -> Writes {
        Writes::open(&self.place, &self.options, wall).unwrap()
    }
}

/// The bytes of an object, read by the library in pieces.
fn read(writes: &Writes, key: &str) -> Option<Vec<u8>> {
    let path = writes.core.path(key).unwrap();
    let client = &writes.core.clients[0];
    let meta = match writes.threads.run(client.head(&path)).unwrap() {
        Err(object_store::Error::NotFound { .. }) => return None,
        meta => meta.unwrap(),
    };
    let mut content = Vec::new();
    while (content.len() as u64) < meta.size {
        let begin = content.len() as u64;
        let range = begin..meta.size.min(begin + PIECE);
        content.extend(writes.threads.run(client.get_range(&path, range)).unwrap().unwrap());
    }
    Some(content)
}

fn facts(outcome: PutOutcome) -> ObjectFacts {
    match outcome {
        PutOutcome::Done(facts) => facts,
        PutOutcome::Refused => panic!("the condition should hold"),
    }
}

fn conditions_hold(service: Service) {
    let server = Server::new(service, "conditions");
    let writes = server.writes();
    for key in ["plain", "deep/er/key", "with space + ü~%41", "dot.in.it-and_more"] {
        let key = &server.place.key(key);
        let first = facts(writes.put(key, b"one", PutCondition::Absent).unwrap());
        assert_eq!((first.bytes, first.tag.is_empty()), (3, false));
        assert_eq!(writes.put(key, b"two", PutCondition::Absent).unwrap(), PutOutcome::Refused);
        let second = facts(writes.put(key, b"second", PutCondition::Tagged(&first.tag)).unwrap());
        assert_ne!(first.tag, second.tag);
        assert_eq!(writes.put(key, b"third", PutCondition::Tagged(&first.tag)).unwrap(), PutOutcome::Refused);
        assert_eq!(read(&writes, key).unwrap(), b"second");
        facts(writes.put(key, b"", PutCondition::Always).unwrap());
        assert_eq!(read(&writes, key).unwrap(), b"");
        writes.delete(key).unwrap();
        writes.delete(key).unwrap();
        assert_eq!(read(&writes, key), None);
        assert_eq!(writes.put(key, b"x", PutCondition::Tagged(&second.tag)).unwrap(), PutOutcome::Refused);
    }
    assert_eq!(writes.counts().all_failed(), 0);
}

fn objects_of_every_size_are_uploaded(service: Service) {
    let server = Server::new(service, "sizes");
    let writes = server.writes();
    let part = server.options.part_bytes as usize;
    let (object, dropped) = (server.place.key("folder/object"), server.place.key("folder/dropped"));
    for bytes in [0, 1, part - 1, part, part + 1, 3 * part + 17] {
        let content: Vec<u8> = (0..bytes).map(|at| ((at * at) >> 9) as u8).collect();
        let mut upload = writes.upload(&object).unwrap();
        content.chunks(1 << 20).for_each(|chunk| upload.write(chunk).unwrap());
        let facts = upload.finish().unwrap();
        assert_eq!((facts.bytes, facts.tag.is_empty()), (bytes as u64, false));
        assert!(read(&writes, &object).unwrap() == content, "{bytes} bytes are read back as written");
    }
    let mut upload = writes.upload(&dropped).unwrap();
    upload.write(&vec![1; 2 * part]).unwrap();
    drop(upload);
    assert_eq!(read(&writes, &dropped), None);
}

fn what_is_wrong_is_named(service: Service) {
    let mut server = Server::new(service, "wrong");
    // SeaweedFS creates a missing bucket.
    if service == Service::Azure {
        let bucket = std::mem::replace(&mut server.place.bucket, "writes-no-such-bucket".to_owned());
        let error = server.writes().put("key", b"x", PutCondition::Always).unwrap_err();
        assert!(error.to_string().contains("bucket does not exist"), "{error}");
        server.place.bucket = bucket;
    }
    let wrong = match service {
        Service::S3 => keys("AKIDWRONG", "wrong"),
        Service::Azure => CredentialSource::AccountKey(Secret::new("d3Jvbmc=")),
        Service::Gcs => return,
    };
    server.options.credentials = wrong;
    let mut upload = server.writes().upload("key").unwrap();
    upload.write(b"x").unwrap();
    let error = upload.finish().unwrap_err();
    assert!(matches!(&error, StoreError::Rejected { refusal, .. } if refusal.is_permanent()), "{error}");
}

#[test]
fn s3_conditions_hold() {
    conditions_hold(Service::S3);
}

#[test]
fn s3_objects_of_every_size_are_uploaded() {
    objects_of_every_size_are_uploaded(Service::S3);
}

#[test]
fn s3_says_what_is_wrong() {
    what_is_wrong_is_named(Service::S3);
}

#[test]
fn azure_conditions_hold() {
    conditions_hold(Service::Azure);
}

#[test]
fn azure_objects_of_every_size_are_uploaded() {
    objects_of_every_size_are_uploaded(Service::Azure);
}

#[test]
fn azure_says_what_is_wrong() {
    what_is_wrong_is_named(Service::Azure);
}

#[test]
fn google_conditions_hold() {
    conditions_hold(Service::Gcs);
}

#[test]
fn google_objects_of_every_size_are_uploaded() {
    objects_of_every_size_are_uploaded(Service::Gcs);
}
