//! Where a workload places its data and checkpoints if that is an object store, by DLIO's rules, and mistakes in the
//! keys that describe such a store. Nothing here accesses it.

use super::check::Setting;
use super::error::{Problem, ProblemKind};
use super::layers::GivenKey;
use super::names::StorageType;
use super::settle::SettingMap;
use super::typed::{ObjectSpec, Spec};
use super::value::Origin;
use crate::location::Location;
use crate::objects::{ObjectPlace, Service};

/// Keys that name a place of data, and those that name a place of checkpoints.
const DATA: [&str; 2] = ["storage.storage_root", "dataset.data_folder"];
const CHECKPOINTS: [&str; 2] = ["checkpoint.checkpoint_folder", "checkpoint.burst_folder"];

/// Keys that hold an address of a server, or several.
const ADDRESSES: [&str; 3] =
    ["storage.storage_options.endpoint_url", "storage.endpoint_uris", "storage.storage_options.account_url"];

/// The variable of mlpstorage for checkpoint folders that have no scheme.
pub const CHECKPOINT_SCHEME: &str = "MLPSTORAGE_CHECKPOINT_URI_SCHEME";

/// What that variable says: where folders of checkpoints are that do not say it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointScheme {
    Objects(Service),
    /// Folders: `file`, or `direct` for O_DIRECT.
    Files {
        odirect: bool,
    },
}

impl CheckpointScheme {
    /// Reads the value of the variable; an empty one counts as not set. The error names the variable.
    pub fn parse(value: Option<&str>) -> Result<Option<CheckpointScheme>, String> {
        let Some(scheme) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
        match (scheme, Service::of_scheme(scheme)) {
            (_, Some(service)) => Ok(Some(CheckpointScheme::Objects(service))),
            ("file", None) => Ok(Some(CheckpointScheme::Files { odirect: false })),
            ("direct", None) => Ok(Some(CheckpointScheme::Files { odirect: true })),
            _ => Err(format!(
                "{CHECKPOINT_SCHEME} is '{scheme}', which is not a scheme that feedline knows; set it to s3, gs, az, \
                 file or direct"
            )),
        }
    }
}

/// Whether the workload names an object store, for its data or for the checkpoints that it `saves`.
pub(super) fn names_objects(checked: &SettingMap, saves: bool) -> bool {
    let text = |key: &str| match checked.get(key) {
        Some(Setting::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let storage = text("storage.storage_type").and_then(StorageType::named);
    let is_object = |key: &&str| text(key).is_some_and(|place| object_place(place).is_some());
    matches!(storage, Some(StorageType::S3 | StorageType::AdlsGen2))
        || DATA.iter().any(is_object)
        || saves && CHECKPOINTS.iter().any(is_object)
}

/// Mistakes in the values of keys, each at its place.
pub(super) fn check(spec: &Spec, given: &[GivenKey]) -> Vec<Problem> {
    let place = |key: &str| given.iter().find(|given| given.row.key == key).map(|given| given.node.place);
    let at = |key: &str| place(key).unwrap_or(Origin::Default);
    let ObjectSpec { endpoint_url, endpoint_uris, account_url, uri_scheme, .. } = &spec.storage.objects;
    let values = [endpoint_url.as_slice(), endpoint_uris, account_url.as_slice()];
    let addresses = ADDRESSES.into_iter().zip(values);
    let wrong = addresses.filter_map(|(key, values)| {
        values.iter().find_map(|value| address_mistake(value)).map(|why| (key, why))
    });
    let mut problems: Vec<Problem> = wrong
        .map(|(key, (what, help))| {
            let what = format!("'{key}' {what}");
            Problem::new(ProblemKind::WrongType, at(key), what).key(key).help(format!("help: {help}"))
        })
        .collect();
    if spec.storage.storage_type == StorageType::S3 && Service::of_scheme(uri_scheme).is_none() {
        let key = "storage.storage_options.uri_scheme";
        let what = "'storage.storage_type' s3 and 'storage.storage_options.uri_scheme' do not fit together";
        problems.push(
            Problem::new(ProblemKind::Conflict, at(key), what.to_owned())
                .key(key)
                .help("allowed: s3, gs, az")
                .help("help: for files, set storage.storage_type to local_fs, or to direct_fs for O_DIRECT"),
        );
    }
    problems
}

/// What is wrong with the address of a server, and what to do. The value is not repeated: it may hold a password.
pub fn address_mistake(address: &str) -> Option<(&'static str, &'static str)> {
    let rest = match address.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        Some(_) => return Some(("has a scheme other than http and https", "write http://HOST:PORT")),
        None => address,
    };
    let server = rest.split('/').next().unwrap_or_default();
    match () {
        () if server.is_empty() => Some(("does not name a server", "write http://HOST:PORT")),
        () if rest.contains('@') => Some((
            "has a user or a password",
            "give credentials with storage.storage_options.access_key_id or in the environment",
        )),
        () if rest.contains(['?', '#']) => Some((
            "has parameters",
            "give a shared access signature with storage.sas_token; other parameters are not supported",
        )),
        () if rest.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Some(("has a space", "write http://HOST:PORT"))
        }
        () => None,
    }
}

