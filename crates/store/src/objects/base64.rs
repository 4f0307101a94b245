//! Base64 with padding, for the signatures of Azure and the passwords of proxies: a few bytes per request.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    encode_to(&mut text, bytes);
    text.into_iter().map(char::from).collect()
}

/// The same at the end of a text, without an allocation of its own.
pub(crate) fn encode_to(text: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { digit } else { b'=' });
        }
    }
}

/// `None` if the text is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - bare.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in bare.as_bytes().chunks(4) {
        let mut group = 0u32;
        for digit in chunk {
            group = group << 6 | DIGITS.iter().position(|known| known == digit)? as u32;
        }
        group <<= 6 * (4 - chunk.len());
        bytes.extend((1..chunk.len()).map(|at| (group >> (24 - 8 * at)) as u8));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        for wrong in ["a", "ab=c", "a===", "Zm8", "Zm9\n"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)).unwrap(), all);
    }
}
