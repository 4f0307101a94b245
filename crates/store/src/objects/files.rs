//! The files of a data set as objects of a bucket: a name becomes a key below the place of the data set. There are no
//! folders to create and nothing to flush: an object appears complete and durable. Object stores have no locks either.
//! What a lock protects on a file system, a condition protects here: the file that tells what the place holds is put
//! only if it is as this writer last saw it.

use std::sync::{Arc, Mutex, PoisonError};

use model::names::Name;
use model::objects::ObjectPlace;

use super::contract::{
    ListRequest, ListedKey, ObjectFacts, Objects, PutCondition, PutOutcome, Upload, check_conditions,
    upload_error,
};
use super::keys::ObjectKeys;
use crate::{Files, FolderCount, KeyListing, NameRange, SizeListing, StoreError, Writer};

/// The folder of files that are feedline's own.
const OWN_FOLDER: &str = ".feedline";
/// What is put on a condition is a manifest, which is about a page long.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct ObjectFiles {
    objects: Arc<dyn Objects>,
    place: ObjectPlace,
    keys: ObjectKeys,
    /// The object that only one writer replaces, from `lock` on.
    guarded: Mutex<Option<GuardedObject>>,
}

/// An object as it was when this writer last saw or put it.
#[derive(Debug)]
struct GuardedObject {
    key: String,
    /// `None`: there was none.
    tag: Option<String>,
    /// Whether the server is known to look at conditions.
    is_checked: bool,
}

impl ObjectFiles {
    /// `server`: what distinguishes the bucket from others of the same name.
    pub(crate) fn new(objects: Arc<dyn Objects>, place: ObjectPlace, server: &str) -> ObjectFiles {
        let keys = ObjectKeys::new(Arc::clone(&objects), &place, server);
        ObjectFiles { objects, place, keys, guarded: Mutex::default() }
    }

    /// The key of a file.
    fn key(&self, name: &Name) -> Result<String, StoreError> {
        let text = name.as_str();
        if text.len() != name.as_bytes().len() {
            let what = format!("{name} is not UTF-8, so no object of {} has this name", self.place);
            return Err(StoreError::Refused(what));
        }
        Ok(self.place.key(text))
    }

    /// The beginning of the keys of everything in a folder.
    fn below(&self, folder: &Name) -> Result<String, StoreError> {
        let key = match folder.as_str() {
            "" | "." => self.place.prefix.clone(),
            _ => self.key(folder)?,
        };
        Ok(if key.is_empty() { key } else { format!("{key}/") })
    }

    /// Passes all entries of a listing to `each` until it returns false.
    fn entries(
        &self,
        request: &ListRequest<'_>,
        each: &mut dyn FnMut(ListedKey<'_>) -> bool,
    ) -> Result<(), StoreError> {
        let (mut at, mut goes_on) = (None::<String>, true);
        loop {
            let page = ListRequest { continues: at.as_deref(), ..*request };
            let next = self.objects.list(&page, &mut |entry| goes_on = goes_on && each(entry))?;
            match next {
                None => return Ok(()),
                Some(_) if !goes_on => return Ok(()),
                // A server that returns the same page again would be listed forever.
                Some(next) if at.as_ref() == Some(&next) => {
                    let shown = self.objects.shown(request.prefix);
                    let what =
                        format!("cannot list {shown}: the server returns the same page again and again");
                    return Err(StoreError::Refused(what));
                }
                Some(next) => at = Some(next),
            }
        }
    }

    /// Replaces the guarded object, or returns who is to blame if that is not possible.
    fn put_guarded(&self, guarded: &mut GuardedObject, bytes: &[u8]) -> Result<(), StoreError> {
        let condition = guarded.tag.as_deref().map_or(PutCondition::Absent, PutCondition::Tagged);
        let facts = match self.objects.put(&guarded.key, bytes, condition)? {
            PutOutcome::Done(facts) => facts,
            // A server may have stored the object although its answer was lost: then it is refused when it is sent
            // again.
            PutOutcome::Refused => match self.objects.get(&guarded.key, MOST_BYTES)? {
                Some((there, facts)) if there == bytes => facts,
                _ => return Err(StoreError::Busy { name: self.place.to_string() }),
            },
        };
        guarded.tag = Some(self.tag_of(&guarded.key, facts)?);
        if !guarded.is_checked {
            // A server that ignores conditions stores these bytes; they are the same document.
            check_conditions(&*self.objects, &guarded.key, &[bytes, b"\n"].concat())?;
            guarded.is_checked = true;
        }
        Ok(())
    }

    /// The tag of an object, without which nothing can be put on a condition.
    fn tag_of(&self, key: &str, facts: ObjectFacts) -> Result<String, StoreError> {
        if facts.tag.is_empty() {
            let what = "the server sends no entity tag, so two writers could overwrite each other's data";
            return Err(StoreError::Refused(format!("{}: {what}", self.objects.shown(key))));
        }
        Ok(facts.tag)
    }

    fn mark_key(&self, mark: &str) -> String {
        self.place.key(&format!("{OWN_FOLDER}/shared-{mark}"))
    }
}

impl Files for ObjectFiles {
    fn shown(&self, name: &Name) -> String {
        self.place.join(&name.to_string()).to_string()
    }