/// The place in an object store that a text names by its scheme.
fn object_place(text: &str) -> Option<ObjectPlace> {
    match Location::parse(text) {
        Location::Objects(place) => Some(place),
        Location::Path(_) | Location::Url { .. } => abfs(text).map(|(place, _)| place),
    }
}

/// The place and the account of `abfs://container@account.dfs.core.windows.net/path`.
fn abfs(text: &str) -> Option<(ObjectPlace, &str)> {
    let rest = text.strip_prefix("abfs://").or_else(|| text.strip_prefix("abfss://"))?;
    let (container, rest) = rest.split_once('@')?;
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    let account = server.split('.').next().unwrap_or_default();
    let plain = |name: &str| !name.is_empty() && !name.contains([':', '/', '@']);
    (plain(container) && plain(account))
        .then(|| (ObjectPlace::parse(Service::Azure, &format!("{container}/{path}")), account))
}

impl Spec {
    /// The service that `storage.storage_type` and `uri_scheme` name; `None` if that type has files.
    pub fn object_service(&self) -> Option<Service> {
        match self.storage.storage_type {
            StorageType::S3 => Service::of_scheme(&self.storage.objects.uri_scheme),
            StorageType::AdlsGen2 => Some(Service::Azure),
            _ => None,
        }
    }

    /// The location of the data set: `dataset.data_folder` below `storage.storage_root`, which is a bucket if the
    /// storage type is an object store. One of them may be a URL.
    pub fn data_location(&self) -> Location {
        let folder = &self.dataset.data_folder;
        if let Some(place) = object_place(folder) {
            return Location::Objects(place);
        }
        match self.root().join(folder) {
            Location::Objects(place) if self.storage.objects.use_full_object_uri => {
                Location::Objects(ObjectPlace { prefix: place.to_string(), ..place })
            }
            below => below,
        }
    }

    /// The location of a folder of checkpoints. With the storage type of an object store, a folder is a bucket and a
    /// prefix; one that begins with a point is below `storage.storage_root`, and one that begins with a slash is a
    /// path. `scheme` is the one that a front end was given for checkpoints.
    pub fn checkpoint_location(&self, folder: &str, scheme: Option<CheckpointScheme>) -> Location {
        let scheme = scheme.filter(|scheme| self.takes_scheme(folder, *scheme));
        match (object_place(folder), scheme, self.object_service()) {
            (Some(place), ..) => Location::Objects(place),
            (None, Some(CheckpointScheme::Objects(service)), _) => {
                Location::Objects(in_bucket(service, folder))
            }
            (None, None, Some(_)) if folder.starts_with('.') => self.root().join(folder),
            (None, None, Some(service)) if is_relative(folder) => {
                Location::Objects(in_bucket(service, folder))
            }
            _ => Location::parse(folder),
        }
    }

    /// Whether the scheme of a front end decides where a folder of checkpoints is.
    pub fn takes_scheme(&self, folder: &str, scheme: CheckpointScheme) -> bool {
        let is_files = matches!(scheme, CheckpointScheme::Files { .. });
        self.object_service().is_some() && is_relative(folder) && (is_files || !folder.starts_with('.'))
    }

    fn checkpoint_folders(&self) -> impl Iterator<Item = &str> {
        let last = self.checkpoint.checkpoint_folder.as_str();
        [last].into_iter().chain(self.checkpoint.burst_folder.as_deref())
    }

