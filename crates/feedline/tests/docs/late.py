"""Exits with 0 if the newest result failed only because this machine was too busy."""

import json
import pathlib
import sys

OF_THE_HOST = {"on-time", "client-not-the-limit", "agreement", "clocks"}

NAMES = {"summary.json", "sweep.json", "capacity.json", "stall.json"}


def failed_rules(value):
    """The rules that failed, wherever a result has them."""
    if isinstance(value, list):
        return set().union(*map(failed_rules, value))
    if not isinstance(value, dict):
        return set()
    failed = {value["rule"]} if value.get("outcome") == "fail" and "rule" in value else set()
    return failed.union(value.get("broken") or [], *map(failed_rules, value.values()))


folders = [pathlib.Path(folder) for folder in (".", "/mnt", "/data")]
results = [path for folder in folders for path in folder.rglob("*.json") if path.name in NAMES]
if not results:
    sys.exit(1)
newest = max(results, key=lambda path: path.stat().st_mtime_ns)
failed = failed_rules(json.loads(newest.read_text()))
sys.exit(0 if failed and failed <= OF_THE_HOST else 1)
