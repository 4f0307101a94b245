//! Data sets and checkpoints in an object store, here one in memory: the same files as in a folder, listed once by all
//! members, without a request per file.

#![expect(clippy::unwrap_used, reason = "a test")]

mod bucket;

use std::collections::BTreeMap;
use std::path::Path;

use bucket::{Requests, bucket, registry};
use engine::generate::Generated;
use engine::host::Host;
use engine::world::threads::{ThreadMember, members};
use engine::{Exchange, Solo, Stop};
use feedline_session::{
    Ask, Asked, CalibrationTime, DataSetTask, Error, ErrorKind, Generate, RunTask, SilentObserver,
    WorkloadText, run, settle,
};
use model::location::Location;
use model::spec::Override;

const WORKLOAD: &str = "
framework: tensorflow
dataset: {format: tfrecord, num_files_train: 53, num_files_eval: 7, num_subfolders_train: 4, record_length_bytes: 3000,
          num_samples_per_file: 3}
workflow: {generate_data: false, evaluation: true}
reader: {data_loader: tensorflow, batch_size: 3, read_threads: 2, batch_size_eval: 3, stall_timeout: 20, cache: warm}
train: {epochs: 1, computation_time: 0.001}
";
const FILES: u64 = 60;
const TASK: DataSetTask = DataSetTask { keep_seed: false, verify: false, writers: 2, overwrite: false };

fn asked(place: &str, settings: &[&str]) -> Asked {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), WORKLOAD.to_owned());
    let workload = WorkloadText { name, source, text, ranks: 4, built_in: false };
    let overrides = settings.iter().map(|setting| Override::hydra(setting, setting)).collect();
    let data = Some(Location::parse(place));
    Ask { overrides, data, registry: registry(), ..Ask::new(workload) }.read().unwrap()
}

/// Does something at this many members, and returns what each returned.
fn at_all<T: Send>(count: u64, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| {
            scope.spawn(move || {
                let done = work(&world);
                // No member leaves before the others have what they wait for.
                let _ = world.agree(Ok(()), &Stop::default());
                done
            })
        };
        let threads: Vec<_> = members(count).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn generate(count: u64, task: DataSetTask, asked: &Asked) -> Generated {
    at_all(count, |world| task.run(asked, world, &SilentObserver, &Stop::default()).unwrap().0)[0]
}

/// What the requests of a piece of work add up to.
fn requests(name: &str, work: impl FnOnce()) -> Requests {
    bucket(name).lock().unwrap().requests = Requests::default();
    work();
    bucket(name).lock().unwrap().requests
}

/// The files of the data set without feedline's own ones, below a prefix.
fn objects(name: &str, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let bucket = bucket(name);
    let bucket = bucket.lock().unwrap();
    let all = bucket.objects.iter().filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?, bytes)));
    all.filter(|(name, _)| !name.starts_with('.'))
        .map(|(name, bytes)| (name.to_owned(), bytes.clone()))
        .collect()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            match path.is_dir() {
                true => folders.push(path),
                false if name.starts_with('.') => {}
                false => drop(found.insert(name, std::fs::read(path).unwrap())),
            }
        }
    }
    found
}

#[test]
fn a_data_set_is_the_same_as_in_a_folder_whatever_the_number_of_members() {
    let folder = tempfile::tempdir().unwrap();
    generate(1, TASK, &asked(folder.path().to_str().unwrap(), &[]));
    let expected = files(folder.path());
    for count in [1, 3] {
        let prefix = format!("p{count}");
        let done = generate(
            count,
            DataSetTask { verify: true, ..TASK },
            &asked(&format!("s3://same/{prefix}"), &[]),
        );
        assert_eq!((done.files_written, done.bytes_verified), (FILES, done.bytes_written));
        assert!(objects("same", &format!("{prefix}/")) == expected, "{count} members");
    }
    assert!(!Path::new("s3:").exists());
}

