"""Composes command lines with hydra-core and compares the jobs with ours.

Usage: hydra_lines.py FOLDER. FOLDER/lines.json is a list of cases: the arguments, and our result, which is either
{"error": text} or {"jobs": [{"config", "hydra", "overrides", "folder"}]}. FOLDER/dlio_benchmark holds the packaged
configuration. Prints one line per difference; the last line is the number of cases that were composed and refused.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import sys
import warnings

import yaml

FOLDER = sys.argv[1]
sys.path.insert(0, FOLDER)
os.chdir(os.path.join(FOLDER, "work"))
warnings.simplefilter("ignore")

from hydra._internal.hydra import Hydra  # noqa: E402
from hydra._internal.utils import (  # noqa: E402
    create_automatic_config_search_path,
    get_args_parser,
)
from hydra.core.config_search_path import SearchPathQuery  # noqa: E402
from hydra.core.global_hydra import GlobalHydra  # noqa: E402
from hydra import version  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

version.setbase("1.3")
logging.disable(logging.CRITICAL)

# Values that depend on the machine, the time or the version.
VOLATILE = [("runtime", "version"), ("runtime", "config_sources")]


def reference(arguments):
    """The files of each job that hydra-core makes of the arguments."""
    args = get_args_parser().parse_intermixed_args(arguments)
    if args.run and args.multirun:
        raise ValueError("only one of --run and --multirun can be given")
    config_path = args.config_path or "configs"
    search_path = create_automatic_config_search_path(None, "dlio_benchmark.main", config_path)
    if args.config_dir is not None:
        folder = os.path.abspath(args.config_dir)
        if not os.path.isdir(folder):
            raise ValueError(f"there is no folder {folder}")
        search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    hydra = Hydra.create_main_hydra2(task_name="main", config_search_path=search_path)
    jobs = []

    def task(config):
        # DLIO resolves the workload before it uses it.
        jobs.append(OmegaConf.to_container(config["workload"], resolve=True))

    name = args.config_name or "config"
    overrides = list(args.overrides)
    mode = hydra.get_mode(config_name=name, overrides=overrides)
    multirun = args.multirun or (mode is not None and mode.name == "MULTIRUN")
    if mode is None or (multirun and mode.name == "RUN"):
        overrides.append("hydra.mode=MULTIRUN" if multirun else "hydra.mode=RUN")
    run = hydra.multirun if multirun else hydra.run
    result = run(config_name=name, task_function=task, overrides=overrides, with_log_configuration=False)
    results = [job for batch in result for job in batch] if multirun else [result]
    for job in results:
        _ = job.return_value
    return [
        {
            "config": OmegaConf.to_yaml(job.cfg),
            "hydra": OmegaConf.to_yaml(job.hydra_cfg),
            "overrides": OmegaConf.to_yaml(OmegaConf.create(list(job.overrides))),
            "folder": job.hydra_cfg.hydra.runtime.output_dir,
            "resolved": {"workload": resolved},
        }
        for job, resolved in zip(results, jobs)
    ]


def stable(text):
    """hydra.yaml without the values that differ between machines and versions."""
    tree = yaml.safe_load(text)
    for section, key in VOLATILE:
        tree["hydra"][section].pop(key, None)
    # Hydra's help texts are in other words here.
    tree["hydra"]["hydra_help"].pop("template", None)
    if tree["hydra"]["runtime"]["choices"].get("hydra/help") == "default":
        tree["hydra"].pop("help")
    return tree


def canonical(tree):
    """A text in which nan is nan, and 1, 1.0 and true differ; the order of keys does not matter."""
    if isinstance(tree, dict):
        return "{" + ",".join(sorted(f"{key!r}:{canonical(value)}" for key, value in tree.items())) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(canonical, tree)) + "]"
    return repr(tree)


def same(theirs, ours):
    return canonical(theirs) == canonical(ours)


def differences(theirs, ours):
    if len(theirs) != len(ours):
        yield f"{len(theirs)} jobs in Hydra, {len(ours)} here"
    for index, (their, our) in enumerate(zip(theirs, ours)):
        if not same(yaml.safe_load(their["config"]), yaml.safe_load(our["config"])):
            yield f"job {index}: config\n{their['config']}\n-- here --\n{our['config']}"
        elif their["config"] != our["config"]:
            yield f"job {index}: the text of config\n{their['config']}\n-- here --\n{our['config']}"
        if not same(their["resolved"], yaml.safe_load(our["resolved"])):
            yield f"job {index}: resolved\n{their['resolved']}\n-- here --\n{our['resolved']}"
        if their["overrides"] != our["overrides"]:
            yield f"job {index}: overrides\n{their['overrides']}\n-- here --\n{our['overrides']}"
        if os.path.normpath(their["folder"]) != os.path.normpath(os.path.join(os.getcwd(), our["folder"])):
            yield f"job {index}: folder {their['folder']} here {our['folder']}"
        left, right = stable(their["hydra"]), stable(our["hydra"])
        if not same(left, right):
            yield f"job {index}: hydra\n{their['hydra']}\n-- here --\n{our['hydra']}"


def main():
    with open(os.path.join(FOLDER, "lines.json"), encoding="utf-8") as file:
        cases = json.load(file)
    composed = refused = 0
    for arguments, ours in cases:
        # Hydra's parser prints what it refuses.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                theirs, error = reference(arguments), None
            except (Exception, SystemExit) as refusal:
                theirs, error = None, refusal
            finally:
                GlobalHydra.instance().clear()
        shutil.rmtree("out", ignore_errors=True)
        if theirs is None and "error" in ours:
            refused += 1
        elif theirs is None:
            print(f"{arguments}: only Hydra refuses: {type(error).__name__} {error}"[:1500])
        elif "error" in ours:
            print(f"{arguments}: refused only here: {ours['error']}")
        else:
            composed += 1
            for difference in differences(theirs, ours["jobs"]):
                print(f"{arguments}: {difference}")
    print(f"{composed} composed, {refused} refused")


main()