    /// Why the scheme of a front end has no effect on checkpoints that are saved; `None` if it has one.
    pub fn scheme_without_effect(&self, scheme: CheckpointScheme) -> Option<&'static str> {
        match self.object_service() {
            None => Some("storage.storage_type is not that of an object store"),
            Some(_) if self.checkpoint_folders().any(|folder| self.takes_scheme(folder, scheme)) => None,
            Some(_) => Some("checkpoint.checkpoint_folder says itself where it is"),
        }
    }

    /// Keys for the names of objects that have no effect, and why. `data_is_given`: whether a front end names the
    /// location of the data; `scheme`: its scheme for checkpoints.
    pub fn idle_name_keys(
        &self,
        data_is_given: bool,
        scheme: Option<CheckpointScheme>,
    ) -> Vec<(&'static str, &'static str)> {
        let (set, storage) = (&self.dataset, &self.storage);
        let by_location = match data_is_given {
            true => Some("the location of the data is given as a whole"),
            false => object_place(&set.data_folder).map(|_| "dataset.data_folder is a URL"),
        };
        let by_root = || object_place(&storage.storage_root).map(|_| "storage.storage_root is a URL");
        let of_scheme = match storage.storage_type {
            StorageType::AdlsGen2 => Some("the storage type adls_gen2 has one scheme only"),
            _ => by_location.or_else(by_root),
        };
        let takes_it = |folder: &str| {
            is_relative(folder) && !scheme.is_some_and(|scheme| self.takes_scheme(folder, scheme))
        };
        let names_checkpoints = self.workflow.checkpoint
            && storage.storage_type == StorageType::S3
            && self.checkpoint_folders().any(takes_it);
        let objects = &storage.objects;
        let of_scheme = of_scheme.filter(|_| objects.uri_scheme != "s3" && !names_checkpoints);
        let of_keys = by_location.filter(|_| objects.use_full_object_uri);
        let mut idle = Vec::new();
        idle.extend(of_scheme.map(|why| ("storage.storage_options.uri_scheme", why)));
        idle.extend(of_keys.map(|why| ("storage.storage_options.use_full_object_uri", why)));
        idle
    }

    /// The location of `storage.storage_root`.
    fn root(&self) -> Location {
        let root = &self.storage.storage_root;
        match (object_place(root), self.object_service()) {
            (Some(place), _) => Location::Objects(place),
            (None, Some(service)) if !root.contains("://") => Location::Objects(in_bucket(service, root)),
            (None, _) => Location::parse(root),
        }
    }

    /// The Azure account that the address of the data names.
    pub fn account_of_data(&self) -> Option<&str> {
        let places = [&self.dataset.data_folder, &self.storage.storage_root];
        places.into_iter().find_map(|text| abfs(text)).map(|(_, account)| account)
    }
}

/// Whether a folder is neither a URL nor a path from the root.
fn is_relative(folder: &str) -> bool {
    !folder.is_empty() && !folder.starts_with('/') && !folder.contains("://")
}

