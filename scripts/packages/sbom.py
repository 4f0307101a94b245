"""The software bill of materials, in the format CycloneDX 1.6. It is checked against the schema of CycloneDX."""

import datetime
import json
import uuid

from . import crates, tools
from .base import run

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(f"{sys.argv[1]} violates the schema of CycloneDX: {error}" if error else 0)
"""


def write(path, release):
    parts = crates.all_components()
    program, rest = parts[0], parts[1:]
    known = {one.purl for one in parts}
    missing = {need for one in parts for need in one.needs} - known
    assert not missing, missing
    extra = [one.purl for one in rest if not one.purl.startswith("pkg:cargo/") or one.name == "feedline-preload"]
    needs = {one.purl: list(one.needs) for one in parts}
    needs[program.purl] += extra
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{program.purl}?commit={release.commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(release.date, datetime.timezone.utc).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
            "component": {**component(program), "type": "application"},
            "properties": [{"name": "feedline:commit", "value": release.commit}],
        },
        "components": [component(one) for one in rest],
        "dependencies": [{"ref": key, "dependsOn": sorted(set(value))} for key, value in needs.items()],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    validate(path)


def validate(path):
    run(tools.python(), "-c", VALIDATE, path, capture_output=True, text=True)


def component(one):
    found = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "description": one.description,
        "purl": one.purl,
        "licenses": [{"expression": one.licence}],
    }
    if one.sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
    if one.repository:
        found["externalReferences"] = [{"type": "vcs", "url": one.repository}]
    return {key: value for key, value in found.items() if value}