    fn size(&self, name: &Name) -> Result<Option<u64>, StoreError> {
        Ok(self.objects.head(&self.key(name)?)?.map(|facts| facts.bytes))
    }

    fn create_folder(&self, _name: &Name) -> Result<(), StoreError> {
        Ok(())
    }

    fn create(&self, name: &Name) -> Result<Box<dyn Writer + '_>, StoreError> {
        Ok(Box::new(ObjectWriter { upload: self.objects.upload(&self.key(name)?)?, place: &self.place }))
    }

    fn put(&self, name: &Name, bytes: &[u8]) -> Result<(), StoreError> {
        let key = self.key(name)?;
        let mut guarded = self.guarded.lock().unwrap_or_else(PoisonError::into_inner);
        match guarded.as_mut().filter(|guarded| guarded.key == key) {
            Some(guarded) => self.put_guarded(guarded, bytes),
            None => self.objects.put(&key, bytes, PutCondition::Always).map(drop),
        }
    }

    fn lock(&self, guard: &Name) -> Result<(), StoreError> {
        let key = self.key(guard)?;
        let tag = self.objects.head(&key)?.map(|facts| self.tag_of(&key, facts)).transpose()?;
        let guarded = GuardedObject { key, tag, is_checked: false };
        *self.guarded.lock().unwrap_or_else(PoisonError::into_inner) = Some(guarded);
        Ok(())
    }

    fn has_locks(&self) -> bool {
        false
    }

    fn check_guard(&self) -> Result<(), StoreError> {
        let guarded = self.guarded.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(GuardedObject { key, tag, .. }) = &*guarded else { return Ok(()) };
        match self.objects.head(key)?.map(|facts| facts.tag) == *tag {
            true => Ok(()),
            false => Err(StoreError::Busy { name: self.place.to_string() }),
        }
    }

    fn mark(&self, mark: &str) -> Result<bool, StoreError> {
        let outcome = self.objects.put(&self.mark_key(mark), b"", PutCondition::Absent)?;
        Ok(matches!(outcome, PutOutcome::Done(_)))
    }

    fn unmark(&self, mark: &str) -> Result<(), StoreError> {
        self.objects.delete(&self.mark_key(mark))
    }

