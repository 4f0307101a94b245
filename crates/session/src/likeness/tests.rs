//! Differences that need another version of feedline, and differences that are none.

use engine::world::Exchange;
use engine::world::threads::{ThreadMember, members_on};

use super::*;
use crate::ask::{Ask, WorkloadText};
use crate::error::ErrorKind;

const TEXT: &str = "
framework: pytorch
dataset: {format: npz, num_files_train: 200, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 5, stall_timeout: 20}
train: {epochs: 1, computation_time: 0.001}
";

fn asked() -> Asked {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), TEXT.to_owned());
    Ask::new(WorkloadText { name, source, text, ranks: 2, built_in: false }).read().unwrap()
}

/// What each of three members, two of them on one host, gets.
fn at_all<T: Send>(work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| scope.spawn(move || work(&world));
        let threads: Vec<_> = members_on(&["c01", "c01", "c07"]).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A later version may read the same workload differently, so the version is named.
#[test]
fn another_version_is_named_even_if_the_workload_differs_too() {
    let errors = at_all(|world| {
        let (mut asked, is_other) = (asked(), world.member() == 2);
        asked.spec.reader.batch_size += u64::from(is_other);
        let version = if is_other { "0.2.0" } else { "0.1.0" };
        compare_versions(&asked, version, world, &Stop::default()).unwrap_err()
    });
    let expected = "the processes run different versions of feedline: process 0 on c01 runs 0.1.0, process 2 on c07 \
                    runs 0.2.0; install the same version on all nodes";
    for error in errors {
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Refused, expected));
    }
}

#[test]
fn places_may_differ_and_equal_requests_agree() {
    let agreed = at_all(|world| {
        let mut asked = asked();
        asked.spec.storage.storage_root = format!("/local/{}", world.member());
        compare_versions(&asked, "1", world, &Stop::default()).is_ok()
    });
    assert_eq!(agreed, [true; 3]);
}
