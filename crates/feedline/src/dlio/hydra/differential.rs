//! Compares command lines with the real hydra-core: the same jobs, or both refuse. One Python process composes all of
//! them; it reads the files that this program embeds.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::sources::PackagedFiles;
use super::tests::compose_in;
use crate::dlio::job::{Composed, Job};

/// Cases that random combinations hardly reach.
const HAND_PICKED: &[&str] = &[
    "",
    "workload=unet3d_h100",
    "workload=unet3d_h100 ++hydra.run.dir=out/leaf ++hydra.output_subdir=dlio_config ++workload.a=True -cd more",
    "workload=[default]",
    "workload=[default,dlrm]",
    "workload=default.yaml",
    "workload=mine --config-dir=more",
    "workload=nested --config-dir=more",
    "workload=global --config-dir=more",
    "workload=packaged --config-dir=more",
    "workload=optional --config-dir=more",
    "workload=missing --config-dir=more",
    "workload=twice --config-dir=more",
    "workload=broken --config-dir=more",
    "workload=texts --config-dir=more",
    "workload=nested workload/part=b --config-dir=more",
    "workload=nested workload/part=c --config-dir=more",
    "workload=nested +workload/part=b --config-dir=more",
    "workload=nested ~workload/part --config-dir=more",
    "workload=nested ~workload/part=b --config-dir=more",
    "workload=nested workload/part=null --config-dir=more",
    "workload=overriding --config-dir=more",
    "workload=overriding hydra/job_logging=stdout --config-dir=more",
    "+extra=x --config-dir=more",
    "+extra@workload.extra=x --config-dir=more",
    "+extra@_global_=x --config-dir=more",
    "+extra=[x,y] --config-dir=more",
    "extra=x --config-dir=more",
    "--config-name=second --config-dir=more",
    "--config-name=second.yaml --config-dir=more workload=dlrm",
    "--config-name=nothing --config-dir=more",
    "--config-dir=nothing",
    "-cn second -cd more",
    "hydra/job_logging=custom",
    "hydra/job_logging=default",
    "hydra/job_logging=none hydra/hydra_logging=none",
    "hydra/job_logging=stdout hydra/hydra_logging=default",
    "hydra/job_logging=nope",
    "hydra/hydra_logging=hydra_debug",
    "hydra/help=default",
    "hydra/callbacks=x",
    "hydra/launcher=basic",
    "hydra/launcher=nope",
    "hydra/output=default",
    "~hydra/env",
    "~hydra/launcher",
    "hydra.output_subdir=null",
    "hydra.output_subdir=5",
    "hydra.run.dir=7",
    "hydra.run.dir=out/${hydra.job.name}",
    "hydra.run.dir=out/${hydra:job.name}",
    "hydra.run.dir=null",
    "hydra.run=null",
    "hydra.run=1",
    "hydra.run={dir:out/a}",
    "+hydra.run.x=1",
    "++hydra.x=1",
    "hydra.x=1",
    "+hydra.x=1",
    "hydra={run:{dir:out/a}}",
    "~hydra.run.dir",
    "~hydra.run",
    "~hydra.verbose",
    "~hydra.job_logging.root",
    "~hydra.launcher._target_",
    "hydra.mode=RUN",
    "hydra.mode=FOO",
    "hydra.job.name=x",
    "hydra.job.chdir=false",
    "hydra.job.chdir=no",
    "hydra.job.chdir=0",
    "hydra.job.chdir=maybe",
    "hydra.job.num=3",
    "hydra.job.num=x",
    "hydra.job.id=3",
    "hydra.job.env_set.A=1",
    "+hydra.job.env_set.A=1",
    "+hydra.job.env_set={A:1,B:x}",
    "hydra.job.env_copy=[NOT_SET_ANYWHERE]",
    "hydra.job.config.override_dirname.exclude_keys=[workload] workload=dlrm +a=1",
    "hydra.job.config.override_dirname.kv_sep=: hydra.job.config.override_dirname.item_sep=/ +b=2 +a=1",
    "hydra.searchpath=[more] workload=mine",
    "hydra.searchpath=[file://more] workload=mine",
    "hydra.searchpath=x",
    "hydra.verbose=true",
    "hydra.verbose=[a,b]",
    "hydra.sweep.dir=out/s hydra.sweep.subdir=x",
    "hydra.help.header=x",
    "hydra.overrides.task=[x]",
    "hydra.runtime.choices.a=1",
    "+workload=dlrm",
    "++workload=dlrm",
    "workload=null",
    "workload=",
    "workload=1",
    "workload=nope",
    "workload={a:1}",
    "+workload={a:1}",
    "++workload={model:{name:x}}",
    "~workload",
    "~workload=default",
    "~workload=dlrm",
    "~workload hydra.run.dir=out/a",
    "workload@x=dlrm",
    "+workload@x=dlrm",
    "a@b=1",
    "a/b=1",
    "++a/b=1",
    "workload.model=5",
    "workload.model=null hydra.run.dir=out/a",
    "workload.model.name.x=1",
    "+workload.model.name.x=1 hydra.run.dir=out/a",
    "++workload.model.name.x=1 hydra.run.dir=out/a",
    "workload.model={name:y}",
    "workload.model={nope:y}",
    "+workload.model={nope:y}",
    "++workload.model={nope:{a:[1,2]}}",
    "workload.model=[1,2] hydra.run.dir=out/a",
    "++workload.l=[1,2] workload.l=[3]",
    "++workload.l=[1,2] +workload.l=[3]",
    "++workload.l=[1,2] workload.l.0=9",
    "++workload.l=[1,2] workload.l.5=9",
    "++workload.l=[1,2] ++workload.l.5=9",
    "++workload.l=[1,2] workload.l.x=9",
    "++workload.l=[1,2] workload.l={a:1}",
    "++workload.l=[{a:1}] workload.l.0.a=5",
    "++workload.l=[1,2] ~workload.l",
    "++workload.l=[1,2] ~workload.l=[1,2]",
    "++workload.l=[1,2] ~workload.l=[1]",
    "~workload.train.epochs=10",
    "~workload.train.epochs=10.0",
    "~workload.train.epochs='10'",
    "~workload.train",
    "~workload.train.nope",
    "++workload.n=null ~workload.n",
    "++workload.n=null +workload.n=5",
    "++workload.n=??? +workload.n=5",
    "++workload.n=???",
    "++workload.n={a:1} ++workload.n={a:???}",
    "+=1",
    "=1",
    "+",
    "~",
    "a",
    "+++a=1",
    "~+a=1",
    "5=1",
    "+a.=1",
    "+.a=1",
    "+a..b=1",
    "+0.a=1",
    "+a.0=1",
    "+$a=1",
    "+a$b.c=1",
    "+a-b=1",
    "+-a=1",
    "+a:b=1",
    "+a={a:1,a:2}",
    "+a={null:1}",
    "+a={x\\:y:1}",
    "+a=[[],{}]",
    "+a=int(3.7)",
    "+a=int('07')",
    "+a=int(x)",
    "+a=int(null)",
    "+a=float(3)",
    "+a=float(inf)",
    "+a=str(3.0)",
    "+a=str([1,true,x])",
    "+a=bool({a:true,b:0})",
    "+a=bool(yes)",
    "+a=int(value=3)",
    "+a=int(1,value=3)",
    "+a=int(nope=3)",
    "+a=json_str({a:1})",
    "+a=extend_list(1)",
    "+a=sort([3,1,2])",
    "+a=sort([b,a,c],reverse=true)",
    "+a=sort(5)",
    "+a=sort([a,1])",
    "+a=shuffle(5)",
    "+a=choice(1,2)",
    "+a=range(3)",
    "+a=nope(3)",
    "+a=1,2",
    "+a=b(c",
    "+a=x(1)y",
    "+a=${workload.model.name}",
    "+a=${nope}",
    "++workload.a=${nope}",
    "++workload.a=${workload.train.epochs}",
    "++workload.a=${workload.train}",
    "++workload.a=x${workload.train.epochs}y",
    "++workload.a=${.framework}",
    "++workload.train.a=${.epochs}",
    "++workload.train.a=${..framework}",
    "++workload.train.a=${....framework}",
    "++workload.a='${workload.${workload.b}}' ++workload.b=framework",
    "++workload.a=${workload.${workload.b}}",
    "++workload.a=${oc.env:FEEDLINE_GIVEN}",
    "++workload.a=${oc.env:FEEDLINE_NOT_GIVEN}",
    "++workload.a=${oc.env:FEEDLINE_NOT_GIVEN,5}",
    "++workload.a=${oc.env:FEEDLINE_NOT_GIVEN,null}",
    "++workload.a=${oc.decode:'[1,2]'}",
    "++workload.a=${oc.decode:5}",
    "++workload.a=${oc.decode:null}",
    "++workload.a=${oc.select:workload.framework}",
    "++workload.a=${oc.select:nope,5}",
    "++workload.a=${oc.dict.keys:workload.train}",
    "++workload.a=${oc.dict.values:workload.train}",
    "++workload.a='${oc.create:[1,2]}'",
    "++workload.a=${nope:1}",
    "++workload.a=${workload.a}",
    "++workload.a=${workload.b} ++workload.b=${workload.a}",
    "++workload.a='\\${x}'",
    "++workload.a='\\\\${workload.framework}'",
    "++workload.a=${}",
    "++workload.a=${workload[framework]}",
    "++workload.l=[a,b] ++workload.a=${workload.l.1}",
    "++workload.l=[a,b] ++workload.a='${workload.l[0]}'",
    "workload.framework=${workload.model.name}",
    "-m workload=default,dlrm hydra.sweep.dir=out/s",
    "-m workload=glob(unet3d_*,exclude=*_s3) hydra.sweep.dir=out/s",
    "-m workload=glob([unet3d_v100*,dlrm]) hydra.sweep.dir=out/s",
    "-m +a=1,2 +b=x,y hydra.sweep.dir=out/s",
    "-m +a=1,2 +a=3,4 hydra.sweep.dir=out/s",
    "-m +a=range(1,4) hydra.sweep.dir=out/s",
    "-m +a=range(0,1,0.25) hydra.sweep.dir=out/s",
    "-m +a=range(0.1,0.5,step=0.1) hydra.sweep.dir=out/s",
    "-m +a=range(5,1,-2) hydra.sweep.dir=out/s",
    "-m +a=sort(range(5,1,-2)) hydra.sweep.dir=out/s",
    "-m +a=sort(3,1,2) hydra.sweep.dir=out/s",
    "-m +a=sort(choice(3,1,2),reverse=true) hydra.sweep.dir=out/s",
    "-m +a=int(range(1.5,4)) hydra.sweep.dir=out/s",
    "-m +a=float(range(1,3)) hydra.sweep.dir=out/s",
    "-m +a=str(1,2) hydra.sweep.dir=out/s",
    "-m +a=tag(x,choice(1,2)) hydra.sweep.dir=out/s",
    "-m +a=tag(choice(1,2)) hydra.sweep.dir=out/s",
    "-m +a=interval(1,2) hydra.sweep.dir=out/s",
    "-m +a=choice() hydra.sweep.dir=out/s",
    "-m +a=choice(null) hydra.sweep.dir=out/s",
    "-m +a=choice(choice(1,2)) hydra.sweep.dir=out/s",
    "-m +a=[1,2],[3] hydra.sweep.dir=out/s",
    "-m +a={x:1},{x:2} hydra.sweep.dir=out/s",
    "-m +a='x,y',\"z\\\"w\" hydra.sweep.dir=out/s",
    "-m +a=x\\,y,z hydra.sweep.dir=out/s",
    "-m ~workload.train.epochs +a=1,2 hydra.sweep.dir=out/s",
    "-m ++workload.t=1e-3,1e20 hydra.sweep.dir=out/s",
    "-m hydra.run.dir=a,b hydra.sweep.dir=out/s",
    "-m hydra.sweep.dir=out/${hydra.job.name} hydra.sweep.subdir=${hydra.job.override_dirname} +a=1,2",
    "-m hydra.mode=RUN +a=1,2 hydra.sweep.dir=out/s",
    "hydra.mode=MULTIRUN +a=1,2 hydra.sweep.dir=out/s",
    "-m -r",
    "--nope",
    "workload=dlrm -m +a=1,2 hydra.sweep.dir=out/s",
];

