//! The object stores that scripts/test starts, a prefix for each test, and another program's access to them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::proxy::Proxy;
use crate::util::{Cmd, Dir, Done};

/// A variable that `scripts/object-servers` sets.
pub(crate) fn variable(name: &str) -> String {
    let name = format!("FEEDLINE_TEST_{name}");
    std::env::var(&name)
        .unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the object stores"))
}

/// Which interface a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    S3,
    Google,
    Azure,
}

/// Place for the objects of one test: a bucket, and a prefix in it that no other test has.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub scheme: Scheme,
    pub endpoint: String,
    pub bucket: String,
    pub prefix: String,
}

impl Place {
    pub(crate) fn new(scheme: Scheme) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("t{}-{number}-{since}", std::process::id());
        let (endpoint, bucket) = match scheme {
            Scheme::S3 => ("S3", "S3_BUCKET"),
            Scheme::Google => ("GCS", "GCS_BUCKET"),
            Scheme::Azure => ("AZURE", "AZURE_CONTAINER"),
        };
        Place { scheme, endpoint: variable(endpoint), bucket: variable(bucket), prefix }
    }

    pub(crate) fn s3() -> Place {
        Place::new(Scheme::S3)
    }

    /// The same place behind a proxy.
    pub(crate) fn through(&self, proxy: &Proxy) -> Place {
        Place { endpoint: proxy.endpoint(), ..self.clone() }
    }

    /// The key of an object of this test.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// What `--data-dir` takes: the address of a name below the prefix.
    pub(crate) fn url(&self, name: &str) -> String {
        let scheme = match self.scheme {
            Scheme::S3 => "s3",
            Scheme::Google => "gs",
            Scheme::Azure => "az",
        };
        format!("{scheme}://{}/{}", self.bucket, self.key(name))
    }

    /// The environment with which a program finds the server and may use it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        match self.scheme {
            Scheme::S3 => vec![
                ("AWS_ENDPOINT_URL", self.endpoint.clone()),
                ("AWS_ACCESS_KEY_ID", variable("S3_KEY")),
                ("AWS_SECRET_ACCESS_KEY", variable("S3_SECRET")),
                ("AWS_REGION", "us-east-1".to_owned()),
            ],
            // The stand-in asks for no credentials, like an emulator.
            Scheme::Google => vec![("STORAGE_EMULATOR_HOST", self.endpoint.clone())],
            Scheme::Azure => vec![
                ("AZURE_STORAGE_ENDPOINT", self.endpoint.clone()),
                ("AZURE_STORAGE_ACCOUNT_NAME", variable("AZURE_ACCOUNT")),
                ("AZURE_STORAGE_ACCOUNT_KEY", variable("AZURE_KEY")),
            ],
        }
    }

    /// A command with this environment.
    pub(crate) fn with<'a>(&self, command: Cmd<'a>) -> Cmd<'a> {
        self.environment().into_iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    /// What boto3 does with these objects: an action of `python/objects.py` and its arguments. S3 only.
    pub(crate) fn boto(&self, dir: &Dir, arguments: &[&str]) -> Done {
        assert_eq!(self.scheme, Scheme::S3, "boto3 speaks S3");
        let all = [&[self.endpoint.as_str(), self.bucket.as_str()], arguments].concat();
        self.with(dir.python("objects.py", &all)).run()
    }

    /// Writes a data set under DLIO's object names with boto3, as `found.rs` has it in a folder: five training and two
    /// validation files of two samples. `name` is its data folder; a local copy is in `dir` under the same name.
    pub(crate) fn dlio_data_set(&self, dir: &Dir, writer: &str, format: &str, name: &str) {
        dir.python("dlio.py", &[writer, format, name]).run().exits(0).silent();
        self.boto(dir, &["upload", &self.key(name), name]).exits(0);
    }

    /// Checks with boto3 that the objects below a name are the files of a local folder, byte for byte. Returns the
    /// number.
    #[track_caller]
    pub(crate) fn has_files_of(&self, dir: &Dir, name: &str, folder: &str) -> usize {
        let done = self.boto(dir, &["same", &self.key(name), folder]).exits(0).silent();
        done.stdout.trim().parse().unwrap()
    }
}
