//! `--live`: several lines of progress that are drawn in place, fit into the terminal, and leave nothing behind.

use crate::cluster::launch::Mpi;
use crate::pty::{PtyCommand, screen};
use crate::util::{Dir, SMALL};

/// A run that takes a while.
fn slow() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("computation_time: 0", "computation_time: 0.05"));
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

const RUN: [&str; 6] = ["run", "w.yaml", "--no-calibration", "--live", "--ranks", "2"];

#[test]
fn the_live_view_is_drawn_in_place_and_leaves_nothing_behind() {
    let dir = slow();
    for columns in [30, 80, 200] {
        let mut command = PtyCommand::start(&dir, columns, &RUN, &[]);
        command.until("\x1b[2A");
        let (_, output) = command.wait();
        // While it runs, the screen has three lines: the bar, all ranks, the slowest rank.
        let (before, _) = output.rsplit_once("\x1b[2A").unwrap();
        let shown = screen(before, usize::from(columns));
        let lines: Vec<&String> = shown.iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 3, "{columns}: {shown:#?}");
        assert!(lines[0].starts_with("training"), "{shown:#?}");
        assert!(lines[1].starts_with("  AU "), "{shown:#?}");
        assert!(lines[2].starts_with("  slowest rank "), "{shown:#?}");
        assert!(lines.iter().all(|line| line.chars().count() < usize::from(columns)), "{shown:#?}");
        let shown = screen(&output, usize::from(columns));
        assert!(!shown.iter().any(|line| line.contains("slowest rank")), "{columns}: {shown:#?}");
        assert!(shown[0].starts_with("w: 2 ranks"), "{columns}: {shown:#?}");
    }
}

#[test]
fn the_live_view_has_no_colour_of_its_own() {
    let dir = slow();
    let mut command = PtyCommand::start(&dir, 80, &RUN, &[("NO_COLOR", "1")]);
    command.until("\x1b[2A");
    let (_, output) = command.wait();
    assert!(!output.contains("\x1b[1m") && !output.contains("\x1b[3"), "{output}");
}

#[test]
fn quiet_shows_nothing_and_without_a_terminal_there_are_lines() {
    let dir = slow();
    let (_, output) = PtyCommand::start(&dir, 80, &[&RUN[..], &["--quiet"]].concat(), &[]).wait();
    assert!(!output.contains("training ") && !output.contains("slowest rank 0"), "{output}");
    dir.feedline(&RUN).args(&["--quiet"]).run().ran().silent();
    dir.feedline(&RUN).run().ran().says("--live needs a terminal on stderr");
    let (_, output) = PtyCommand::start(&dir, 80, &RUN, &[("TERM", "dumb")]).wait();
    assert!(output.contains("--live needs a terminal") && !output.contains('\x1b'), "{output}");
}

/// A launcher may give its processes a terminal or not; the run is the same.
#[test]
fn processes_of_a_launcher_accept_it() {
    let dir = slow();
    Mpi::OpenMpi4.feedline(&dir, 2, &RUN).run().ran();
}
