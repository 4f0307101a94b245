"""Checks traces with Python's own JSON reader: every line, the whole array, and the names of tracks and files.

Prints one JSON object: the events and nanoseconds of each operation, and the names of tracks, over all files.
"""

import collections
import decimal
import gzip
import json
import sys

counts, times, names = collections.Counter(), collections.Counter(), []
for path in sys.argv[1:]:
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        text = file.read()
    lines = [line for line in text.splitlines() if line not in ("[", ",", "]")]
    events = [json.loads(line, parse_float=decimal.Decimal) for line in lines]
    assert len(json.loads(text)) == len(events), "the array has one event per line"
    tracks, files = {}, set()
    for event in events:
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                assert track not in tracks, "a track is named once"
                tracks[track] = event["args"]["name"]
            if event["name"] == "FH":
                files.add(event["args"]["value"])
            continue
        assert event["ph"] == "X" and track in tracks, event
        assert event["ts"] >= 0 and event["dur"] >= 0, event
        assert event["args"].get("fhash", None) is None or event["args"]["fhash"] in files, event
        assert event["cat"] != "POSIX" or "fhash" in event["args"], event
        counts[event["name"]] += 1
        times[event["name"]] += int(1000 * event["dur"])
    assert len({name for name in tracks.values()}) == len(tracks), "tracks have different names"
    names += sorted(tracks.values())
print(json.dumps({"counts": counts, "ns": times, "tracks": names}))
