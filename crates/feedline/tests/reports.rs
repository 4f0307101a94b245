//! Pages of results: in a real browser, for every kind of result, and from folders that are damaged or not ours.

mod browser;

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::Value;

use crate::objects::servers::Place;
use crate::util::{Cmd, Dir, SMALL, TINY_MODEL};
use browser::{OpenedPage, open};

/// Steps that are long enough to be drawn.
const STEPS: [&str; 2] = ["train.computation_time=0.005", "train.epochs=3"];

/// Waits for a command. Runs on a busy machine may be invalid; their pages are what is tested.
fn finish(command: Cmd<'_>) {
    let done = command.run();
    assert!([Some(0), Some(5)].contains(&done.code()), "{:?}: {}{}", done.code(), done.stdout, done.stderr);
}

/// Runs `SMALL` and returns the page of the result.
fn page_of_run(dir: &Dir, args: &[&str], settings: &[&str]) -> String {
    let run = ["run", "w.yaml", "--quiet", "--results-dir", "r"];
    let done = dir.feedline(&run).args(args).set(settings).run();
    assert!(
        [Some(0), Some(1), Some(4), Some(5)].contains(&done.code()),
        "{:?}: {}",
        done.code(),
        done.stderr
    );
    let results = dir.results_below("r");
    format!("{}/report.html", results.last().unwrap_or_else(|| panic!("no result: {}", done.stderr)))
}

fn summary_of(dir: &Dir, page: &str) -> Value {
    dir.json(&page.replace("report.html", "summary.json"))
}

/// Opens a page of a run and compares it with its summary.
fn check_run(dir: &Dir, page: &str, opened: &OpenedPage) {
    let summary = summary_of(dir, page);
    opened.check();
    opened.equals(&summary);
    let epochs = summary["feedline"]["epochs"].as_array().map_or(0, Vec::len);
    assert_eq!(opened.cells_of("feedline.epochs.", ".au_percent"), epochs, "every epoch is in the table");
    let rules = summary["feedline"]["verdict"]["rules"].as_array().unwrap().len();
    assert_eq!(opened.cells_of("feedline.verdict.rules.", ".rule"), rules, "every rule is in the table");
    let status = summary["feedline"]["verdict"]["status"].as_str().unwrap();
    assert!(opened.text().contains(status), "{status}");
}

#[test]
fn runs_that_are_valid_invalid_incomplete_or_simulated() {
    let dir = Dir::small_with_data();
    let valid = page_of_run(&dir, &[], &STEPS);
    let cached = {
        let warm = ["--cache", "as-is", "--no-calibration"];
        page_of_run(&dir, &warm, &STEPS);
        page_of_run(&dir, &warm, &STEPS)
    };
    let faulty = ["--no-calibration", "--store", "fault:posix,kind=eio,file=img_03_of_24"];
    let incomplete = page_of_run(&dir, &faulty, &STEPS);
    let errors = page_of_run(&dir, &faulty, &[STEPS[0], STEPS[1], "reader.on_error=count"]);
    let simulated = page_of_run(&dir, &["--no-calibration", "--store", "sim:hdd"], &STEPS);
    let pages = [&valid, &cached, &incomplete, &errors, &simulated];
    let opened = open(&dir, &pages.map(String::as_str));
    for (page, opened) in pages.iter().zip(&opened) {
        check_run(&dir, page, opened);
    }
    let [valid, cached, incomplete, errors, simulated] = opened.as_slice() else { panic!("five pages") };
    for plot in ["time-per-epoch", "throughput", "samples", "waiting", "au-ranks", "latency"] {
        assert!(valid.has_plot(plot), "{plot}: {:?}", valid.plots());
    }
    let verdict =
        |opened: &OpenedPage, status: &str| assert!(opened.text().contains(status), "{}", opened.text());
    verdict(incomplete, "Incomplete: the run ended early");
    verdict(errors, "Errors by kind");
    verdict(simulated, "The storage was simulated");
    // On a file system whose pages cannot be counted the rule is not checkable.
    assert!(
        cached.text().contains("Invalid: cache") || cached.text().contains("not checkable"),
        "{}",
        cached.text()
    );
}

