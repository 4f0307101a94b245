//! The listings of object stores, which are XML: elements and texts, without a tree. Only what the services send is
//! supported; anything else is an error, and never a shorter list.

use std::borrow::Cow;

use model::objects::ObjectVersion;

use super::answer::element as element_text;
use super::contract::{ListedKey, PendingUpload};
use super::endpoint::decoded;

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
    let (next, truncation) = read(document, &S3, each)?;
    continuation(truncation, next)
}

/// Whether a document says that there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Truncation {
    Whole,
    Truncated,
    /// It does not say, or not in words that are known.
    #[default]
    Unknown,
}

impl Truncation {
    fn parse(text: &str) -> Truncation {
        match text.trim() {
            "true" => Truncation::Truncated,
            "false" => Truncation::Whole,
            _ => Truncation::Unknown,
        }
    }
}

/// Where a list continues; an error if that is not clear.
fn continuation<T>(truncation: Truncation, next: Option<T>) -> Result<Option<T>, &'static str> {
    match (truncation, next) {
        (Truncation::Whole, _) => Ok(None),
        (_, Some(next)) => Ok(Some(next)),
        (Truncation::Truncated, None) => Err("it says that there is more, but not where"),
        (Truncation::Unknown, None) => Err("it does not say whether there is more"),
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
) -> Result<(Option<String>, Truncation), &'static str> {
    // Behind the keys in the documents of some servers, so it is looked for first. No other text contains the tag.
    let is_encoded = element_text(document, "EncodingType") == Some("url");
    let (mut entry, mut element, mut outcome) = (Entry::default(), "", Ok(()));
    let (mut in_object, mut in_prefix, mut is_listing) = (false, false, false);
    let (mut next, mut truncation) = (None, Truncation::default());
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
                outcome = outcome.and(next.as_ref().map(drop).ok_or("its marker cannot be understood"));
            } else if is("IsTruncated") {
                truncation = Truncation::parse(text);
            }
        }
        Markup::Close(name) => {
            element = "";
            if name == words.object || name == words.prefixes {
                let whole = std::mem::take(&mut entry);
                let key = whole.key.and_then(|key| key_text(key, is_encoded));
                let passed = key.and_then(|key| match in_object {
                    true => object(&key, &whole, each),
                    false => {
                        each(ListedKey::Prefix(&key));
                        Some(())
                    }
                });
                outcome = outcome.and(passed.ok_or("an entry of it cannot be understood"));
                (in_object, in_prefix) = (false, false);
            }
        }
    })?;
    outcome?;
    if is_listing { Ok((next, truncation)) } else { Err("it is not a listing") }
}

fn object(key: &str, entry: &Entry<'_>, each: &mut dyn FnMut(ListedKey<'_>)) -> Option<()> {
    let bytes = entry.bytes?.trim().parse().ok()?;
    let tag = unescaped(entry.tag.unwrap_or_default())?;
    each(ListedKey::Object { key, bytes, version: ObjectVersion::of_tag(tag.as_bytes()) });
    Some(())
}

/// A key as it is, from its form in a listing. If keys are encoded for URLs, a plus sign stands for a space.
fn key_text(text: &str, is_encoded: bool) -> Option<Cow<'_, str>> {
    let text = unescaped(text)?;
    if !is_encoded || !text.contains(['%', '+']) {
        return Some(text);
    }
    String::from_utf8(decoded(&text.replace('+', " "))).ok().map(Cow::Owned)
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
    let (mut markers, mut truncation, mut is_listing) =
        ((String::new(), String::new()), Truncation::default(), false);
    let mut is_understood = true;
    scan(document, |markup| match markup {
        Markup::Open(name) => {
            is_listing |= name == "ListMultipartUploadsResult";
            in_upload |= name == "Upload";
            element = name;
        }
        Markup::Text(text) => {
            let text = unescaped(text).unwrap_or_else(|| {
                is_understood = false;
                Cow::default()
            });
            match (element, in_upload) {
                ("Key", true) => key = text.into_owned(),
                ("UploadId", true) => id = text.into_owned(),
                ("NextKeyMarker", false) => markers.0 = text.into_owned(),
                ("NextUploadIdMarker", false) => markers.1 = text.into_owned(),
                ("IsTruncated", false) => truncation = Truncation::parse(&text),
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
    match (is_listing, is_understood) {
        (false, _) => return Err("it is not a list of uploads"),
        (true, false) => return Err("an entry of it cannot be understood"),
        (true, true) => {}
    }
    page.next = continuation(truncation, (!markers.0.is_empty()).then_some(markers))?;
    Ok(page)
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
        let empty = |rest: &str| page(&format!("<ListBucketResult>{rest}</ListBucketResult>"));
        assert_eq!(empty("<IsTruncated>false</IsTruncated>"), Ok((vec![], None)));
        assert!(empty("").is_err() && empty("<IsTruncated/>").is_err(), "nothing says that this is all");
        assert!(empty("<IsTruncated>no</IsTruncated>").is_err());
        let token = "<NextContinuationToken>t</NextContinuationToken>";
        for unclear in ["", "<IsTruncated>1</IsTruncated>", "<IsTruncated>true</IsTruncated>"] {
            assert_eq!(empty(&format!("{unclear}{token}")), Ok((vec![], Some("t".to_owned()))));
        }
        let bad = "<NextContinuationToken>a&bad;</NextContinuationToken>";
        assert!(empty(&format!("<IsTruncated>true</IsTruncated>{bad}")).is_err());
    }

    #[test]
    fn encoded_keys_are_decoded_wherever_the_document_says_so() {
        let keys = "<Contents><Key>a%20b/%C3%BC+%2B%01&amp;</Key><Size>1</Size></Contents>\
            <CommonPrefixes><Prefix>p%2Fq/</Prefix></CommonPrefixes>";
        let said = "<EncodingType>url</EncodingType>";
        let end = "<IsTruncated>false</IsTruncated></ListBucketResult>";
        for document in
            [format!("<ListBucketResult>{said}{keys}{end}"), format!("<ListBucketResult>{keys}{said}{end}")]
        {
            let (seen, _) = page(&document).unwrap();
            assert!(seen[0].contains("\"a b/\u{fc} +\\u{1}&\""), "{seen:?}");
            assert!(seen[1].contains("\"p/q/\""), "{seen:?}");
        }
        // A server that ignores the request sends keys as they are.
        let (seen, _) = page(&format!("<ListBucketResult>{keys}{end}")).unwrap();
        assert!(seen[0].contains("a%20b/%C3%BC+%2B%01&"), "{seen:?}");
        let invalid = "<Contents><Key>%ff</Key><Size>1</Size></Contents>";
        assert!(page(&format!("<ListBucketResult>{said}{invalid}{end}")).is_err());
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
        let bad = document.replace("<NextMarker>m", "<NextMarker>&bad;");
        assert!(read_azure_page(bad.as_bytes(), &mut |_| {}).is_err(), "the rest would be missing");
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
        assert!(read_uploads(document.replace("a b", "a&bad;").as_bytes()).is_err());
        let last = document.replace("true", "false");
        assert_eq!(read_uploads(last.as_bytes()).unwrap().next, None);
        assert!(read_uploads(b"<ListMultipartUploadsResult/>").is_err(), "nothing says that this is all");
    }
}
