//! The list of mounts, /proc/self/mountinfo.

use std::path::Path;

/// A line: `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    pub id: u64,
    /// The device number of the file system: `98:0`.
    pub device: &'a str,
    /// The part of the file system that is mounted, and where. Spaces and the like are escaped: see `unescaped`.
    pub root: &'a str,
    pub point: &'a str,
    pub file_system: &'a str,
    pub source: &'a str,
    pub options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (place, what) = line.split_once(" - ")?;
        let (mut place, mut what) = (place.split(' '), what.split(' '));
        Some(Mount {
            id: place.next()?.parse().ok()?,
            device: place.nth(1)?,
            root: place.next()?,
            point: place.next()?,
            file_system: what.next()?,
            source: what.next()?,
            options: what.next().unwrap_or_default(),
        })
    }
}

/// All lines that can be parsed.
pub fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(Mount::parse)
}

/// The device file that is the source of a mount; `None` for other sources. Those of network file systems look like
/// relative paths, and must not be looked up in the current folder.
pub fn device_file(source: &str) -> Option<&Path> {
    Some(Path::new(source)).filter(|path| path.starts_with("/dev"))
}

/// A path of the list without escapes. Spaces and the like are written as `\040` there.
pub fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_left_out() {
        let text = "\
36 35 0:45 /a /mnt/with\\040space rw,noatime shared:1 master:2 - btrfs /dev/sdb2 rw,subvol=/a
37 35
38 35 0:46 / /b rw - tmpfs none\n";
        let found: Vec<Mount<'_>> = mounts(text).collect();
        assert_eq!((found[0].id, found[0].device, found[0].root), (36, "0:45", "/a"));
        assert_eq!(
            (found[0].file_system, found[0].source, found[0].options),
            ("btrfs", "/dev/sdb2", "rw,subvol=/a")
        );
        assert_eq!(unescaped(found[0].point), "/mnt/with space");
        assert_eq!((found.len(), found[1].point, found[1].options), (2, "/b", ""));
    }

    #[test]
    fn only_a_device_is_a_path() {
        assert_eq!(device_file("/dev/sdb2"), Some(Path::new("/dev/sdb2")));
        for other in ["server:/export", "none", "/devices/a", "dev/sda"] {
            assert_eq!(device_file(other), None, "{other}");
        }
    }

    #[test]
    fn text_without_escapes_is_unchanged() {
        for (text, plain) in
            [("/a", "/a"), ("/a\\040b\\011", "/a b\t"), ("/a\\b", "/a\\b"), ("/\\134", "/\\")]
        {
            assert_eq!(unescaped(text), plain);
        }
    }
}