#[test]
fn runs_with_checkpoints_with_many_ranks_and_from_an_object_store() {
    let dir = Dir::small();
    dir.write("model.yaml", TINY_MODEL);
    let mut pages = Vec::new();
    for mode in ["direct", "async", "burst-buffer"] {
        let folder = format!("checkpoint.checkpoint_folder=ck-{mode}");
        let results = format!("r-{mode}");
        let run = ["run", "model.yaml", "--quiet", "--save", mode, "--results-dir", &results];
        let set = [
            &folder,
            "checkpoint.burst_folder=fast",
            "checkpoint.num_checkpoints_write=3",
            "checkpoint.fsync=true",
        ];
        dir.feedline(&run).set(&set).run().ran();
        pages.push(format!("{}/report.html", dir.results_below(&results)[0]));
    }
    let many = ["--store", "null", "--ranks", "1024", "--no-calibration"];
    pages.push(page_of_run(&dir, &many, &[STEPS[0], STEPS[1], "dataset.num_files_train=8192"]));
    pages.push(page_from_objects(&dir));
    let names: Vec<&str> = pages.iter().map(String::as_str).collect();
    let opened = open(&dir, &names);
    for (page, opened) in pages.iter().zip(&opened) {
        check_run(&dir, page, opened);
    }
    for opened in &opened[..3] {
        assert!(
            opened.has_plot("checkpoints") && opened.has_plot("checkpoint-spans"),
            "{:?}",
            opened.plots()
        );
        assert!(opened.text().contains("3 saves blocked training for"), "{}", opened.text());
    }
    assert!(opened[2].text().contains("A drain takes"), "{}", opened[2].text());
    assert!(opened[3].text().contains("The 10 slowest of 1,024 ranks"), "{}", opened[3].text());
    assert!(opened[4].text().contains("requests"), "{}", opened[4].text());
    assert_eq!(opened[4].cells_of("feedline.epochs.", ".requests.requests"), 3);
}

fn page_from_objects(dir: &Dir) -> String {
    let place = Place::s3();
    let url = place.url("reports");
    place.with(dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &url])).run().exits(0);
    let args =
        ["run", "w.yaml", "--quiet", "--no-calibration", "--results-dir", "objects", "--data-dir", &url];
    place.with(dir.feedline(&args).set(&STEPS)).run().ran();
    format!("{}/report.html", dir.results_below("objects")[0])
}

#[test]
fn studies_and_comparisons() {
    let dir = Dir::small_with_data();
    let quick = ["--quiet", "--store", "sim:ssd", "--no-calibration"];
    let settings = ["train.computation_time=0.002", "train.epochs=1"];
    let sweep = |output: &str, over: &[&str]| {
        let args = ["sweep", "w.yaml", "--repeat", "2", "--output", output];
        finish(dir.feedline(&args).args(&quick).args(over).set(&settings));
    };
    sweep("one", &["--over", "reader.read_threads=1,2,4"]);
    sweep("two", &["--over", "reader.read_threads=1,2", "--over", "reader.prefetch_size=1,2"]);
    let quick = &quick[..3];
    let capacity = ["capacity", "w.yaml", "--output", "cap", "--up-to", "4"];
    finish(dir.feedline(&capacity).args(quick).set(&settings));
    let enough = ["dataset.num_files_train=120"];
    finish(dir.feedline(&["stall", "w.yaml", "--output", "st"]).args(quick).set(&settings).set(&enough));
    let first = page_of_run(&dir, &["--no-calibration"], &STEPS);
    let second = page_of_run(&dir, &["--no-calibration"], &[STEPS[0], STEPS[1], "reader.read_threads=1"]);
    let folders = [&first, &second].map(|page| page.trim_end_matches("/report.html").to_owned());
    dir.feedline(&["report", &folders[0], &folders[1], "-o", "both.html"]).run().exits(0);
    let pages = ["one/sweep.html", "two/sweep.html", "cap/capacity.html", "st/stall.html", "both.html"];
    let opened = open(&dir, &pages);
    opened.iter().for_each(OpenedPage::check);
    for (opened, document) in
        opened.iter().zip(["one/sweep.json", "two/sweep.json", "cap/capacity.json", "st/stall.json"])
    {
        opened.equals(&dir.json(document));
    }
    let [one, two, capacity, stall, both] = opened.as_slice() else { panic!("five pages") };
    assert!(
        one.has_plot("sweep")
            && one.has_plot("sweep-speed-up")
            && two.has_plot("sweep-map")
            && capacity.has_plot("capacity")
    );
    assert!(stall.has_plot("stall") && stall.has_plot("stall-what-if") && both.has_plot("compare"));
    assert!(["Best: ", "No cell is faster"].iter().any(|text| one.text().contains(text)), "{}", one.text());
    let text = both.text();
    assert!(text.find("What differs").unwrap() < text.find("Figures side by side").unwrap());
    assert!(text.contains("reader.read_threads"), "{text}");

    // The same pages, made again from the folders.
    for (folder, page) in [("one", "one/sweep.html"), ("cap", "cap/capacity.html"), ("st", "st/stall.html")] {
        let again = dir.feedline(&["report", folder, "-o", "-"]).run().exits(0).stdout;
        assert!(again == dir.read(page), "{folder}");
    }
    dir.feedline(&["report", "one", "cap"])
        .run()
        .exits(3)
        .says("one is the folder of a sweep; give it alone");
}

