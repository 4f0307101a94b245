//! The listings of object stores, which are XML: elements and texts, without a tree. Only what the services send is
//! supported; anything else is an error, and never a shorter list.

use std::borrow::Cow;

use model::objects::ObjectVersion;

use super::contract::{ListedKey, PendingUpload};

/// Something in a document, in order.
#[derive(Debug, PartialEq, Eq)]
enum Markup<'a> {
    Open(&'a str),
    Close(&'a str),
    /// Text with its entities.
    Text(&'a str),
}

/// Passes the elements and texts of a document to `each`; an error if it is cut or not XML.
fn scan<'a>(document: &'a [u8], mut each: impl FnMut(Markup<'a>)) -> Result<(), &'static str> {
    let text = std::str::from_utf8(document).map_err(|_| "it is not UTF-8")?;
    let (mut rest, mut depth, mut roots) = (text.trim_start_matches('\u{feff}'), 0usize, 0);
    while let Some(at) = rest.find('<') {
        let (before, after) = rest.split_at(at);
        if depth > 0 && !before.is_empty() {
            each(Markup::Text(before));
        } else if depth == 0 && !before.trim().is_empty() {
            return Err("it is not XML");
        }
        let Some(end) = after.find('>') else { return Err("it is cut") };
        let (tag, behind) = (&after[1..end], &after[end + 1..]);
        rest = behind;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            depth = depth.checked_sub(1).ok_or("it is not XML")?;
            each(Markup::Close(name));
            continue;
        }
        let (tag, is_empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split_whitespace().next().unwrap_or_default();
        roots += usize::from(depth == 0);
        each(Markup::Open(name));
        if is_empty {
            each(Markup::Close(name));
        } else {
            depth += 1;
        }
    }
    if depth > 0 || !rest.trim().is_empty() || roots != 1 { Err("it is cut, or not XML") } else { Ok(()) }
}

/// A text without its entities; `None` if one is unknown.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('&') {
        return Some(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, entity)) = rest.split_once('&') {
        out.push_str(before);
        let (name, behind) = entity.split_once(';')?;
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            name => {
                let digits = name.strip_prefix('#')?;
                let number = match digits.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => digits.parse(),
                };
                char::from_u32(number.ok()?)?
            }
        });
        rest = behind;
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

/// The part of a listing that is being read.
#[derive(Default)]
struct Entry<'a> {
    key: Option<&'a str>,
    bytes: Option<&'a str>,
    tag: Option<&'a str>,
}

/// Names of elements in a service's listing.
struct Vocabulary {
    root: &'static str,
    object: &'static str,
    key: &'static str,
    bytes: &'static str,
    tag: &'static str,
    prefixes: &'static str,
    prefix: &'static str,
    next: &'static str,
}

const S3: Vocabulary = Vocabulary {
    root: "ListBucketResult",
    object: "Contents",
    key: "Key",
    bytes: "Size",
    tag: "ETag",
    prefixes: "CommonPrefixes",
    prefix: "Prefix",
    next: "NextContinuationToken",
};

const AZURE: Vocabulary = Vocabulary {
    root: "EnumerationResults",
    object: "Blob",
    key: "Name",
    bytes: "Content-Length",
    tag: "Etag",
    prefixes: "BlobPrefix",
    prefix: "Name",
    next: "NextMarker",
};

/// Reads one page of a listing of S3 or Google Cloud Storage. Returns where the next page begins; `None` at the end.
pub(crate) fn read_page(
    document: &[u8],
    each: &mut dyn FnMut(ListedKey<'_>),
) -> Result<Option<String>, &'static str> {
    let (next, is_truncated) = read(document, &S3, each)?;
    match (is_truncated, next) {
        (true, None) => Err("it says that there is more, but not where"),
        (true, next) => Ok(next),
        (false, _) => Ok(None),
    }
}

/// The same for Azure.
pub(crate) fn read_azure_page(
    document: &[u8],
    each: &mut dyn FnMut(ListedKey<'_>),
) -> Result<Option<String>, &'static str> {
    read(document, &AZURE, each).map(|(next, _)| next)
}

