//! The syntax of lines.

use super::line::{LineBody, LineTime, descriptor, parse_call, parse_line, texts, unquoted};
use super::time::LineClock;

#[test]
fn lines_of_every_form_are_split() {
    let call = "close(3) = 0";
    let second = 1_000_000_000;
    for (line, tid, time) in [
        ("close(3) = 0", None, LineTime::None),
        ("12  close(3) = 0", Some(12), LineTime::None),
        ("[pid    12] close(3) = 0", Some(12), LineTime::None),
        ("12  1795015674.785653 close(3) = 0", Some(12), LineTime::Epoch(1_795_015_674_785_653_000)),
        ("12  00:01:02.5 close(3) = 0", Some(12), LineTime::Clock(62 * second + second / 2)),
        ("00:01:02 close(3) = 0", None, LineTime::Clock(62 * second)),
        ("     0.000030 close(3) = 0", None, LineTime::Relative(30_000)),
        ("12       0.000030 close(3) = 0", Some(12), LineTime::Relative(30_000)),
        ("12  00:01:02 (+     0.000030) close(3) = 0", Some(12), LineTime::Clock(62 * second)),
    ] {
        let parsed = parse_line(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((parsed.tid, parsed.time), (tid, time), "{line}");
        assert_eq!(parsed.body, LineBody::Call(parse_call(call).unwrap()), "{line}");
    }
}

#[test]
fn lines_that_are_no_calls() {
    let body = |line: &'static str| parse_line(line).map(|line| line.body);
    assert_eq!(body("7 +++ exited with 3 +++"), Some(LineBody::Exited(3)));
    assert_eq!(body("7 +++ killed by SIGSEGV (core dumped) +++"), Some(LineBody::Killed("SIGSEGV")));
    assert_eq!(body("7 +++ superseded by execve in pid 8 +++"), Some(LineBody::Superseded));
    assert_eq!(body("7 --- SIGCHLD {si_signo=SIGCHLD, si_status=3} ---"), Some(LineBody::Ignored));
    assert_eq!(body("strace: Process 8 attached"), Some(LineBody::Ignored));
    assert_eq!(body("7 read(4,  <unfinished ...>"), Some(LineBody::Unfinished("read(4,  ")));
    assert_eq!(body("7 <... read resumed>\"\", 5) = 0"), Some(LineBody::Resumed("\"\", 5) = 0")));
    for line in ["", "hello", "7 hello world", "read(3, \"abc", "7 read(3", "PNG(", "read(3) = x", "é(3) = 0"]
    {
        assert_eq!(body(line), None, "{line}");
    }
}

#[test]
fn arguments_and_results() {
    let line =
        r#"openat(AT_FDCWD</a b>, "x,\")\n\303\244", O_RDONLY|O_CLOEXEC) = 3</a b/x,(\74y\76> <0.000123>"#;
    let call = parse_call(line).unwrap();
    assert_eq!((call.name, call.result, call.duration_ns), ("openat", Some(3), Some(123_000)));
    assert_eq!(call.path, Some(r"/a b/x,(\74y\76"));
    assert_eq!(unquoted(call.argument(1)).unwrap(), "x,\")\nä".as_bytes());
    assert_eq!(descriptor(call.argument(0)).unwrap().path, Some("/a b"));
    let call = parse_call(r#"read(3<TCP:[1.2.3.4:5->6.7.8.9:1]>, "\0\1x"..., 131072) = 5000"#).unwrap();
    assert_eq!((call.number(2), call.result, call.duration_ns), (Some(131_072), Some(5000), None));
    let call = parse_call("write(1</dev/null<char 1:3>>, \"<0.1>\", 5) = 5 <0.000001>").unwrap();
    assert_eq!(descriptor(call.argument(0)).unwrap().path, Some("/dev/null"));
    let failed =
        parse_call("open(\"a\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000010>").unwrap();
    assert_eq!((failed.result, failed.duration_ns), (Some(-1), Some(10_000)));
    let restarted = parse_call("read(0, 0x7ffe, 10) = ? ERESTARTSYS (To be restarted)").unwrap();
    assert_eq!(restarted.result, None);
    assert_eq!(parse_call("exit_group(0)    = ?").unwrap().result, None);
    assert_eq!(parse_call("getpid() = 5").unwrap().arguments, [""; 0]);
    let clone3 = "clone3({flags=CLONE_VM|CLONE_FILES, exit_signal=0} => {parent_tid=[9]}, 88) = 9";
    assert_eq!(parse_call(clone3).unwrap().result, Some(9));
    assert_eq!(texts(r#"["cat", "a b", "\"c\""...]"#), [b"cat".to_vec(), b"a b".to_vec(), b"\"c\"".to_vec()]);
}

#[test]
fn midnight_is_crossed_once() {
    let hour = 3600 * 1_000_000_000;
    let mut clock = LineClock::default();
    let times = [23 * hour, 24 * hour - 1, 0, hour, 0].map(|at| clock.at(LineTime::Clock(at)));
    assert_eq!(times, [23 * hour, 24 * hour - 1, 24 * hour, 25 * hour, 24 * hour]);
    let mut clock = LineClock::default();
    assert_eq!([1, 2, 3].map(|at| clock.at(LineTime::Relative(at))), [1, 3, 6]);
}