#[test]
fn a_page_can_be_made_again_and_the_result_stays_as_it_was() {
    let dir = Dir::small_with_data();
    let page = page_of_run(&dir, &["--no-calibration"], &STEPS);
    let folder = page.trim_end_matches("/report.html");
    let before = dir.tree(folder);
    assert!(dir.read(&format!("{folder}/SHA256SUMS")).contains("report.html"), "the page is covered");
    let done = dir.feedline(&["report", folder]).run().exits(0);
    let name = done.stdout.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(dir.read(&name) == dir.read(&page), "{name}: the same page, from the saved files");
    // Twice: a page of feedline is replaced.
    dir.feedline(&["report", folder, "-o", &name, "--plots", "figures"]).run().exits(0);
    let plots = dir.tree("figures");
    for plot in ["time-per-epoch.svg", "throughput.svg", "latency.svg", "au-ranks.svg"] {
        let svg = String::from_utf8(plots[plot].clone()).unwrap();
        assert!(svg.contains("font-family=\"Helvetica") && svg.contains("fill=\"#ffffff\""), "{plot}");
        assert!(!svg.contains("var(--"), "{plot} stands alone");
    }
    assert!(dir.read(&page).contains("feedline run w.yaml --quiet --results-dir r"), "the command is in it");
    assert_eq!(dir.tree(folder), before);
    dir.feedline(&["validate", folder]).run().ran();
    dir.has_no_leftovers();
}

#[test]
fn the_browser_is_started_with_the_page() {
    let dir = Dir::small_with_data();
    let page = page_of_run(&dir, &["--no-calibration"], &STEPS);
    let folder = page.trim_end_matches("/report.html");
    dir.write("browser", "#!/bin/sh\nprintf '%s' \"$1\" > opened\n");
    dir.set_mode("browser", 0o755);
    let browser = dir.path("browser");
    let mut running =
        dir.feedline(&["report", folder, "-o", "p.html", "--open"]).env("BROWSER", &browser).start();
    running.until_or_end(|| false);
    running.wait().exits(0);
    let wanted = || dir.path("opened").exists() && dir.read("opened") == "p.html";
    let begin = std::time::Instant::now();
    while !wanted() {
        assert!(begin.elapsed().as_secs() < 60, "the browser was not started");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let absent =
        dir.feedline(&["report", folder, "-o", "p.html", "--open"]).env("BROWSER", "/no/browser").run();
    absent.exits(4).says("cannot open the page with /no/browser");
}

#[test]
fn only_files_of_feedline_are_replaced() {
    let dir = Dir::small_with_data();
    let page = page_of_run(&dir, &["--no-calibration"], &STEPS);
    let folder = page.trim_end_matches("/report.html");
    let before = dir.tree(folder);
    dir.write("mine.html", "<p>mine</p>");
    dir.write("target.html", "<p>theirs</p>");
    symlink(dir.path("target.html"), dir.path("link.html")).unwrap();
    fs::create_dir(dir.path("folder.html")).unwrap();
    dir.write("figures/latency.svg", "mine");
    let report = |args: &[&str]| dir.feedline(&["report", folder]).args(args).run();
    report(&["-o", "mine.html"]).exits(3).says("mine.html exists and was not written by feedline");
    report(&["-o", "link.html"]).exits(3);
    report(&["-o", "folder.html"]).exits(3);
    report(&["-o", "no/such/folder.html"]).exits(3).says("cannot write no/such/folder.html");
    report(&["-o", &page])
        .exits(3)
        .says("would be in the folder of a result, whose checksums do not cover it");
    report(&["--plots", folder]).exits(3).says("would be in the folder of a result");
    report(&["--plots", "figures"]).exits(3).says("was not written by feedline");
    report(&["-o", "-", "--open"]).exits(2);
    assert_eq!(dir.read("mine.html"), "<p>mine</p>");
    assert_eq!(dir.read("target.html"), "<p>theirs</p>");
    assert_eq!(dir.read("figures/latency.svg"), "mine");
    assert_eq!(dir.tree(folder), before);
    dir.feedline(&["validate", folder]).run().ran();
}

/// A summary with the keys that DLIO writes.
const OF_DLIO: &str = r#"{"num_accelerators": 2, "num_hosts": 1, "hostname": "node1", "epochs": 1, "metric": {
    "train_au_percentage": [91.5], "train_au_mean_percentage": 91.5, "train_au_meet_expectation": "success",
    "train_throughput_mean_samples_per_second": 120.25, "train_io_mean_MB_per_second": 13.3}}"#;