#[test]
fn what_is_missing_is_found_by_one_listing_without_a_request_per_file() {
    for count in [1, 4] {
        let name = format!("resume{count}");
        let asked = asked(&format!("s3://{name}/d"), &[]);
        generate(count, TASK, &asked);
        let whole = objects(&name, "d/");
        let listed = requests(&name, || {
            let kept = generate(count, TASK, &asked);
            assert_eq!((kept.files_written, kept.files_kept), (0, FILES));
        });
        // The files, and the index files next to them, each once.
        assert_eq!(listed.listed, whole.len() as u64, "{count} members: {listed:?}");
        assert!(listed.heads <= 2 * count + 4 && listed.puts == 0, "{listed:?}");
        // Every member lists a part of the files and of the index files of two splits. One looks for a partial
        // manifest.
        assert!(listed.lists <= 4 * count + 1, "nothing is listed again: {listed:?}");
        let keys: Vec<String> = whole.keys().cloned().collect();
        {
            let bucket = bucket(&name);
            let mut bucket = bucket.lock().unwrap();
            // A missing file, a short one, and one without its index.
            bucket.objects.remove(&format!("d/{}", keys[1]));
            bucket.objects.get_mut(&format!("d/{}", keys[20])).unwrap().pop();
            bucket.objects.remove(&format!("d/{}", keys[41]));
        }
        let written = requests(&name, || {
            let done = generate(count, TASK, &asked);
            assert_eq!((done.files_written, done.files_kept), (3, FILES - 3));
        });
        assert!(written.heads <= 3 * count + 12, "{written:?}");
        assert!(objects(&name, "d/") == whole);
    }
}

#[test]
fn other_objects_in_a_folder_of_the_data_set_are_named() {
    for count in [1, 3] {
        let name = format!("others{count}");
        let asked = asked(&format!("s3://{name}/d"), &[]);
        generate(count, TASK, &asked);
        let put = |key: &str| bucket(&name).lock().unwrap().objects.insert(key.to_owned(), Vec::new());
        // Hidden ones, and folders of others, do not matter.
        put("d/train/.hidden");
        put("d/train/notes/x");
        assert_eq!(generate(count, TASK, &asked).files_kept, FILES);
        put("d/train/notes.txt");
        let outcomes = at_all(count, |world| {
            TASK.run(&asked, world, &SilentObserver, &Stop::default()).unwrap_err().to_string()
        });
        assert!(outcomes[0].contains("such as train/notes.txt"), "{outcomes:?}");
    }
}

#[test]
fn an_interrupted_generation_is_resumed_on_any_host() {
    let asked = asked("s3://hosts/d", &[]);
    generate(1, TASK, &asked);
    {
        let bucket = bucket("hosts");
        let mut bucket = bucket.lock().unwrap();
        let manifest = bucket.objects.get_mut("d/.feedline/dataset.json").unwrap();
        let text = String::from_utf8(manifest.clone()).unwrap();
        let text = text.replace("\"complete\": true", "\"complete\": false");
        let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
        other["boot_id"] = "another-boot".into();
        *manifest = serde_json::to_vec(&other).unwrap();
    }
    let done = generate(1, TASK, &asked);
    assert_eq!((done.files_written, done.files_kept), (0, FILES), "finished objects are durable");
}

#[test]
fn a_generator_that_resumes_puts_a_manifest_of_its_own() {
    let asked = asked("s3://again/d", &[]);
    generate(1, TASK, &asked);
    let manifest = || bucket("again").lock().unwrap().objects["d/.feedline/dataset.json"].clone();
    let complete = String::from_utf8(manifest()).unwrap();
    assert!(!complete.contains("\"writer\""), "{complete}");
    let begun = complete.replace("\"complete\": true", "\"complete\": false").into_bytes();
    bucket("again").lock().unwrap().objects.insert("d/.feedline/dataset.json".to_owned(), begun);
    let seen = requests("again", || assert_eq!(generate(1, TASK, &asked).files_kept, FILES));
    // The claim, mlpstorage's manifest, and the complete one.
    assert_eq!(seen.puts, 3, "an earlier generator that still runs notices the first: {seen:?}");
    assert_eq!(String::from_utf8(manifest()).unwrap(), complete);
}