/// The place of a text without a scheme: a bucket, perhaps followed by a prefix.
fn in_bucket(service: Service, text: &str) -> ObjectPlace {
    ObjectPlace::parse(service, text.trim_start_matches("./").trim_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Override, ParsedWorkload, ReadRules, WorkloadSource, read, read_with};

    fn parsed(sets: &[&str]) -> Result<ParsedWorkload, String> {
        let sets: Vec<Override> =
            sets.iter().map(|set| Override::hydra(set, format!("--set {set}"))).collect();
        read(WorkloadSource { name: "w.yaml", text: "{metric: {}}" }, &sets)
            .map_err(|error| error.to_string())
    }

    fn data(sets: &[&str]) -> String {
        parsed(sets).unwrap().spec.data_location().to_string()
    }

    const S3: &str = "storage.storage_type=s3";

    #[test]
    fn the_storage_type_makes_the_root_a_bucket() {
        assert_eq!(data(&[]), "././data/");
        for (sets, expected) in [
            (&[S3, "storage.storage_root=b", "dataset.data_folder=d/u"][..], "s3://b/d/u"),
            (&[S3, "storage.storage_root=b/p/"], "s3://b/p/data"),
            (&[S3, "storage.storage_root=b", "dataset.data_folder='s3://c/x'"], "s3://c/x"),
            (&[S3, "storage.storage_root=b", "dataset.data_folder=''"], "s3://b"),
            (&[S3, "storage.storage_root='gs://b'", "dataset.data_folder=x"], "gs://b/x"),
            (&[S3, "storage.storage_options.uri_scheme=az", "storage.storage_root=c"], "az://c/data"),
            (&["storage.storage_type=adls_gen2", "storage.storage_root=c/base"], "az://c/base/data"),
            (
                &[
                    "storage.storage_type=adls_gen2",
                    "storage.storage_root='abfs://c@acct.dfs.core.windows.net/base'",
                ],
                "az://c/base/data",
            ),
            (&["storage.storage_root='s3://b/p'", "dataset.data_folder=x"], "s3://b/p/x"),
            (
                &[S3, "storage.storage_root=b", "storage.storage_options.use_full_object_uri=true"],
                "s3://b/s3://b/data",
            ),
        ] {
            assert_eq!(data(sets), expected, "{sets:?}");
        }
        let named = parsed(&["storage.storage_root='abfs://c@acct.dfs.core.windows.net'"]).unwrap().spec;
        assert_eq!(named.account_of_data(), Some("acct"));
    }

    #[test]
    fn a_checkpoint_folder_is_a_bucket_only_with_the_storage_type() {
        let objects = parsed(&[S3, "storage.storage_root=b"]).unwrap().spec;
        let files = parsed(&[]).unwrap().spec;
        for (folder, of_files, of_objects) in [
            ("ckpt/llama", "ckpt/llama", "s3://ckpt/llama"),
            ("./checkpoints/", "./checkpoints/", "s3://b/checkpoints"),
            ("/mnt/x", "/mnt/x", "/mnt/x"),
            ("gs://b/x", "gs://b/x", "gs://b/x"),
            ("", "", ""),
        ] {
            assert_eq!(files.checkpoint_location(folder, None).to_string(), of_files);
            assert_eq!(objects.checkpoint_location(folder, None).to_string(), of_objects);
        }
    }

    #[test]
    fn a_variable_gives_checkpoint_folders_their_scheme() {
        let objects = parsed(&[S3, "storage.storage_root=b"]).unwrap().spec;
        let files = parsed(&[]).unwrap().spec;
        for (scheme, folder, expected) in [
            ("az", "ckpt/x", "az://ckpt/x"),
            ("az", "./x", "s3://b/x"),
            ("az", "/mnt/x", "/mnt/x"),
            ("az", "gs://b/x", "gs://b/x"),
            ("file", "ckpt/x", "ckpt/x"),
            ("file", "./x", "./x"),
            ("direct", "ckpt/x", "ckpt/x"),
        ] {
            let given = CheckpointScheme::parse(Some(scheme)).unwrap();
            assert_eq!(objects.checkpoint_location(folder, given).to_string(), expected, "{scheme} {folder}");
            assert!(!files.takes_scheme(folder, given.unwrap()));
        }
        let direct = CheckpointScheme::parse(Some("direct")).unwrap();
        assert_eq!(direct, Some(CheckpointScheme::Files { odirect: true }));
        assert_eq!(files.checkpoint_location("ckpt/x", direct).to_string(), "ckpt/x");
        assert_eq!((CheckpointScheme::parse(None), CheckpointScheme::parse(Some(""))), (Ok(None), Ok(None)));
        let error = CheckpointScheme::parse(Some("nfs")).unwrap_err();
        assert!(error.starts_with("MLPSTORAGE_CHECKPOINT_URI_SCHEME is 'nfs'"), "{error}");
    }

    #[test]
    fn a_scheme_without_effect_has_a_reason() {
        let scheme = CheckpointScheme::Objects(Service::Azure);
        let why = |sets: &[&str]| parsed(sets).unwrap().spec.scheme_without_effect(scheme);
        assert_eq!(why(&[S3, "checkpoint.checkpoint_folder=ckpt/x"]), None);
        assert_eq!(why(&[S3, "checkpoint.checkpoint_folder=/x", "checkpoint.burst_folder=b/x"]), None);
        assert!(why(&[S3, "checkpoint.checkpoint_folder=/x"]).unwrap().contains("says itself"));
        assert!(why(&["checkpoint.checkpoint_folder=ckpt/x"]).unwrap().contains("storage_type"));
    }

    #[test]
    fn keys_for_names_are_idle_beside_a_complete_location() {
        let (scheme, full) =
            ("storage.storage_options.uri_scheme=az", "storage.storage_options.use_full_object_uri=true");
        let idle = |sets: &[&str], given: bool| -> Vec<&str> {
            let spec = parsed(&[sets, &[scheme, full]].concat()).unwrap().spec;
            let keys = spec.idle_name_keys(given, None).into_iter();
            keys.map(|(key, _)| key.rsplit('.').next().unwrap()).collect()
        };
        let (root, both) = ("storage.storage_root=b", vec!["uri_scheme", "use_full_object_uri"]);
        assert!(idle(&[S3, root], false).is_empty());
        assert_eq!(idle(&[S3, root], true), both);
        assert_eq!(idle(&[S3, root, "dataset.data_folder='s3://b/x'"], false), both);
        assert_eq!(idle(&[S3, "storage.storage_root='s3://b'"], false), ["uri_scheme"]);
        assert_eq!(idle(&["storage.storage_type=adls_gen2", root], false), ["uri_scheme"]);
        // It is the scheme of checkpoints.
        let saves = ["workflow.checkpoint=true", "checkpoint.checkpoint_folder=c/x"];
        assert_eq!(idle(&[S3, root, saves[0], saves[1]], true), ["use_full_object_uri"]);
        let defaults = parsed(&[S3, root]).unwrap().spec;
        assert!(defaults.idle_name_keys(true, None).is_empty());
    }

    #[test]
    fn addresses_have_no_secrets_and_name_a_server() {
        for (address, says) in [
            ("http://user:hunter2@h:9", "has a user or a password"),
            ("h@x", "has a user or a password"),
            ("https://h/?sig=hunter2", "has parameters"),
            ("ftp://h", "a scheme other than http and https"),
            ("http:///x", "does not name a server"),
        ] {
            for key in ADDRESSES {
                let error = parsed(&[&format!("{key}='{address}'")]).unwrap_err();
                assert!(error.contains(says) && error.contains(key), "{address}: {error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
        }
        for address in ["http://127.0.0.1:9000", "https://h.example/base", "h:9000", "[::1]:9000"] {
            parsed(&[&format!("storage.storage_options.endpoint_url='{address}'")]).unwrap();
        }
        let error = parsed(&[S3, "storage.storage_options.uri_scheme=direct"]).unwrap_err();
        assert!(error.contains("uri_scheme") && error.contains("direct_fs"), "{error}");
    }

    #[test]
    fn keys_of_object_stores_have_an_effect_where_there_is_one() {
        let region = "storage.storage_options.region=eu-west-1";
        let warned = |sets: &[&str]| !parsed(sets).unwrap().warnings.is_empty();
        assert!(warned(&[region]));
        for place in [
            S3,
            "storage.storage_type=adls_gen2",
            "storage.storage_root='s3://b'",
            "dataset.data_folder='gs://b'",
        ] {
            assert!(!warned(&[place, region]), "{place}");
        }
        let checkpoints = "checkpoint.checkpoint_folder='az://c/x'";
        assert!(warned(&[checkpoints, region]), "none are saved");
        assert!(!warned(&[checkpoints, "workflow.checkpoint=true", region]));
        let rules = ReadRules { objects: true, ..ReadRules::default() };
        let source = WorkloadSource { name: "w.yaml", text: "{metric: {}}" };
        let read = read_with(source, &[Override::hydra(region, region)], rules).unwrap();
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    }

    #[test]
    fn a_written_spec_has_no_secrets_and_the_rest() {
        let secrets = [
            "storage.storage_options.access_key_id=hunter2",
            "storage.storage_options.secret_access_key=hunter2",
            "storage.storage_options.session_token=hunter2",
            "storage.storage_options.connection_string=hunter2",
            "storage.account_key=hunter2",
            "storage.sas_token=hunter2",
            "storage.proxy='http://user:hunter2@proxy'",
        ];
        let plain = ["storage.storage_options.region=eu", "storage.endpoint_uris=[a,b]", S3];
        let spec = parsed(&[&secrets[..], &plain[..]].concat()).unwrap().spec;
        let text = spec.to_yaml();
        assert!(!text.contains("hunter2") && !text.contains("secret"), "{text}");
        assert!(!format!("{spec:?}{:?}", spec.settings()).contains("hunter2"));
        assert!(!serde_json::to_string(&spec).unwrap().contains("hunter2"));
        let again = read(WorkloadSource { name: "w.yaml", text: &text }, &[]).unwrap();
        assert_eq!(again.spec, parsed(&plain).unwrap().spec);
        assert!(again.warnings.is_empty(), "{:?}", again.warnings);
    }
}
