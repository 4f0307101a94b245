//! The parameters of requests for listings.

use super::contract::ListRequest;
use super::endpoint::encode_value;

/// The parameters of a listing of S3 and Google Cloud Storage, sorted.
pub(super) fn list_query(request: &ListRequest<'_>) -> String {
    let mut query = String::new();
    if let Some(token) = request.continues {
        query.push_str(&format!("continuation-token={}&", encode_value(token)));
    }
    if request.by_folder {
        query.push_str("delimiter=%2F&");
    }
    // XML cannot hold every character that a key can.
    query.push_str("encoding-type=url&list-type=2");
    if request.most > 0 {
        query.push_str(&format!("&max-keys={}", request.most));
    }
    query.push_str(&format!("&prefix={}", encode_value(request.prefix)));
    if !request.after.is_empty() && request.continues.is_none() {
        query.push_str(&format!("&start-after={}", encode_value(request.after)));
    }
    query
}

/// The same for Azure.
pub(super) fn azure_query(request: &ListRequest<'_>) -> String {
    let mut query = "comp=list".to_owned();
    if request.by_folder {
        query.push_str("&delimiter=%2F");
    }
    if let Some(marker) = request.continues {
        query.push_str(&format!("&marker={}", encode_value(marker)));
    }
    if request.most > 0 {
        query.push_str(&format!("&maxresults={}", request.most));
    }
    query.push_str(&format!("&prefix={}&restype=container", encode_value(request.prefix)));
    query
}

/// The parameters of a list of uploads of S3 and Google Cloud Storage, after a key and an upload, sorted.
pub(super) fn uploads_query(prefix: &str, key: &str, id: &str) -> String {
    let mut query = String::new();
    if !key.is_empty() {
        query = format!("key-marker={}&", encode_value(key));
    }
    query.push_str(&format!("prefix={}", encode_value(prefix)));
    if !id.is_empty() {
        query.push_str(&format!("&upload-id-marker={}", encode_value(id)));
    }
    query.push_str("&uploads=");
    query
}
