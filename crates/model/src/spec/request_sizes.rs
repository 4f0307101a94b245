//! The sizes of the requests in which a range of a file is read, as `reader.requests` gives them.

use serde::{Deserialize, Serialize};

use super::error::{Problem, ProblemKind};
use super::schema::{KeyRow, expected};
use super::value::{Node, Value};
use crate::extent::Extent;
use crate::units::Bytes;

/// The word for one request of all remaining bytes.
const REST: &str = "rest";
/// A larger request is a mistake.
const LARGEST: u64 = 1 << 40;

/// Sizes of successive requests. The last size repeats until the range ends, unless the rest is one request. Without
/// sizes, a range is one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSizes {
    pub sizes: Vec<u64>,
    /// Whether everything after these sizes is one request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest: bool,
}

impl RequestSizes {
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Appends the requests of a range, in order.
    pub fn divide(&self, range: Extent, requests: &mut Vec<Extent>) {
        let (mut offset, end) = (range.offset, range.end());
        let mut sizes = self.sizes.iter().copied();
        let repeated = if self.rest { None } else { self.sizes.last().copied() };
        loop {
            let len = sizes.next().or(repeated).unwrap_or(u64::MAX).min(end - offset);
            requests.push(Extent { offset, len });
            offset += len;
            if offset >= end {
                return;
            }
        }
    }

    /// One size, or a list of sizes that may end with `rest`.
    pub(super) fn read(row: &KeyRow, node: &Node) -> Result<RequestSizes, Problem> {
        let Value::List(items) = &node.value else {
            return Ok(RequestSizes { sizes: vec![size(row, node)?], rest: false });
        };
        let rest = items.last().is_some_and(|item| item.value == Value::Text(REST.into()));
        let sizes = items.iter().take(items.len() - usize::from(rest)).map(|item| size(row, item));
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        // `rest` alone is what happens without sizes.
        let rest = rest && !sizes.is_empty();
        Ok(RequestSizes { sizes, rest })
    }

    /// In the form of a workload file.
    pub(super) fn to_yaml(&self) -> String {
        let sizes = self.sizes.iter().map(u64::to_string);
        let items: Vec<String> = sizes.chain(self.rest.then(|| REST.to_owned())).collect();
        format!("[{}]", items.join(", "))
    }
}

fn size(row: &KeyRow, node: &Node) -> Result<u64, Problem> {
    let size = match &node.value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Text(text) => text.parse::<Bytes>().ok().map(|bytes| bytes.0),
        _ => None,
    };
    size.filter(|size| (1..=LARGEST).contains(size)).ok_or_else(|| {
        let what = format!("'{}' cannot have {}", row.key, node.value.found());
        Problem::new(ProblemKind::WrongType, node.place, what)
            .key(row.key)
            .help(format!("expected: {}", expected(row.kind)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_without_gaps() {
        for (sizes, rest, len, expected) in [
            (&[][..], false, 10, &[10][..]),
            (&[4], false, 10, &[4, 4, 2]),
            (&[4], false, 8, &[4, 4]),
            (&[4], true, 10, &[4, 6]),
            (&[1, 3], false, 10, &[1, 3, 3, 3]),
            (&[1, 3], true, 3, &[1, 2]),
            (&[16], true, 10, &[10]),
            (&[16], false, 0, &[0]),
        ] {
            let mut requests = Vec::new();
            let sizes = RequestSizes { sizes: sizes.to_vec(), rest };
            sizes.divide(Extent { offset: 100, len }, &mut requests);
            assert_eq!(requests.iter().map(|request| request.len).collect::<Vec<_>>(), expected);
            let mut offset = 100;
            for request in requests {
                assert_eq!(request.offset, offset);
                offset = request.end();
            }
            assert_eq!(offset, 100 + len);
        }
    }
}
