//! What was given decides, in a documented order; what loses is reported; no secret is in any text.

use std::path::Path;

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, Service};
use model::secret::Secret;
use model::spec::{Override, Spec, WorkloadSource, read};

use super::{StoreUser, options};

const USER: StoreUser = StoreUser { process: 0, readers: 8 };

fn spec(sets: &[&str]) -> Spec {
    let sets: Vec<Override> = sets.iter().map(|set| Override::hydra(set, format!("--set {set}"))).collect();
    read(WorkloadSource { name: "w.yaml", text: "{storage: {storage_type: s3}}" }, &sets).unwrap().spec
}

type Outcome = Result<(ObjectOptions, Vec<String>), String>;

fn resolve(service: Service, sets: &[&str], environment: &[(&str, &str)], user: StoreUser) -> Outcome {
    let lookup = |name: &str| {
        environment.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    };
    let place = ObjectPlace::parse(service, "bucket");
    let outcome = options(&spec(sets), &place, user, &lookup);
    let outcome = outcome
        .map(|(options, warnings)| (options, warnings.iter().map(ToString::to_string).collect::<Vec<_>>()))
        .map_err(|error| error.to_string());
    // Secrets in these tests contain this word.
    assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
    outcome
}

fn s3(sets: &[&str], environment: &[(&str, &str)]) -> Outcome {
    resolve(Service::S3, sets, environment, USER)
}

fn keys(id: &str, secret: &str, token: Option<&str>) -> CredentialSource {
    CredentialSource::Keys { id: Secret::new(id), secret: Secret::new(secret), token: token.map(Secret::new) }
}

fn library(settings: &[(&str, &str)]) -> CredentialSource {
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(*value)));
    CredentialSource::Library(settings.collect())
}

const KEYS: [&str; 2] =
    ["storage.storage_options.access_key_id=AK1", "storage.storage_options.secret_access_key=hunter2a"];
const VARIABLES: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AK2"), ("AWS_SECRET_ACCESS_KEY", "hunter2b")];

/// A home folder with these files in `.aws`.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    for (name, text) in files {
        std::fs::write(home.path().join(".aws").join(name), text).unwrap();
    }
    home
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn keys_of_the_workload_win_over_the_environment() {
    let (found, warnings) = s3(&KEYS, &VARIABLES).unwrap();
    assert_eq!(found.credentials, keys("AK1", "hunter2a", None));
    assert_eq!(found.credentials_from, "keys of the workload");
    assert_eq!(warnings, ["AWS_ACCESS_KEY_ID is not used: storage.storage_options.access_key_id is given"]);
    let with_token = [KEYS[0], KEYS[1], "storage.storage_options.session_token=hunter2t"];
    assert_eq!(s3(&with_token, &[]).unwrap().0.credentials, keys("AK1", "hunter2a", Some("hunter2t")));
    let error = s3(&KEYS[..1], &VARIABLES).unwrap_err();
    assert!(error.contains("access_key_id is given without secret_access_key"), "{error}");
    let error = s3(&KEYS[1..], &[]).unwrap_err();
    assert!(error.contains("secret_access_key is given without access_key_id"), "{error}");
}

#[test]
fn the_environment_wins_over_profiles_and_roles() {
    let home = home(&[("credentials", "[default]\naws_access_key_id=AK3\naws_secret_access_key=hunter2c\n")]);
    let mut variables = vec![("HOME", text(home.path())), ("AWS_SESSION_TOKEN", "hunter2t")];
    variables.extend(VARIABLES);
    let (found, warnings) = s3(&[], &variables).unwrap();
    assert_eq!(found.credentials, keys("AK2", "hunter2b", Some("hunter2t")));
    assert_eq!((found.credentials_from.as_str(), warnings.len()), ("environment: AWS_ACCESS_KEY_ID", 0));
    let error = s3(&[], &VARIABLES[..1]).unwrap_err();
    assert!(error.contains("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"), "{error}");
    variables.push(("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"));
    let (_, warnings) = s3(&[], &variables).unwrap();
    assert_eq!(warnings, ["AWS_WEB_IDENTITY_TOKEN_FILE is not used: AWS_ACCESS_KEY_ID is set"]);
    // An empty variable is not set.
    let (found, _) = s3(&[], &[("AWS_ACCESS_KEY_ID", ""), ("HOME", text(home.path()))]).unwrap();
    assert_eq!(
        (found.credentials, found.credentials_from.as_str()),
        (keys("AK3", "hunter2c", None), "profile 'default'")
    );
}