    fn remove_leftovers(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<(), StoreError> {
        let below = self.below(folder)?;
        for upload in self.objects.uploads(&format!("{below}{prefix}"))? {
            let name = upload.key.strip_prefix(&below).unwrap_or("/");
            let is_own = name.starts_with(prefix) && name.ends_with(suffix) && !name.contains('/');
            if is_own && name.len() >= prefix.len() + suffix.len() {
                self.objects.abort(&upload)?;
            }
        }
        Ok(())
    }

    fn may_have_leftovers(&self) -> bool {
        self.objects.may_have_left_uploads()
    }

    fn census(&self, folder: &Name, prefix: &str, suffix: &str) -> Result<Option<FolderCount>, StoreError> {
        let below = self.below(folder)?;
        let (mut census, mut exists) = (FolderCount::default(), false);
        let request = ListRequest { prefix: &below, by_folder: true, ..ListRequest::default() };
        self.entries(&request, &mut |entry| {
            exists = true;
            let ListedKey::Object { key, .. } = entry else { return true };
            let name = key.strip_prefix(&below).unwrap_or_default();
            // Some programs put an empty object for a folder, whose key ends with a slash.
            if name.is_empty() || name.starts_with('.') {
                return true;
            }
            if name.starts_with(prefix) && name.ends_with(suffix) {
                census.matching += 1;
            } else {
                census.others += 1;
                census.example.get_or_insert_with(|| name.to_owned());
            }
            true
        })?;
        Ok(exists.then_some(census))
    }

    fn lists_sizes(&self) -> SizeListing {
        if self.objects.lists_after() { SizeListing::Ranges } else { SizeListing::Whole }
    }

    fn list_sizes(
        &self,
        range: &NameRange<'_>,
        each: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), StoreError> {
        let below = self.below(range.folder)?;
        let bound = |name: &str| if name.is_empty() { String::new() } else { self.place.key(name) };
        let (after, until) = (bound(range.after), bound(range.until));
        let root = self.place.key("");
        let root = if root.is_empty() { root } else { format!("{root}/") };
        let starts = if self.objects.lists_after() { after.as_str() } else { "" };
        let request = ListRequest { prefix: &below, after: starts, ..ListRequest::default() };
        self.entries(&request, &mut |entry| match entry {
            ListedKey::Object { key, .. } if !until.is_empty() && key > until.as_str() => false,
            ListedKey::Object { key, bytes, .. } if key > after.as_str() => {
                key.strip_prefix(&root).is_none_or(|name| each(name, bytes))
            }
            ListedKey::Object { .. } | ListedKey::Prefix(_) => true,
        })
    }

    fn finishes_durably(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn progress(&self) -> u64 {
        self.objects.progress()
    }

    fn keys(&self) -> Option<&dyn KeyListing> {
        Some(&self.keys)
    }
}

/// An object that is being uploaded. Unless it is finished, it never appears.
struct ObjectWriter<'a> {
    upload: Box<dyn Upload + 'a>,
    place: &'a ObjectPlace,
}

impl Writer for ObjectWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.upload.write(bytes).map_err(|error| upload_error(error, self.place))
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        self.upload.finish().map(drop).map_err(|error| upload_error(error, self.place))
    }
}

#[cfg(test)]
mod tests {
    use model::objects::Service;

    use super::super::memory::{IgnoredCondition, MemoryBucket};
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// The files below a prefix of a bucket, and the bucket.
    fn files_at(prefix: &str) -> (Arc<MemoryBucket>, ObjectFiles) {
        let bucket = Arc::new(MemoryBucket::default());
        let files = on(&bucket, prefix);
        (bucket, files)
    }

    fn on(bucket: &Arc<MemoryBucket>, prefix: &str) -> ObjectFiles {
        let place = ObjectPlace { service: Service::S3, bucket: "b".into(), prefix: prefix.into() };
        ObjectFiles::new(Arc::clone(bucket) as Arc<dyn Objects>, place, "localhost:1")
    }

    #[test]
    fn files_are_objects_below_the_place_and_appear_complete() {
        for (prefix, key) in [("data/u", "data/u/train/x"), ("", "train/x")] {
            let (bucket, files) = files_at(prefix);
            let file = name("train/x");
            files.create_folder(&name("train")).unwrap();
            assert_eq!(files.size(&file), Ok(None));
            let mut unfinished = files.create(&file).unwrap();
            unfinished.write(b"abc").unwrap();
            drop(unfinished);
            assert!(bucket.keys().is_empty() && bucket.uploads("").unwrap().is_empty());
            let mut writer = files.create(&file).unwrap();
            writer.write(b"abc").unwrap();
            writer.finish().unwrap();
            assert_eq!((files.size(&file), bucket.keys()), (Ok(Some(3)), vec![key.to_owned()]));
        }
        assert_eq!(files_at("p").1.shown(&name("train/x")), "s3://b/p/train/x");
    }