fn read(
    document: &[u8],
    words: &Vocabulary,
    each: &mut dyn FnMut(ListedKey<'_>),
) -> Result<(Option<String>, bool), &'static str> {
    let (mut entry, mut element, mut outcome) = (Entry::default(), "", Ok(()));
    let (mut in_object, mut in_prefix, mut is_listing) = (false, false, false);
    let (mut next, mut is_truncated) = (None, false);
    scan(document, |markup| match markup {
        Markup::Open(name) => {
            is_listing |= name == words.root;
            in_object |= name == words.object;
            in_prefix |= name == words.prefixes;
            element = name;
        }
        Markup::Text(text) => {
            let is = |name: &str| element == name;
            if in_object {
                // The owner of an object has a name, too, in listings of other elements only.
                match () {
                    () if is(words.key) && entry.key.is_none() => entry.key = Some(text),
                    () if is(words.bytes) => entry.bytes = Some(text),
                    () if is(words.tag) => entry.tag = Some(text),
                    () => {}
                }
            } else if in_prefix && is(words.prefix) {
                entry.key = Some(text);
            } else if is(words.next) {
                next = unescaped(text).map(Cow::into_owned);
            } else if is("IsTruncated") {
                is_truncated = text.trim() == "true";
            }
        }
        Markup::Close(name) => {
            element = "";
            if name == words.object || name == words.prefixes {
                let whole = std::mem::take(&mut entry);
                let passed = if in_object { object(&whole, each) } else { prefix(&whole, each) };
                outcome = outcome.and(passed.ok_or("an entry of it cannot be understood"));
                (in_object, in_prefix) = (false, false);
            }
        }
    })?;
    outcome?;
    if is_listing { Ok((next, is_truncated)) } else { Err("it is not a listing") }
}

fn object(entry: &Entry<'_>, each: &mut dyn FnMut(ListedKey<'_>)) -> Option<()> {
    let (key, bytes) = (unescaped(entry.key?)?, entry.bytes?.trim().parse().ok()?);
    let tag = unescaped(entry.tag.unwrap_or_default())?;
    each(ListedKey::Object { key: &key, bytes, version: ObjectVersion::of_tag(tag.as_bytes()) });
    Some(())
}

fn prefix(entry: &Entry<'_>, each: &mut dyn FnMut(ListedKey<'_>)) -> Option<()> {
    each(ListedKey::Prefix(&unescaped(entry.key?)?));
    Some(())
}

/// A page of uploads that have not ended, and the markers of the next page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UploadPage {
    pub(crate) uploads: Vec<PendingUpload>,
    pub(crate) next: Option<(String, String)>,
}