#[test]
fn profiles_have_keys_region_endpoint_and_certificates() {
    let home = home(&[
        (
            "credentials",
            "[bench]\naws_access_key_id = AK3\naws_secret_access_key = hunter2c\naws_session_token=hunter2t\n",
        ),
        (
            "config",
            "[default]\nregion = us-west-2\n[profile bench]\nregion = eu-west-1\nendpoint_url = http://h:9\n\
             ca_bundle = /ca.pem\ns3 =\n  addressing_style = virtual\n",
        ),
    ]);
    for (sets, variable) in
        [(&["storage.storage_options.s3_profile=bench"][..], None), (&[][..], Some(("AWS_PROFILE", "bench")))]
    {
        let mut variables = vec![("HOME", text(home.path()))];
        variables.extend(variable);
        let (found, warnings) = s3(sets, &variables).unwrap();
        assert_eq!(found.credentials, keys("AK3", "hunter2c", Some("hunter2t")));
        assert_eq!(found.credentials_from, "profile 'bench'");
        assert_eq!(
            (found.region.as_deref(), found.endpoints),
            (Some("eu-west-1"), vec!["http://h:9".to_owned()])
        );
        assert_eq!((found.ca_bundle.as_deref(), found.path_style), (Some("/ca.pem"), Some(false)));
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    // A key of the workload names the profile, so variables lose; the region of the environment wins over a profile's.
    let mut variables = vec![("HOME", text(home.path())), ("AWS_REGION", "ap-south-1")];
    variables.extend(VARIABLES);
    let (found, warnings) = s3(&["storage.storage_options.s3_profile=bench"], &variables).unwrap();
    assert_eq!(
        (found.credentials_from.as_str(), found.region.as_deref()),
        ("profile 'bench'", Some("ap-south-1"))
    );
    assert!(warnings[0].starts_with("AWS_ACCESS_KEY_ID is not used"), "{warnings:?}");
    let error = s3(&[], &[("HOME", text(home.path())), ("AWS_PROFILE", "other")]).unwrap_err();
    assert!(error.contains("AWS_PROFILE cannot be used: the profile 'other' is neither in"), "{error}");
    let config = home.path().join(".aws/config");
    let variables = [("AWS_CONFIG_FILE", text(&config)), ("AWS_EC2_METADATA_DISABLED", "false")];
    assert_eq!(s3(&[], &variables).unwrap().0.region.as_deref(), Some("us-west-2"));
}

#[test]
fn ways_that_feedline_does_not_know_are_refused_by_name() {
    for (line, name) in [
        ("credential_process = /bin/x", "credential_process"),
        ("sso_session = corp", "sso_session"),
        ("role_arn = arn:aws:iam::1:role/r\nsource_profile = base", "role_arn"),
    ] {
        let home = home(&[("config", &format!("[default]\n{line}\n"))]);
        let error = s3(&[], &[("HOME", text(home.path()))]).unwrap_err();
        assert!(error.contains(&format!("by {name}")) && error.contains("export-credentials"), "{error}");
    }
    let half = home(&[("credentials", "[default]\naws_access_key_id = AK\n")]);
    let error = s3(&[], &[("HOME", text(half.path()))]).unwrap_err();
    assert!(error.contains("only one of aws_access_key_id and aws_secret_access_key"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = s3(&[], &[("AWS_CONFIG_FILE", text(folder.path()))]).unwrap_err();
    assert!(error.contains("is not a file"), "{error}");
    let huge = home(&[("config", &"# x\n".repeat(300_000))]);
    let error = s3(&[], &[("HOME", text(huge.path()))]).unwrap_err();
    assert!(error.contains("more than 1 MiB"), "{error}");
}

#[test]
fn roles_are_left_to_the_library() {
    let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn"), ("AWS_REGION", "eu")];
    let (found, _) = s3(&[], &web).unwrap();
    let expected = [("aws_web_identity_token_file", "/token"), ("aws_role_arn", "arn"), ("aws_region", "eu")];
    assert_eq!(found.credentials, library(&expected));
    assert!(s3(&[], &web[..1]).unwrap_err().contains("AWS_ROLE_ARN is not"));
    let (found, _) = s3(&[], &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x")]).unwrap();
    assert_eq!(found.credentials, library(&[("aws_container_credentials_relative_uri", "/v2/x")]));
    let full = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/t"),
    ];
    let (found, _) = s3(&[], &full).unwrap();
    let expected = [
        ("aws_container_credentials_full_uri", "http://169.254.170.23/v1"),
        ("aws_container_authorization_token_file", "/t"),
    ];
    assert_eq!(found.credentials, library(&expected));
    assert!(s3(&[], &full[..1]).unwrap_err().contains("TOKEN_FILE"));
    let (found, _) = s3(&[], &[]).unwrap();
    assert_eq!(found.credentials, library(&[]));
    assert!(
        found.credentials_from.starts_with("the instance metadata service"),
        "{}",
        found.credentials_from
    );
    let error = s3(&[], &[("AWS_EC2_METADATA_DISABLED", "true")]).unwrap_err();
    assert!(error.contains("no credentials for S3") && error.contains("storage.anonymous=true"), "{error}");
    let (found, warnings) = s3(&["storage.anonymous=true"], &VARIABLES).unwrap();
    assert_eq!(found.credentials, CredentialSource::Anonymous);
    assert_eq!(warnings, ["AWS_ACCESS_KEY_ID is not used: storage.anonymous is true"]);
}

const ANONYMOUS: &str = "storage.anonymous=true";

#[test]
fn endpoints_come_from_keys_then_from_variables() {
    let endpoints = |sets: &[&str], variables: &[(&str, &str)]| {
        let sets = [&[ANONYMOUS], sets].concat();
        s3(&sets, variables).map(|(found, warnings)| (found.endpoints, warnings))
    };
    let both = [("AWS_ENDPOINT_URL", "http://a:1/"), ("AWS_ENDPOINT_URL_S3", "http://b:2")];
    let (found, warnings) = endpoints(&[], &both).unwrap();
    assert_eq!(found, ["http://b:2"]);
    assert_eq!(warnings, ["AWS_ENDPOINT_URL is not used: AWS_ENDPOINT_URL_S3 is set"]);
    assert_eq!(endpoints(&[], &both[..1]).unwrap().0, ["http://a:1"]);
    let (found, warnings) = endpoints(&["storage.storage_options.endpoint_url='h:9'"], &both[..1]).unwrap();
    assert_eq!((found, warnings.len()), (vec!["https://h:9".to_owned()], 1));
    let plain = ["storage.storage_options.endpoint_url='h:9'", "storage.storage_options.secure=false"];
    assert_eq!(endpoints(&plain, &[]).unwrap(), (vec!["http://h:9".to_owned()], Vec::new()));
    let contrary =
        ["storage.storage_options.endpoint_url='https://h'", "storage.storage_options.secure=false"];
    assert_eq!(
        endpoints(&contrary, &[]).unwrap().1,
        ["storage.storage_options.secure is not used: the endpoint says https"]
    );
    let error = endpoints(&[], &[("AWS_ENDPOINT_URL", "http://u:hunter2@h")]).unwrap_err();
    assert!(error.contains("AWS_ENDPOINT_URL has a user or a password"), "{error}");
    let (_, warnings) = endpoints(&[], &[("S3_ENDPOINT", "http://h")]).unwrap();
    assert!(warnings[0].starts_with("S3_ENDPOINT is not used"), "{warnings:?}");
}

#[test]
fn several_endpoints_are_counted_and_distributed() {
    let list = "storage.endpoint_uris=['http://a','http://b','http://c']";
    let of = |sets: &[&str], variables: &[(&str, &str)], process| {
        let sets = [&[ANONYMOUS], sets].concat();
        let user = StoreUser { process, readers: 1 };
        resolve(Service::S3, &sets, variables, user).map(|(found, warnings)| (found.endpoints, warnings))
    };
    assert_eq!(of(&[list], &[], 0).unwrap().0, ["http://a", "http://b", "http://c"]);
    assert_eq!(of(&[list, "storage.endpoint_count=2"], &[], 0).unwrap().0, ["http://a", "http://b"]);
    let error = of(&[list, "storage.endpoint_count=4"], &[], 0).unwrap_err();
    assert!(error.contains("there are only 3 endpoints"), "{error}");
    let spread = [list, "storage.use_mpi_endpoint_distribution=true"];
    assert_eq!(of(&spread, &[], 4).unwrap().0, ["http://b"]);
    let by_variable = [("S3_ENDPOINT_URIS", "http://a, http://b")];
    assert_eq!(of(&[], &by_variable, 3).unwrap().0, ["http://b"]);
    let (found, warnings) = of(&["storage.use_mpi_endpoint_distribution=true"], &[], 0).unwrap();
    assert!(found.is_empty() && warnings[0].contains("fewer than two endpoints"), "{warnings:?}");
    let (_, warnings) = of(&["storage.endpoint_count=2"], &[], 0).unwrap();
    assert!(warnings[0].contains("storage.endpoint_count is not used"), "{warnings:?}");
    let both = [list, "storage.storage_options.endpoint_url='http://d'"];
    let (_, warnings) = of(&both, &[], 0).unwrap();
    assert!(warnings[0].contains("endpoint_url is not used"), "{warnings:?}");
}

#[test]
fn limits_retries_and_uploads_are_as_given() {
    let (found, _) = s3(&[ANONYMOUS], &[]).unwrap();
    assert_eq!(
        found,
        ObjectOptions { credentials_from: found.credentials_from.clone(), ..ObjectOptions::default() }
    );
    let sets = [
        ANONYMOUS,
        "storage.storage_options.prefetch_window=64",
        "storage.storage_options.max_outstanding=16",
        "storage.retry_attempts=7",
        "storage.retry_deadline=2s",
        "storage.silence_timeout=500ms",
        "storage.part_size=16MiB",
        "storage.parts_in_flight=3",
        "storage.storage_options.s3_max_attempts=9",
        "storage.s3_force_path_style=true",
    ];
    let (found, warnings) = s3(&sets, &[]).unwrap();
    assert_eq!(found.requests_in_flight, 16 * 8);
    assert_eq!((found.part_bytes, found.parts_in_flight, found.path_style), (16 << 20, 3, Some(true)));
    let retry = found.retry;
    assert_eq!((retry.attempts, retry.deadline.0, retry.silence.0), (7, 2_000_000_000, 500_000_000));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let (found, _) = s3(&[ANONYMOUS, "storage.storage_options.s3_max_attempts=0"], &[]).unwrap();
    assert_eq!(found.retry.attempts, 1);
    let few = [ANONYMOUS, "storage.requests_in_flight=5", "storage.storage_options.prefetch_window=64"];
    assert_eq!(s3(&few, &[]).unwrap().0.requests_in_flight, 5);
}

#[test]
fn proxies_depend_on_the_scheme_of_the_endpoint() {
    let proxy = |sets: &[&str], variables: &[(&str, &str)]| {
        let sets = [&[ANONYMOUS], sets].concat();
        let (found, _) = s3(&sets, variables).unwrap();
        (found.proxy.map(|proxy| proxy.expose().replace("hunter2", "*")), found.no_proxy)
    };
    let variables = [
        ("HTTPS_PROXY", "http://u:hunter2@tls:1"),
        ("http_proxy", "plain:2"),
        ("NO_PROXY", "localhost,.example"),
    ];
    let hosts = Some("localhost,.example".to_owned());
    assert_eq!(proxy(&[], &variables), (Some("http://u:*@tls:1".to_owned()), hosts.clone()));
    let plain = ["storage.storage_options.endpoint_url='http://h:9'"];
    assert_eq!(proxy(&plain, &variables), (Some("http://plain:2".to_owned()), hosts.clone()));
    assert_eq!(
        proxy(&["storage.proxy='http://own:3'"], &variables),
        (Some("http://own:3".to_owned()), hosts)
    );
    assert_eq!(proxy(&[], &[("NO_PROXY", "x")]), (None, None));
    let error = s3(&[ANONYMOUS, "storage.proxy='socks5://u:hunter2@h'"], &[]).unwrap_err();
    assert!(error.contains("storage.proxy is not the URL of an HTTP proxy"), "{error}");
}

#[test]
fn certificates_and_keys_of_other_services_are_reported_if_unused() {
    let variables = [("AWS_CA_BUNDLE", "/env.pem")];
    assert_eq!(s3(&[ANONYMOUS], &variables).unwrap().0.ca_bundle.as_deref(), Some("/env.pem"));
    let (found, warnings) = s3(&[ANONYMOUS, "storage.ca_bundle=/own.pem"], &variables).unwrap();
    assert_eq!(found.ca_bundle.as_deref(), Some("/own.pem"));
    assert_eq!(warnings, ["AWS_CA_BUNDLE is not used: storage.ca_bundle is given"]);
    let (_, warnings) = s3(&[ANONYMOUS, "storage.account=a", "storage.sas_token=hunter2"], &[]).unwrap();
    assert_eq!(
        warnings,
        ["storage.account is not used: it is for Azure", "storage.sas_token is not used: it is for Azure"]
    );
    let sets = [KEYS[0], KEYS[1], "storage.storage_options.region=eu", "storage.account=acct", ANONYMOUS];
    let (_, warnings) = resolve(Service::Azure, &sets, &[], USER).unwrap();
    let named = ["access_key_id", "secret_access_key", "region"];
    assert!(named.iter().zip(&warnings).all(|(key, warning)| warning.contains(key)), "{warnings:?}");
}

#[test]
fn google_has_hmac_keys_accounts_and_an_emulator() {
    let of = |sets: &[&str], variables: &[(&str, &str)]| resolve(Service::Gcs, sets, variables, USER);
    assert_eq!(of(&KEYS, &[]).unwrap().0.credentials, keys("AK1", "hunter2a", None));
    let hmac =
        [("GCS_ACCESS_KEY_ID", "G"), ("GCS_SECRET_ACCESS_KEY", "hunter2"), ("GOOGLE_SERVICE_ACCOUNT", "/s")];
    let (found, warnings) = of(&["storage.storage_options.region=auto"], &hmac).unwrap();
    assert_eq!((found.credentials, found.region.as_deref()), (keys("G", "hunter2", None), Some("auto")));
    assert_eq!(warnings, ["GOOGLE_SERVICE_ACCOUNT is not used: GCS_ACCESS_KEY_ID is set"]);
    assert!(of(&[], &hmac[..1]).unwrap_err().contains("GCS_SECRET_ACCESS_KEY is not"));
    for (variable, setting) in [
        ("GOOGLE_SERVICE_ACCOUNT", "google_service_account"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "google_service_account_key"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "google_application_credentials"),
    ] {
        let (found, _) = of(&[], &[(variable, "/x.json")]).unwrap();
        assert_eq!(found.credentials, library(&[(setting, "/x.json")]));
        assert_eq!(found.credentials_from, format!("environment: {variable}"));
    }
    let (found, _) = of(&[], &[("GOOGLE_BEARER_TOKEN", "hunter2")]).unwrap();
    assert_eq!(found.credentials, CredentialSource::Bearer(Secret::new("hunter2")));
    let (found, _) = of(&[], &[("STORAGE_EMULATOR_HOST", "localhost:4443")]).unwrap();
    assert_eq!(
        (found.endpoints, found.credentials),
        (vec!["http://localhost:4443".to_owned()], CredentialSource::Anonymous)
    );
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/gcloud");
    let variables = [("HOME", text(home.path()))];
    let (found, _) = of(&[], &variables).unwrap();
    assert!(found.credentials_from.starts_with("the metadata server"), "{}", found.credentials_from);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("application_default_credentials.json");
    std::fs::write(&file, "{}").unwrap();
    let (found, _) = of(&[], &variables).unwrap();
    assert_eq!(found.credentials, library(&[("google_application_credentials", text(&file))]));
    let (_, warnings) = of(&["storage.storage_options.region=eu"], &variables).unwrap();
    assert!(warnings[0].contains("HMAC"), "{warnings:?}");
}

#[test]
fn azure_has_accounts_keys_signatures_and_identities() {
    let of = |sets: &[&str], variables: &[(&str, &str)]| resolve(Service::Azure, sets, variables, USER);
    assert!(of(&[], &[]).unwrap_err().contains("storage.account or AZURE_STORAGE_ACCOUNT"));
    let account = ("AZURE_STORAGE_ACCOUNT", "acct");
    let key = CredentialSource::AccountKey(Secret::new("hunter2="));
    let (found, _) = of(&[], &[account, ("AZURE_STORAGE_KEY", "hunter2=")]).unwrap();
    assert_eq!((found.account.as_deref(), &found.credentials), (Some("acct"), &key));
    assert!(found.endpoints.is_empty());
    let (found, warnings) = of(
        &["storage.account=own", "storage.account_key='hunter2='"],
        &[account, ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=hunter2")],
    )
    .unwrap();
    assert_eq!((found.account.as_deref(), &found.credentials), (Some("own"), &key));
    let expected = [
        "AZURE_STORAGE_ACCOUNT is not used: storage.account is given",
        "AZURE_STORAGE_SAS_TOKEN is not used: storage.account_key is given",
    ];
    assert_eq!(warnings, expected);
    let (found, _) = of(&[], &[account, ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=hunter2")]).unwrap();
    assert_eq!(found.credentials, CredentialSource::SharedAccess(Secret::new("sv=1&sig=hunter2")));
    let app =
        [account, ("AZURE_CLIENT_ID", "i"), ("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_SECRET", "hunter2")];
    let (found, _) = of(&[], &app).unwrap();
    let expected = [("azure_client_secret", "hunter2"), ("azure_client_id", "i"), ("azure_tenant_id", "t")];
    assert_eq!(found.credentials, library(&expected));
    assert!(of(&[], &[app[0], app[3]]).unwrap_err().contains("AZURE_CLIENT_ID and AZURE_TENANT_ID"));
    let (found, _) = of(&[], &[account]).unwrap();
    assert!(found.credentials_from.starts_with("the managed identity"), "{}", found.credentials_from);
    let url = ["storage.storage_options.account_url='https://acct.dfs.core.windows.net'"];
    let (found, _) = of(&url, &[]).unwrap();
    assert_eq!(
        (found.account.as_deref(), found.endpoints),
        (Some("acct"), vec!["https://acct.blob.core.windows.net".to_owned()])
    );
}

#[test]
fn azure_connection_strings_are_read() {
    let of = |connection: &str| {
        resolve(Service::Azure, &[], &[("AZURE_STORAGE_CONNECTION_STRING", connection)], USER)
    };
    let complete = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=hunter2==;\
                    EndpointSuffix=core.windows.net";
    let (found, _) = of(complete).unwrap();
    assert_eq!(found.credentials, CredentialSource::AccountKey(Secret::new("hunter2==")));
    assert_eq!(
        (found.account.as_deref(), found.endpoints),
        (Some("acct"), vec!["https://acct.blob.core.windows.net".to_owned()])
    );
    let (found, _) = of("BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;AccountName=devstoreaccount1;\
                         AccountKey=hunter2")
    .unwrap();
    assert_eq!(found.endpoints, ["http://127.0.0.1:10000/devstoreaccount1"]);
    let (found, _) =
        of("BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=hunter2")
            .unwrap();
    assert_eq!(found.account.as_deref(), Some("acct"));
    assert_eq!(found.credentials, CredentialSource::SharedAccess(Secret::new("sv=1&sig=hunter2")));
    let (found, _) = of("UseDevelopmentStorage=true").unwrap();
    assert_eq!(found.endpoints, ["http://127.0.0.1:10000/devstoreaccount1"]);
    assert_eq!(found.account.as_deref(), Some("devstoreaccount1"));
    for (wrong, says) in [
        ("hunter2", "has no '='"),
        ("AccountKey=hunter2", "neither AccountName nor BlobEndpoint"),
        ("BlobEndpoint=https://u:hunter2@h", "has a user or a password"),
    ] {
        let error = of(wrong).unwrap_err();
        assert!(error.contains(says) && error.contains("AZURE_STORAGE_CONNECTION_STRING"), "{error}");
    }
    let emulator = [("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:5555")];
    let (found, _) = resolve(Service::Azure, &[], &emulator, USER).unwrap();
    assert_eq!(found.endpoints, ["http://127.0.0.1:5555/devstoreaccount1"]);
    assert_eq!(found.credentials_from, "the published key of the emulator");
}

/// The settings that are reported as unused.
#[track_caller]
fn reported(outcome: Outcome, expected: &[&str]) -> ObjectOptions {
    let (found, warnings) = outcome.unwrap();
    assert_eq!(warnings, expected);
    found
}

#[test]
fn a_connection_string_counts_for_its_own_account_only() {
    let of = |sets: &[&str], variables: &[(&str, &str)]| resolve(Service::Azure, sets, variables, USER);
    let name = "AZURE_STORAGE_CONNECTION_STRING";
    let other = (name, "AccountName=other;AccountKey=hunter2==;EndpointSuffix=core.windows.net");
    let url = "storage.storage_options.account_url='https://acct.dfs.core.windows.net'";
    let found = reported(
        of(&[url], &[other, ("AZURE_STORAGE_KEY", "hunter2own")]),
        &["AZURE_STORAGE_CONNECTION_STRING is not used: storage.storage_options.account_url is given"],
    );
    assert_eq!(found.endpoints, ["https://acct.blob.core.windows.net"]);
    assert_eq!(found.credentials, CredentialSource::AccountKey(Secret::new("hunter2own")));
    let found = reported(
        of(&["storage.account=own"], &[other]),
        &["AZURE_STORAGE_CONNECTION_STRING is not used: storage.account is given"],
    );
    assert!(found.endpoints.is_empty() && found.credentials_from.starts_with("the managed identity"));
    // The same account: the URL of the workload is its server, and the key of the string is used.
    let own = (name, "AccountName=acct;AccountKey=hunter2==;BlobEndpoint=https://acct.blob.example");
    let found = reported(
        of(&[url], &[own]),
        &[
            "the endpoint in AZURE_STORAGE_CONNECTION_STRING is not used: storage.storage_options.account_url is given",
        ],
    );
    assert_eq!(found.endpoints, ["https://acct.blob.core.windows.net"]);
    assert_eq!(found.credentials_from, "environment: AZURE_STORAGE_CONNECTION_STRING");
    let found = reported(of(&["storage.account=acct"], &[own]), &[]);
    assert_eq!(found.endpoints, ["https://acct.blob.example"]);
    let endpoint = ("AZURE_STORAGE_ENDPOINT", "https://proxy.example");
    let found = reported(
        of(&[url], &[endpoint]),
        &["AZURE_STORAGE_ENDPOINT is not used: storage.storage_options.account_url is given"],
    );
    assert_eq!(found.endpoints, ["https://acct.blob.core.windows.net"]);
}

#[test]
fn azure_settings_that_name_another_account_are_reported() {
    let of = |sets: &[&str], variables: &[(&str, &str)]| resolve(Service::Azure, sets, variables, USER);
    let url = "storage.storage_options.account_url='https://acct.dfs.core.windows.net'";
    let found = reported(
        of(&["storage.account=own", "storage.storage_options.account_name=x", url], &[]),
        &[
            "storage.storage_options.account_name is not used: storage.account is given",
            "storage.storage_options.account_url is not used: storage.account is given",
        ],
    );
    assert_eq!((found.account.as_deref(), found.endpoints.len()), (Some("own"), 0));
    let place = "storage.storage_root='abfs://c@acct.dfs.core.windows.net'";
    reported(
        of(&["storage.account=own", place], &[]),
        &["the account in the URL of the data is not used: storage.account is given"],
    );
    // The same account twice is not a contradiction.
    reported(of(&["storage.account=acct", url, place], &[("AZURE_STORAGE_ACCOUNT", "acct")]), &[]);
    reported(
        of(&[], &[("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT", "b")]),
        &["AZURE_STORAGE_ACCOUNT is not used: AZURE_STORAGE_ACCOUNT_NAME is set"],
    );
    // A server by its address has the account in the path.
    let local = "storage.storage_options.account_url='http://127.0.0.1:10000/devstoreaccount1'";
    let found = reported(of(&[local], &[]), &[]);
    assert_eq!(found.account.as_deref(), Some("devstoreaccount1"));
    assert_eq!(found.endpoints, ["http://127.0.0.1:10000/devstoreaccount1"]);
}

#[test]
fn an_incomplete_identity_matters_only_if_it_is_needed() {
    let stray = ("AZURE_CLIENT_SECRET", "hunter2");
    let variables = [("AZURE_STORAGE_ACCOUNT", "acct"), ("AZURE_STORAGE_KEY", "hunter2="), stray];
    let found = reported(
        resolve(Service::Azure, &[], &variables, USER),
        &["AZURE_CLIENT_SECRET is not used: AZURE_STORAGE_KEY is set"],
    );
    assert_eq!(found.credentials_from, "environment: AZURE_STORAGE_KEY");
}

#[test]
fn a_profile_that_cannot_be_read_stops_only_what_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let unreadable = ("AWS_CONFIG_FILE", text(folder.path()));
    let why = format!("cannot read the profiles in {}: it is not a file", folder.path().display());
    let warning = format!("the AWS profile 'default' is not used: {why}");
    reported(s3(&KEYS, &[unreadable]), &[&warning]);
    reported(s3(&[ANONYMOUS], &[unreadable]), &[&warning]);
    reported(s3(&[], &[unreadable, VARIABLES[0], VARIABLES[1]]), &[&warning]);
    assert_eq!(
        s3(&[], &[unreadable]).unwrap_err(),
        format!("the AWS profile 'default' cannot be used: {why}")
    );
    for variable in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"] {
        let missing = (variable, "other");
        let why = "the profile 'other' is neither in (no HOME) nor in (no HOME)";
        let warning = format!("{variable} is not used: {why}");
        reported(s3(&KEYS, &[missing]), &[&warning]);
        reported(s3(&[ANONYMOUS], &[missing]), &[&warning]);
        assert_eq!(s3(&[], &[missing]).unwrap_err(), format!("{variable} cannot be used: {why}"));
    }
}

#[test]
fn values_of_a_profile_that_lose_are_reported() {
    let home = home(&[(
        "config",
        "[profile bench]\naws_access_key_id = AK3\naws_secret_access_key = hunter2\nregion = eu-west-1\n\
         endpoint_url = http://h:9\nca_bundle = /ca.pem\ns3 =\n  addressing_style = virtual\n",
    )]);
    let mut variables = vec![("HOME", text(home.path())), ("AWS_DEFAULT_PROFILE", "bench")];
    variables.extend([("AWS_REGION", "us-west-2"), ("AWS_DEFAULT_REGION", "us-east-2")]);
    variables.extend([("AWS_ENDPOINT_URL", "http://own:1"), ("AWS_CA_BUNDLE", "/own.pem")]);
    let sets = [KEYS[0], KEYS[1], "storage.s3_force_path_style=true"];
    let found = reported(
        s3(&sets, &variables),
        &[
            "the access key of the profile 'bench' is not used: storage.storage_options.access_key_id is given",
            "endpoint_url of the profile 'bench' is not used: AWS_ENDPOINT_URL is set",
            "AWS_DEFAULT_REGION is not used: AWS_REGION is set",
            "region of the profile 'bench' is not used: AWS_REGION is set",
            "s3.addressing_style of the profile 'bench' is not used: \
             storage.storage_options.s3_force_path_style is given",
            "ca_bundle of the profile 'bench' is not used: AWS_CA_BUNDLE is set",
        ],
    );
    assert_eq!((found.region.as_deref(), found.path_style), (Some("us-west-2"), Some(true)));
    assert_eq!(
        (found.endpoints, found.ca_bundle.as_deref()),
        (vec!["http://own:1".into()], Some("/own.pem"))
    );
    // The same region twice is not a contradiction.
    let same = [("AWS_REGION", "eu"), ("AWS_DEFAULT_REGION", "eu")];
    reported(s3(&[ANONYMOUS, "storage.storage_options.region=eu"], &same), &[]);
}

#[test]
fn a_session_token_belongs_to_an_access_key() {
    let token = "storage.storage_options.session_token=hunter2t";
    reported(
        s3(&[token], &VARIABLES),
        &[
            "storage.storage_options.session_token is not used: storage.storage_options.access_key_id is not given",
        ],
    );
    let stray = [("AWS_SESSION_TOKEN", "hunter2t")];
    reported(s3(&KEYS, &stray), &["AWS_SESSION_TOKEN is not used: AWS_ACCESS_KEY_ID is not set"]);
    // Google's HMAC keys have none, so none is sent.
    let found = reported(
        resolve(Service::Gcs, &[KEYS[0], KEYS[1], token], &[], USER),
        &["storage.storage_options.session_token is not used: it is for S3"],
    );
    assert_eq!(found.credentials, keys("AK1", "hunter2a", None));
}

#[test]
fn the_scheme_of_an_address_without_one_is_that_of_secure() {
    let plain = "storage.storage_options.secure=false";
    let url = "storage.storage_options.account_url='acct.blob.example'";
    let found = reported(resolve(Service::Azure, &[url, plain], &[], USER), &[]);
    assert_eq!(found.endpoints, ["http://acct.blob.example"]);
    let home = home(&[("config", "[default]\nendpoint_url = h:9\n")]);
    let found = reported(s3(&[ANONYMOUS, plain], &[("HOME", text(home.path()))]), &[]);
    assert_eq!(found.endpoints, ["http://h:9"]);
    let why = "storage.storage_options.secure is not used: no endpoint is given";
    reported(s3(&[ANONYMOUS, plain], &[]), &[why]);
}

#[test]
fn proxies_that_are_not_used_are_reported() {
    let proxy = "storage.proxy='http://own:3'";
    let other = ("HTTPS_PROXY", "http://u:hunter2@tls:1");
    reported(s3(&[ANONYMOUS, proxy], &[other]), &["HTTPS_PROXY is not used: storage.proxy is given"]);
    reported(s3(&[ANONYMOUS, proxy], &[("HTTPS_PROXY", "http://own:3"), ("HTTP_PROXY", "http://x")]), &[]);
    let excluded = ["storage.proxy is not used: NO_PROXY excludes the server"];
    reported(s3(&[ANONYMOUS, proxy], &[("NO_PROXY", "localhost,.amazonaws.com")]), &excluded);
    reported(s3(&[ANONYMOUS, proxy], &[("NO_PROXY", "localhost")]), &[]);
    let server = "storage.storage_options.endpoint_url='http://10.0.0.1:9'";
    reported(s3(&[ANONYMOUS, proxy, server], &[("no_proxy", "10.0.0.1")]), &excluded);
}

#[test]
fn certificates_are_the_same_for_all_services() {
    for (service, sets) in [
        (Service::S3, &[ANONYMOUS][..]),
        (Service::Gcs, &[ANONYMOUS]),
        (Service::Azure, &[ANONYMOUS, "storage.account=acct"]),
    ] {
        let variables = [("AWS_CA_BUNDLE", "/env.pem")];
        let found = reported(resolve(service, sets, &variables, USER), &[]);
        assert_eq!(found.ca_bundle.as_deref(), Some("/env.pem"));
    }
}

#[test]
fn variables_can_ask_for_requests_without_a_signature() {
    let account = ("AZURE_STORAGE_ACCOUNT", "acct");
    for (service, variable, other) in [
        (Service::S3, "AWS_NO_SIGN_REQUEST", "AWS_ACCESS_KEY_ID"),
        (Service::Gcs, "GS_NO_SIGN_REQUEST", "GOOGLE_BEARER_TOKEN"),
        (Service::Azure, "AZURE_NO_SIGN_REQUEST", "AZURE_STORAGE_KEY"),
    ] {
        let variables = [account, (variable, "YES"), (other, "hunter2")];
        let found = reported(
            resolve(service, &[], &variables, USER),
            &[&format!("{other} is not used: {variable} is set")],
        );
        assert_eq!(found.credentials, CredentialSource::Anonymous);
        assert_eq!(found.credentials_from, format!("none: {variable} is set"));
        let variables = [account, (variable, "NO"), ("AWS_EC2_METADATA_DISABLED", "false")];
        let found = reported(resolve(service, &[], &variables, USER), &[]);
        assert_ne!(found.credentials, CredentialSource::Anonymous);
    }
    // The workload's own key comes first.
    reported(
        s3(&KEYS, &[("AWS_NO_SIGN_REQUEST", "1")]),
        &["AWS_NO_SIGN_REQUEST is not used: storage.storage_options.access_key_id is given"],
    );
}

/// The variables that the code reads are quoted in it, each as a whole text.
#[test]
fn every_variable_is_documented() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_to_string(folder.join("../../docs/guides/objects.md")).unwrap();
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let documented: Vec<&str> = docs.split(|c: char| !is_part(c)).collect();
    let mut count = 0;
    for file in ["mod.rs", "amazon.rs", "google.rs", "azure.rs", "network.rs", "profile.rs"] {
        let code = std::fs::read_to_string(folder.join("src/objects").join(file)).unwrap();
        let is_variable = |text: &&str| text.len() > 3 && text.chars().all(is_part);
        for name in code.split('"').filter(is_variable) {
            assert!(
                documented.contains(&name),
                "docs/guides/objects.md does not name {name}, which {file} reads"
            );
            count += 1;
        }
    }
    assert!(count > 50, "{count} variables");
}
