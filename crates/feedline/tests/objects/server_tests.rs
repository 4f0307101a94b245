//! The servers do what tests rely on: real signatures, read-only users, missing buckets, and the stand-in for Google.

use super::proxy::Proxy;
use super::servers::{Place, Scheme, variable};
use crate::util::Dir;

#[test]
fn boto3_writes_and_reads_a_data_set_of_dlio() {
    let (dir, place) = (Dir::new(), Place::s3());
    place.dlio_data_set(&dir, "argonne", "npz", "unet3d");
    let listed = place.boto(&dir, &["list", &place.key("unet3d/")]).exits(0).stdout;
    let keys: Vec<&str> = listed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(keys.len(), 7, "{listed}");
    assert_eq!(keys[0], place.key("unet3d/train/img_0_of_5.npz"));
    assert_eq!(keys[6], place.key("unet3d/valid/img_1_of_2.npz"));
    assert_eq!(place.has_files_of(&dir, "unet3d", "unet3d"), 7);
    let arrays = place.boto(&dir, &["arrays", &place.key("unet3d")]).exits(0).stdout;
    assert_eq!(arrays.lines().filter(|line| line.contains("y(2,)int64")).count(), 7, "{arrays}");
    dir.write("unet3d/train/img_0_of_5.npz", "other bytes");
    place
        .boto(&dir, &["same", &place.key("unet3d"), "unet3d"])
        .exits(1)
        .says("different: ['train/img_0_of_5.npz']");
    place.boto(&dir, &["delete", &place.key("unet3d/")]).exits(0);
    assert_eq!(place.boto(&dir, &["list", &place.key("")]).exits(0).stdout, "");
}

#[test]
fn signatures_and_permissions_are_checked() {
    let (dir, place) = (Dir::new(), Place::s3());
    let key = place.key("key with spaces, \u{fc} and +");
    place.boto(&dir, &["put", &key, "text"]).exits(0);
    let listed = place.boto(&dir, &["list", &place.key("")]).exits(0).stdout;
    assert_eq!(listed, format!("{key} 4\n"));
    let as_user = |name: &str, secret: &str, arguments: &[&str]| {
        let all = [&[place.endpoint.as_str(), place.bucket.as_str()], arguments].concat();
        let command = place.with(dir.python("objects.py", &all));
        command.env("AWS_ACCESS_KEY_ID", name).env("AWS_SECRET_ACCESS_KEY", secret).run()
    };
    let (reader, secret) = (variable("S3_READER_KEY"), variable("S3_READER_SECRET"));
    as_user(&reader, &secret, &["list", &place.key("")]).exits(0).prints(&key);
    as_user(&reader, &secret, &["put", &key, "other"]).exits(1).says("AccessDenied");
    as_user(&reader, "wrong", &["list", &place.key("")]).exits(1).says("SignatureDoesNotMatch");
    as_user("UNKNOWN", "wrong", &["list", &place.key("")]).exits(1).says("InvalidAccessKeyId");
    let missing = Place { bucket: "feedline-no-such-bucket".to_owned(), ..place.clone() };
    missing.boto(&dir, &["list", ""]).exits(1).says("NoSuchBucket");
    missing.boto(&dir, &["put", "key", "text"]).exits(1).says("NoSuchBucket");
}

#[test]
fn unfinished_uploads_are_listed() {
    let (dir, place) = (Dir::new(), Place::s3());
    place.boto(&dir, &["begin", &place.key("large")]).exits(0);
    let uploads = place.boto(&dir, &["uploads", &place.key("")]).exits(0).stdout;
    assert_eq!(uploads, format!("{}\n", place.key("large")));
    assert_eq!(place.boto(&dir, &["list", &place.key("")]).exits(0).stdout, "");
}

#[test]
fn the_server_is_reached_by_tls_with_its_own_authority() {
    let (dir, place) = (Dir::new(), Place::s3());
    let secure = Place { endpoint: variable("S3_TLS"), ..place.clone() };
    let list = |place: &Place| {
        let all = [&place.endpoint, &place.bucket, "list", &place.prefix];
        place.with(dir.python("objects.py", &all)).env("AWS_CA_BUNDLE", variable("CA"))
    };
    list(&secure).run().exits(0);
    let other_name = Place { endpoint: secure.endpoint.replace("127.0.0.1", "localhost"), ..secure.clone() };
    list(&other_name).run().exits(1).says("hostname 'localhost' doesn't match");
    let other_authority = list(&secure).env("AWS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt");
    other_authority.run().exits(1).says("CERTIFICATE_VERIFY_FAILED");
}

#[test]
fn every_server_has_an_address_and_an_environment() {
    for (scheme, start, variables) in
        [(Scheme::S3, "s3://", 4), (Scheme::Google, "gs://", 1), (Scheme::Azure, "az://", 3)]
    {
        let place = Place::new(scheme);
        assert!(place.url("data").starts_with(start));
        assert_eq!(place.environment().len(), variables);
        let proxy = Proxy::to(&place.endpoint).start();
        let path = |endpoint: &str| endpoint.splitn(4, '/').nth(3).unwrap_or_default().to_owned();
        assert_eq!(path(&place.through(&proxy).endpoint), path(&place.endpoint));
    }
}