/// Trains with this many members and returns the requests.
fn train(name: &str, count: u64, settings: &[&str]) -> Requests {
    let place = format!("s3://{name}/d");
    requests(name, || {
        let digests = at_all(count, |world| {
            let (host, stop) = (Host::look(), Stop::default());
            let settled = settle(asked(&place, settings), &host, world, &stop).unwrap();
            settled.check_host(&settled.plan, world, &stop).unwrap();
            settled.check_data(world, &stop).unwrap();
            let settled = settled.make_data(world, &SilentObserver, &stop).unwrap();
            assert!(settled.plan.training.as_ref().unwrap().cache.is_none());
            let said = settled.asked.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert!(said.iter().any(|warning| warning.contains("reader.cache")), "{said:?}");
            let task = RunTask {
                plan: &settled.plan,
                calibrate: CalibrationTime::Never,
                share: true,
                world,
                observer: &SilentObserver,
                recorder: None,
                stop: &stop,
            };
            let ledger = run(&settled, &task).unwrap();
            assert!(ledger.faults().is_empty(), "{:?}", ledger.faults());
            ledger.rows(1, model::ledger::Phase::Train).map(|row| row.1.samples_delivered).sum::<u64>()
        });
        assert!(digests.iter().all(|samples| *samples == digests[0] && *samples > 0), "{digests:?}");
    })
}

#[test]
fn a_run_on_a_complete_data_set_lists_nothing() {
    for count in [1, 4] {
        let name = format!("run{count}");
        generate(1, TASK, &asked(&format!("s3://{name}/d"), &[]));
        let seen = train(&name, count, &[]);
        assert_eq!((seen.lists, seen.puts), (0, 0), "{count} members: {seen:?}");
        assert!(seen.heads <= FILES + 6 * count, "one member looks for some of the files: {seen:?}");
    }
}

#[test]
fn existing_objects_are_listed_once_by_all_members() {
    for count in [1, 3] {
        let name = format!("found{count}");
        generate(1, TASK, &asked(&format!("s3://{name}/d"), &[]));
        bucket(&name).lock().unwrap().objects.retain(|key, _| !key.contains("/."));
        let seen = train(&name, count, &[]);
        assert_eq!((seen.listed, seen.puts), (FILES, 0), "{count} members: {seen:?}");
        assert!(seen.heads <= FILES + 6 * count, "one member looks for some of them: {seen:?}");
    }
}

#[test]
fn a_missing_object_of_existing_ones_is_named() {
    generate(1, TASK, &asked("s3://lost/d", &[]));
    let lost = objects("lost", "d/").into_keys().filter(|key| !key.ends_with(".idx")).nth(30).unwrap();
    {
        let bucket = bucket("lost");
        let mut bucket = bucket.lock().unwrap();
        bucket.objects.retain(|key, _| !key.contains("/.") && *key != format!("d/{lost}"));
    }
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let settled = settle(asked("s3://lost/d", &[]), &host, &world, &stop).unwrap();
    let error = settled.make_data(&world, &SilentObserver, &stop).err().unwrap();
    assert!(error.to_string().contains(&format!("s3://lost/d/{lost} does not exist")), "{error}");
}