#[test]
fn a_folder_that_is_changed_incomplete_newer_or_of_dlio_is_shown_with_the_reason() {
    let dir = Dir::small_with_data();
    let page = page_of_run(&dir, &["--no-calibration"], &STEPS);
    let folder = page.trim_end_matches("/report.html").to_owned();
    let files = dir.tree(&folder);
    // A copy of the result, with one file that is different or missing.
    let changed = |copy: &str, name: &str, content: Option<&str>| {
        for (file, bytes) in &files {
            dir.write(&format!("{copy}/{file}"), bytes);
        }
        match content {
            Some(content) => dir.write(&format!("{copy}/{name}"), content),
            None => fs::remove_file(dir.path(&format!("{copy}/{name}"))).unwrap(),
        }
    };
    let summary = dir.read(&format!("{folder}/summary.json"));
    let newer = summary.replace(&format!("\"{}\"", env!("CARGO_PKG_VERSION")), "\"99.0.0\"");
    changed("ledger", "ledger.json", Some("{\"of\": \"another version\"}"));
    changed("summary", "summary.json", Some(&newer));
    changed("no-summary", "summary.json", None);
    changed("no-plan", "plan.json", Some("garbage"));
    changed(".partial-7", "SHA256SUMS", None);
    for (copy, texts) in [
        ("ledger", ["ledger.json was changed", "Plots of the ledger cannot be shown"]),
        ("summary", ["summary.json was changed", "Written by feedline 99.0.0, a newer version"]),
        ("no-summary", ["The figures are missing", "summary.json is missing"]),
        ("no-plan", ["plan.json was changed", "The plan cannot be shown: plan.json is damaged"]),
        (".partial-7", ["was never published", "SHA256SUMS is missing"]),
    ] {
        let page = dir.feedline(&["report", copy, "-o", "-"]).run().exits(0).stdout;
        for text in texts {
            assert!(page.contains(text), "{copy}: {text}\n{}", &page[page.find("<main>").unwrap()..][..2000]);
        }
    }
    dir.write("dlio/summary.json", OF_DLIO);
    dir.write("dlio/0_output.json", "{}");
    let page = dir.feedline(&["report", "dlio", "-o", "-"]).run().exits(0).stdout;
    assert!(page.contains("This summary was not written by feedline"), "{page}");
    assert!(page.contains("data-key=\"metric.train_au_mean_percentage\""));
}

#[test]
fn a_folder_without_anything_to_show_is_refused() {
    let dir = Dir::new();
    fs::create_dir(dir.path("empty")).unwrap();
    dir.write("garbage/summary.json", "{\"metric\": ");
    dir.write("list/summary.json", "[1]");
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path("garbage/ledger.json"), 0o600.into()).unwrap();
    dir.write("unfinished/cells.jsonl", "{}\n");
    let refused = |folder: &str, why: &str| {
        dir.feedline(&["report", folder]).run().exits(3).says(why);
    };
    refused("absent", "cannot read absent");
    refused("empty", "no results found in empty");
    refused("garbage", "summary.json is damaged");
    refused("list", "it is not an object");
    refused("unfinished", "the sweep in unfinished is not finished");
    assert_eq!(dir.listing().iter().filter(|line| line.contains(".html")).count(), 0);
}

#[test]
fn markup_in_names_is_text() {
    let dir = Dir::new();
    // A name of a file cannot have a slash in it.
    let evil = "<img src=x onerror=alert(1)><script>alert(2)<\u{2215}script>";
    let folder = "d\"><b onmouseover=alert(3)>";
    dir.write("w.yaml", SMALL.replace("data_folder: data", &format!("data_folder: '{folder}'")));
    dir.write(&format!("{evil}.yaml"), dir.read("w.yaml"));
    let args =
        ["run", &format!("{evil}.yaml"), "--generate", "--quiet", "--no-calibration", "--results-dir", "r"];
    dir.feedline(&args).set(&STEPS).run().ran();
    let page = format!("{}/report.html", dir.results_below("r")[0]);
    let opened = &open(&dir, &[&page])[0];
    opened.check();
    assert!(opened.text().contains("onmouseover=alert(3)"), "the name is shown: {}", opened.text());
    let html = dir.read(&page);
    assert!(!html.contains("<script>alert") && !html.contains("<img src=x") && !html.contains("<b onmouse"));
}

#[test]
fn an_interrupted_run_has_its_page() {
    let dir = Dir::small_with_data();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration"];
    let long = ["train.computation_time=0.05", "train.epochs=100"];
    let mut running = dir.feedline(&args).set(&long).start();
    running.until_thread("reader");
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal(Signal::INT);
    running.wait().exits(4);
    let page = dir.read(&format!("{}/report.html", dir.result()));
    assert!(page.contains("Incomplete: the run ended early"));
}