    #[test]
    fn of_two_writers_only_one_claims_a_place() {
        let (bucket, one) = files_at("p");
        let (two, manifest) = (on(&bucket, "p"), name(".feedline/dataset.json"));
        one.lock(&manifest).unwrap();
        two.lock(&manifest).unwrap();
        one.put(&manifest, b"one").unwrap();
        let busy = two.put(&manifest, b"two").unwrap_err();
        assert_eq!(busy, StoreError::Busy { name: "s3://b/p".into() });
        // The one that claimed it continues, until another writer replaces what it put.
        one.put(&manifest, b"one, too").unwrap();
        two.lock(&manifest).unwrap();
        two.put(&manifest, b"two").unwrap();
        assert!(matches!(one.put(&manifest, b"complete"), Err(StoreError::Busy { .. })));
        // What is stored already was stored by an attempt whose answer was lost.
        two.put(&manifest, b"complete").unwrap();
        one.put(&manifest, b"complete").unwrap();
        one.put(&name("other"), b"x").unwrap();
        two.put(&name("other"), b"y").unwrap();
    }

    #[test]
    fn a_writer_notices_that_another_one_has_claimed_its_place() {
        let (bucket, one) = files_at("p");
        let (two, manifest) = (on(&bucket, "p"), name(".feedline/dataset.json"));
        one.check_guard().unwrap();
        one.lock(&manifest).unwrap();
        one.put(&manifest, b"one").unwrap();
        one.check_guard().unwrap();
        let mut writer = one.create(&name("train/x")).unwrap();
        two.lock(&manifest).unwrap();
        two.put(&manifest, b"two").unwrap();
        let busy = StoreError::Busy { name: "s3://b/p".into() };
        assert_eq!((one.check_guard(), two.check_guard()), (Err(busy.clone()), Ok(())));
        // Its running uploads look like those of an interrupted writer.
        two.remove_leftovers(&name("train"), "x", "").unwrap();
        writer.write(b"1").unwrap();
        assert_eq!(writer.finish(), Err(busy));
    }

    #[test]
    fn a_server_that_ignores_conditions_is_refused() {
        for ignores in [IgnoredCondition::Absent, IgnoredCondition::Tagged] {
            let bucket = Arc::new(MemoryBucket::ignoring(ignores));
            let (files, manifest) = (on(&bucket, "p"), name(".feedline/dataset.json"));
            files.lock(&manifest).unwrap();
            let error = files.put(&manifest, b"{}").unwrap_err().to_string();
            assert!(error.contains("does not support conditional writes"), "{error}");
        }
    }

    #[test]
    fn a_mark_is_set_once_and_nothing_of_it_stays() {
        let (bucket, files) = files_at("p");
        assert_eq!((files.mark("7"), on(&bucket, "p").mark("7")), (Ok(true), Ok(false)));
        assert_eq!(on(&bucket, "q").mark("7"), Ok(true));
        files.unmark("7").unwrap();
        assert_eq!(bucket.keys(), ["q/.feedline/shared-7"]);
    }