/// Files below `--config-dir=more`.
const MORE: &[(&str, &str)] = &[
    ("workload/mine", "model: {name: mine}\nframework: pytorch\n"),
    ("workload/nested", "defaults:\n- part: a\n- _self_\nmodel: {name: nested}\nx: {own: 1}\n"),
    ("workload/part/a", "x: 1\ny: {z: a}\n"),
    ("workload/part/b", "# @package workload\nx: {b: 2}\n"),
    ("workload/global", "# @package _global_\nworkload: {model: {name: g}}\ntop: 1\n"),
    ("workload/packaged", "# @package workload.inner\nmodel: {name: p}\n"),
    ("workload/optional", "defaults:\n- optional part: nope\n- mine\nmodel: {size: 1}\n"),
    ("workload/missing", "defaults:\n- part: nope\nmodel: {name: m}\n"),
    ("workload/twice", "defaults:\n- _self_\n- _self_\nmodel: {name: m}\n"),
    ("workload/broken", "model: {name: x\n"),
    (
        "workload/texts",
        "model: {name: texts}\na: 'yes'\nb: '007'\nc: '1e3'\nd: ''\ne: ' x'\nf: 'a: b'\ng: '# c'\nh: \"tab\\there\"\n\
         i: \"two\\nlines\"\nj: 'null'\nk: '~'\nl: '2026-07-01'\nm: '1:30'\nn: 'é ü'\no: '- x'\np: '{a}'\n\
         q: 'it''s'\n\
         r: \"a long text that has more than eighty columns in it, so that it must be folded somewhere in it\"\n\
         s: \"  a long text with blanks at its start, more than eighty columns, so that it is folded in it\"\n\
         t: \"quote ' and: colon, a long text with more than eighty columns, so that it must be folded\"\n\
         u: .inf\nv: 1.0e+20\nw: 1e-7\nx: [[1, [2]], {a: 1}, [], {}]\ny: 0x10\nz: off\naa: '='\nab: '<<'\nac: '...'\n\
         ad: \"\\e[0m\"\nae: \"trailing \"\naf: \"a\\n b\"\nag: '@x'\nah: 'x#y'\nai: 'x #y'\naj: '?'\nak: '?x'\n\
         al: '!x'\n",
    ),
    (
        "workload/overriding",
        "# @package _global_\ndefaults:\n- _self_\n- override /hydra/job_logging: custom\n\
         workload: {model: {name: o}}\n",
    ),
    ("extra/x", "k: x\nl: [1]\n"),
    ("extra/y", "k: y\nm: 1\n"),
    (
        "second",
        "defaults:\n- workload: default\n- extra: x\n- _self_\nhydra: {run: {dir: out/second}}\nextra: {k: own}\n",
    ),
];

