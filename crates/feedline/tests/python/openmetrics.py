"""Reads a page of OpenMetrics from stdin with the parser of prometheus_client and prints its samples as JSON lines."""

import json
import sys

from prometheus_client.openmetrics.parser import text_fd_to_metric_families

for family in text_fd_to_metric_families(sys.stdin):
    for sample in family.samples:
        print(json.dumps({"type": family.type, "name": sample.name, "labels": sample.labels, "value": sample.value}))