    #[test]
    fn only_uploads_of_exactly_these_names_are_aborted() {
        let (bucket, files) = files_at("p");
        let own = ["p/train/img_0_of_2.npz", "p/train/img_1_of_2.npz"];
        let others = [
            "p/train/img_0_of_3.npz",
            "p/train/sub/img_0_of_2.npz",
            "p/trainimg_0_of_2.npz",
            "p/valid/img_0_of_2.npz",
            "p/train/img_of_2.npz",
            "q/train/img_0_of_2.npz",
            "train/img_0_of_2.npz",
        ];
        own.iter().chain(&others).for_each(|key| bucket.leave_upload(key));
        files.remove_leftovers(&name("train"), "img_", "_of_2.npz").unwrap();
        let mut left: Vec<String> =
            bucket.uploads("").unwrap().into_iter().map(|upload| upload.key).collect();
        left.sort();
        let mut expected = others.map(str::to_owned);
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_census_counts_one_level_over_all_pages() {
        let (bucket, files) = files_at("p");
        assert_eq!(files.census(&name("train"), "img_", ".npz"), Ok(None));
        for number in 0..35 {
            files.put(&name(&format!("train/img_{number}.npz")), b"x").unwrap();
            files.put(&name(&format!("train/sub{number}/img_{number}.npz")), b"x").unwrap();
        }
        for other in ["train/notes.txt", "train/.hidden", "train/", "trainer/img_1.npz"] {
            bucket.put(&format!("p/{other}"), b"x", PutCondition::Always).unwrap();
        }
        let found = files.census(&name("train"), "img_", ".npz").unwrap().unwrap();
        assert_eq!(found, FolderCount { matching: 35, others: 1, example: Some("notes.txt".into()) });
        let all = files.census(&name("."), "train", "").unwrap().unwrap();
        assert_eq!((all.matching, all.others), (0, 0), "{all:?}");
    }

    #[test]
    fn sizes_are_listed_in_order_by_ranges_of_names() {
        let (_, files) = files_at("p");
        assert_eq!(files.lists_sizes(), SizeListing::Ranges);
        for number in 0..25_u8 {
            files.put(&name(&format!("train/{number:02}")), &vec![0; usize::from(number)]).unwrap();
            files.put(&name(&format!("valid/{number:02}")), b"x").unwrap();
        }
        let listed = |after: &str, until: &str, most: usize| {
            let mut found = Vec::new();
            let range = NameRange { folder: &name("train"), after, until };
            files
                .list_sizes(&range, &mut |name, bytes| {
                    found.push((name.to_owned(), bytes));
                    found.len() < most
                })
                .unwrap();
            found
        };
        let expected = |range: std::ops::Range<u64>| -> Vec<(String, u64)> {
            range.map(|number| (format!("train/{number:02}"), number)).collect()
        };
        assert_eq!(listed("", "", 99), expected(0..25));
        assert_eq!(listed("train/03~", "train/16~", 99), expected(4..17));
        assert_eq!(listed("train/03", "train/03", 99), []);
        assert_eq!(listed("", "", 12), expected(0..12));
    }

    /// A bucket whose listing never ends.
    #[derive(Debug)]
    struct EndlessBucket(MemoryBucket);

    impl Objects for EndlessBucket {
        fn shown(&self, key: &str) -> String {
            self.0.shown(key)
        }

        fn head(&self, key: &str) -> Result<Option<ObjectFacts>, StoreError> {
            self.0.head(key)
        }

        fn get(&self, key: &str, most: u64) -> Result<Option<(Vec<u8>, ObjectFacts)>, StoreError> {
            self.0.get(key, most)
        }

        fn put(
            &self,
            key: &str,
            bytes: &[u8],
            condition: PutCondition<'_>,
        ) -> Result<PutOutcome, StoreError> {
            self.0.put(key, bytes, condition)
        }

        fn upload(&self, key: &str) -> Result<Box<dyn Upload + '_>, StoreError> {
            self.0.upload(key)
        }

        fn delete(&self, key: &str) -> Result<(), StoreError> {
            self.0.delete(key)
        }

        fn list(
            &self,
            _request: &ListRequest<'_>,
            _each: &mut dyn FnMut(ListedKey<'_>),
        ) -> Result<Option<String>, StoreError> {
            Ok(Some("again".to_owned()))
        }

        fn lists_after(&self) -> bool {
            false
        }

        fn uploads(&self, prefix: &str) -> Result<Vec<super::super::contract::PendingUpload>, StoreError> {
            self.0.uploads(prefix)
        }

        fn abort(&self, upload: &super::super::contract::PendingUpload) -> Result<(), StoreError> {
            self.0.abort(upload)
        }
    }

    #[test]
    fn a_listing_that_does_not_advance_is_an_error() {
        let place = ObjectPlace { service: Service::Azure, bucket: "b".into(), prefix: String::new() };
        let files = ObjectFiles::new(Arc::new(EndlessBucket(MemoryBucket::default())), place, "localhost:1");
        assert_eq!(files.lists_sizes(), SizeListing::Whole);
        let error = files.census(&name("train"), "", "").unwrap_err();
        assert!(error.to_string().contains("the same page again"), "{error}");
    }
}