#[test]
fn a_place_that_another_data_set_holds_is_refused() {
    generate(1, TASK, &asked("s3://other/d", &[]));
    let other = asked("s3://other/d", &["dataset.record_length_bytes=4000"]);
    let error = TASK.run(&other, &Solo::new(), &SilentObserver, &Stop::default()).unwrap_err();
    assert!(error.to_string().contains("the folder holds another data set"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

fn refusal(place: &str, change: impl FnOnce(&mut Ask), settings: &[&str]) -> Error {
    let mut asked = asked(place, settings);
    change(&mut asked.ask);
    settle(asked, &Host::look(), &Solo::new(), &Stop::default()).err().unwrap()
}

#[test]
fn a_backend_must_fit_the_location() {
    let store = |name: &'static str| move |ask: &mut Ask| ask.store = Some(name.to_owned());
    for (place, name, says) in [
        (
            "s3://b/x",
            "posix",
            "posix reads files in folders, but s3://b/x is in an object store; use --store s3",
        ),
        ("s3://b/x", "fault:posix,kind=eio", "fault:posix,kind=eio reads files in folders"),
        ("/tmp/x", "s3", "the backend s3 reads objects, but /tmp/x is a folder"),
        ("az://b/x", "s3", "the backend s3 cannot read az://b/x; use --store az"),
    ] {
        let error = refusal(place, store(name), &[]);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
    for (place, name) in
        [("s3://fits/x", "null"), ("s3://fits/x", "sim:ssd"), ("s3://fits/x", "fault:s3,kind=eio")]
    {
        let mut asked = asked(place, &[]);
        asked.ask.store = Some(name.to_owned());
        let (host, world) = (Host::look(), Solo::new());
        let settled = settle(asked, &host, &world, &Stop::default()).unwrap();
        assert_eq!(settled.selection.plan().is_objects(), name.contains("s3"), "{name}");
    }
}

#[test]
fn a_plan_asks_an_object_store_only_if_it_is_named() {
    let name = "planned";
    generate(1, TASK, &asked("s3://planned/d", &[]));
    let planned = |given: bool| {
        let mut asked =
            asked("s3://planned/d", &["storage.storage_root='s3://planned'", "dataset.data_folder=d"]);
        asked.ask.only_plans = true;
        asked.ask.data = asked.ask.data.filter(|_| given);
        assert_eq!(asked.data_location().to_string(), "s3://planned/d");
        let (host, world) = (Host::look(), Solo::new());
        requests(name, || drop(settle(asked, &host, &world, &Stop::default()).unwrap()))
    };
    assert_eq!(planned(false), Requests::default());
    assert!(planned(true).heads > 0);
}

#[test]
fn a_place_without_a_bucket_is_a_usage_error() {
    let (host, world, stop) = (Host::look(), Solo::new(), Stop::default());
    let error = settle(asked("s3:///x", &[]), &host, &world, &stop).err().unwrap();
    assert_eq!(error.to_string(), "the data folder s3:///x names no bucket; write s3://BUCKET/PREFIX");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[test]
fn tiers_may_be_in_folders_and_in_object_stores() {
    let fast = tempfile::tempdir().unwrap();
    let fast_folder = format!("checkpoint.burst_folder={}", fast.path().display());
    let saves =
        ["workflow.checkpoint=true", "model.model_size=1000000", "checkpoint.mode_of_save=burst-buffer"];
    for (data, last, burst, are_objects) in [
        ("/tmp/none", "checkpoint.checkpoint_folder='s3://ckpt/x'", fast_folder.as_str(), (true, false)),
        (
            "s3://data/d",
            "checkpoint.checkpoint_folder=/tmp/last",
            "checkpoint.burst_folder='s3://ckpt/y'",
            (false, true),
        ),
    ] {
        let settings = [&saves[..], &[last, burst]].concat();
        let mut asked = asked(data, &settings);
        asked.ask.generate = Generate::Never;
        let (host, world) = (Host::look(), Solo::new());
        let settled = settle(asked, &host, &world, &Stop::default()).unwrap();
        let plan = settled.plan.checkpoint.as_ref().unwrap();
        let fast = plan.fast.as_ref().unwrap();
        assert_eq!((plan.last.is_objects(), fast.is_objects()), are_objects);
        assert!(plan.last.holds_files && fast.holds_files);
    }
    let same =
        [&saves[..], &["checkpoint.checkpoint_folder='s3://c/x'", "checkpoint.burst_folder='s3://c/x/'"]]
            .concat();
    assert!(matches!(refusal("/tmp/none", |_| (), &same), Error::SameTier));
}