/// Reads a page of uploads of S3 or Google Cloud Storage.
pub(crate) fn read_uploads(document: &[u8]) -> Result<UploadPage, &'static str> {
    let (mut page, mut element, mut in_upload) = (UploadPage::default(), "", false);
    let (mut key, mut id) = (String::new(), String::new());
    let (mut markers, mut is_truncated, mut is_listing) = ((String::new(), String::new()), false, false);
    scan(document, |markup| match markup {
        Markup::Open(name) => {
            is_listing |= name == "ListMultipartUploadsResult";
            in_upload |= name == "Upload";
            element = name;
        }
        Markup::Text(text) => {
            let text = unescaped(text).unwrap_or_default();
            match (element, in_upload) {
                ("Key", true) => key = text.into_owned(),
                ("UploadId", true) => id = text.into_owned(),
                ("NextKeyMarker", false) => markers.0 = text.into_owned(),
                ("NextUploadIdMarker", false) => markers.1 = text.into_owned(),
                ("IsTruncated", false) => is_truncated = text.trim() == "true",
                _ => {}
            }
        }
        Markup::Close(name) => {
            element = "";
            if name == "Upload" {
                in_upload = false;
                page.uploads
                    .push(PendingUpload { key: std::mem::take(&mut key), id: std::mem::take(&mut id) });
            }
        }
    })?;
    page.next = is_truncated.then_some(markers);
    if is_listing { Ok(page) } else { Err("it is not a list of uploads") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(document: &str) -> Result<(Vec<String>, Option<String>), &'static str> {
        let mut seen = Vec::new();
        let next = read_page(document.as_bytes(), &mut |key| seen.push(format!("{key:?}")))?;
        Ok((seen, next))
    }

    const LISTING: &str = "<?xml version=\"1.0\"?>\n<ListBucketResult \
        xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Name>b</Name><Prefix>p/</Prefix><IsTruncated>true</IsTruncated>\
        <Contents><Key>p/a&amp;b &#252;</Key><LastModified>x</LastModified><ETag>&quot;abc&quot;</ETag><Size>12</Size>\
        <Owner><ID>1</ID><DisplayName>me</DisplayName></Owner></Contents>\
        <CommonPrefixes><Prefix>p/c/</Prefix></CommonPrefixes>\
        <NextContinuationToken>t&lt;1</NextContinuationToken></ListBucketResult>";

    #[test]
    fn a_page_has_objects_and_prefixes() {
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        let next = read_page(LISTING.as_bytes(), &mut |key| match key {
            ListedKey::Object { key, bytes, version } => keys.push((key.to_owned(), bytes, version)),
            ListedKey::Prefix(prefix) => prefixes.push(prefix.to_owned()),
        });
        assert_eq!(next, Ok(Some("t<1".to_owned())));
        assert_eq!(keys, [("p/a&b \u{fc}".to_owned(), 12, ObjectVersion::of_tag(b"abc"))]);
        assert_eq!(prefixes, ["p/c/"]);
    }

    /// Cut anywhere, a document is an error.
    #[test]
    fn a_cut_page_is_an_error() {
        for end in (0..LISTING.len()).filter(|end| LISTING.is_char_boundary(*end)) {
            assert!(page(&LISTING[..end]).is_err(), "{}", &LISTING[..end]);
        }
        assert!(page(LISTING).is_ok());
    }

    #[test]
    fn other_documents_are_errors() {
        for document in [
            "",
            "hello",
            "<html><body>It works!</body></html>",
            "<Error><Code>x</Code></Error>",
            "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>a&bad;</Key><Size>1</Size></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult></ListBucketResult><ListBucketResult></ListBucketResult>",
        ] {
            assert!(page(document).is_err(), "{document}");
        }
        assert_eq!(page("<ListBucketResult/>"), Ok((vec![], None)));
    }

    #[test]
    fn azure_has_its_own_words() {
        let document = "\u{feff}<?xml version=\"1.0\"?><EnumerationResults><Prefix>p/</Prefix><Blobs><Blob>\
            <Name>p/a</Name>\
            <Properties><Etag>0x8D</Etag><Content-Length>5</Content-Length></Properties></Blob>\
            <BlobPrefix><Name>p/b/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>";
        let mut seen = Vec::new();
        let next = read_azure_page(document.as_bytes(), &mut |key| seen.push(format!("{key:?}")));
        assert_eq!(next, Ok(Some("m".to_owned())));
        assert!(seen[0].contains("\"p/a\", bytes: 5") && seen[1].contains("p/b/"), "{seen:?}");
        let last = document.replace("<NextMarker>m</NextMarker>", "<NextMarker />");
        assert_eq!(read_azure_page(last.as_bytes(), &mut |_| {}), Ok(None));
    }

    #[test]
    fn uploads_are_listed() {
        let document = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><KeyMarker/>\
            <NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker>\
            <Upload><Key>a b</Key><UploadId>7</UploadId></Upload></ListMultipartUploadsResult>";
        let page = read_uploads(document.as_bytes()).unwrap();
        assert_eq!(page.uploads, [PendingUpload { key: "a b".into(), id: "7".into() }]);
        assert_eq!(page.next, Some(("k".into(), "i".into())));
        assert!(read_uploads(b"<Error/>").is_err());
    }
}