const WORDS: [&str; 13] =
    ["true", "False", "null", "NULL", "yes", "off", "inf", "-nan", "x", "???", "y", "~", "="];
const NUMBERS: [&str; 12] =
    ["0", "-5", "+7", "007", "1_000", "1e-3", ".5", "5.", "1.2.3", "-.5e2", "0x10", "1e400"];
const TEXTS: [&str; 12] =
    ["/data/x", "a b", "a:b", "C:\\d", "s3://b/k", "a@b", "10%", "x|y", "*", "a\\,b", "a\\ ", "é"];
const QUOTED: [&str; 11] =
    ["'q'", "\"q q\"", "'it\\'s'", "'a\\\\'", "''", "'1'", "'a,b'", "' '", "'a", "'a'b", "\"\""];
const INTERPOLATIONS: [&str; 6] =
    ["${workload.framework}", "a${workload.train.epochs}", "${.x}", "${oc.env:HOME", "$x", "${"];
const CHARACTERS: [&str; 20] =
    ["a", "1", "-", ".", "e", "_", "\\", ",", " ", "'", "[", "{", "(", ")", "]", "}", ":", "$", "0", "+"];

/// A small generator of pseudo-random numbers: the cases are the same in every run.
struct RandomLines(u64);

impl RandomLines {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % below as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.next(of.len())]
    }

    fn value(&mut self, depth: usize) -> String {
        match self.next(if depth > 2 { 4 } else { 9 }) {
            0 => self.one(&WORDS).into(),
            1 => self.one(&NUMBERS).into(),
            2 => self.one(&TEXTS).into(),
            3 => self.one(&QUOTED).into(),
            4 => {
                let items: Vec<String> = (0..self.next(4)).map(|_| self.value(depth + 1)).collect();
                let separator = self.one(&[",", ", ", " , "]);
                format!("[{}]", items.join(separator))
            }
            5 => {
                let pairs: Vec<String> = (0..self.next(3))
                    .map(|_| {
                        let (key, colon) = (self.one(&["a", "b", "c d", "x-y"]), self.one(&[":", ": "]));
                        format!("{key}{colon}{}", self.value(depth + 1))
                    })
                    .collect();
                format!("{{{}}}", pairs.join(","))
            }
            6 => {
                let (name, value) =
                    (self.one(&["int", "float", "str", "bool", "sort"]), self.value(depth + 1));
                format!("{name}({value})")
            }
            7 => {
                // Characters in any order: the lexer's longest match decides.
                (0..self.next(6)).map(|_| self.one(&CHARACTERS)).collect()
            }
            _ => self.one(&INTERPOLATIONS).into(),
        }
    }

    fn line(&mut self) -> Vec<String> {
        const KEYS: [&str; 14] = [
            "workload.framework",
            "workload.model.name",
            "workload.model",
            "workload.train.epochs",
            "workload.train.new",
            "workload.new.deep.key",
            "workload.dataset",
            "new",
            "hydra.run.dir",
            "hydra.output_subdir",
            "hydra.job.name",
            "workload",
            "hydra.verbose",
            "workload.reader.0",
        ];
        let mut line = vec![format!(
            "workload={}",
            self.one(&["default", "dlrm", "unet3d_a100", "bert_v100", "llama_1t"])
        )];
        for _ in 0..1 + self.next(3) {
            let prefix = self.one(&["", "", "+", "++", "++", "~"]);
            let key = self.one(&KEYS);
            let value = match (prefix, self.next(4)) {
                ("~", 0..3) => String::new(),
                _ => format!("={}", self.value(0)),
            };
            line.push(format!("{prefix}{key}{value}"));
        }
        line
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The packaged files as DLIO's and Hydra's packages have them. Hydra reads its own groups from its own package.
fn write_files(folder: &Path) {
    let package = folder.join("dlio_benchmark");
    for (path, texts) in PackagedFiles::dlio().files() {
        let text = match texts.as_slice() {
            [text, changes] if !changes.is_empty() => {
                let name = path.rsplit('/').next().unwrap();
                // A merged file: our composition of it is the text, and other tests check its values.
                let arguments = ["--cfg=job", "-p=workload", &format!("workload={name}")];
                let Ok(Composed::Print(text)) = compose_in("/", &arguments) else { panic!("{name}") };
                text.split_once('\n').unwrap().1.to_owned()
            }
            texts => texts[0].to_owned(),
        };
        write(&package.join("configs").join(format!("{path}.yaml")), &text);
    }
    for module in ["__init__.py", "main.py", "configs/__init__.py"] {
        write(&package.join(module), "");
    }
    for (path, text) in MORE {
        write(&folder.join("work/more").join(format!("{path}.yaml")), text);
    }
}

fn as_json(result: anyhow::Result<Composed>) -> Value {
    let hidden = |text: &str, value: &str| text.replace(&format!(": {value}\n"), ": (secret)\n");
    let job = |job: &Job| {
        json!({
            "config": job.config,
            // The packaged files that Hydra reads are printed ones, which show no values of these keys.
            "resolved": hidden(&hidden(&job.resolved, "access-key"), "secret-key"),
            "hydra": job.hydra,
            "overrides": job.overrides,
            "folder": job.folder,
        })
    };
    match result {
        Ok(Composed::Jobs(jobs)) => json!({"jobs": jobs.iter().map(job).collect::<Vec<_>>()}),
        Ok(Composed::Print(text)) => json!({"error": format!("printed {text}")}),
        Err(error) => json!({"error": format!("{error:#}")}),
    }
}

#[test]
fn command_lines_give_the_same_jobs_as_hydra_core() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    write_files(&root);
    let picked = HAND_PICKED
        .iter()
        .map(|line| line.split(' ').filter(|part| !part.is_empty()).map(str::to_owned).collect());
    let mut random = RandomLines(20_261_117);
    let lines: Vec<Vec<String>> = picked.chain((0..500).map(|_| random.line())).collect();
    let work = root.join("work");
    let cases: Vec<Value> = lines
        .into_iter()
        .map(|mut line| {
            // A folder below `out`, which is removed after each case; one that the case gives comes later and wins.
            line.insert(0, "hydra.run.dir=out/run".into());
            let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
            json!([line, as_json(compose_in(work.to_str().unwrap(), &arguments))])
        })
        .collect();
    write(&root.join("lines.json"), &serde_json::to_string(&cases).unwrap());
    let python = std::env::var("FEEDLINE_TEST_PYTHON")
        .expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test, which creates the virtual environment");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/hydra_lines.py");
    let output = Command::new(python)
        .args([script.as_os_str(), root.as_os_str()])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("FEEDLINE_GIVEN", "given")
        .env_remove("FEEDLINE_NOT_GIVEN")
        .output()
        .unwrap();
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let lines: Vec<&str> = shown.lines().collect();
    let (count, differences) = lines.split_last().unwrap();
    assert!(differences.is_empty(), "{count}\n{}", differences.join("\n"));
    let counts: Vec<usize> = count.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(counts[0] > 150 && counts[1] > 150, "{count}");
}
