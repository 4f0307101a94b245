"""Validates JSON documents against docs/schemas, and checks that changed documents are refused.

    schemas.py SCHEMAS LINT            checks the schemas themselves
    schemas.py SCHEMAS LIST            LIST is a JSON list of pairs of a kind and a file

Prints a line for each problem; exit code 1 if there is one.
"""

import copy
import json
import pathlib
import sys

from jsonschema import Draft202012Validator

# Objects whose keys are not fixed and whose values may be anything.
OPEN = {("sweep-journal", "settings")}


def nodes(schema):
    """All schemas within a schema."""
    yield schema
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs"):
            for inner in value.values():
                yield from nodes(inner)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield from nodes(value)
        elif key in ("oneOf", "anyOf", "prefixItems"):
            for inner in value:
                yield from nodes(inner)


def lint(name, schema):
    Draft202012Validator.check_schema(schema)
    definitions = {f"#/$defs/{key}" for key in schema.get("$defs", {})}
    used = set()
    for node in nodes(schema):
        if "$ref" in node:
            used.add(node["$ref"])
        if "properties" not in node:
            continue
        keys = sorted(node["properties"])
        if node.get("additionalProperties") is not False and name != "error":
            yield f"an object with the keys {keys} allows others"
        if not set(node["required"]) <= set(keys):
            yield f"an object with the keys {keys} requires others"
    if used != definitions:
        yield f"definitions and references differ: {sorted(used ^ definitions)}"
    for key in ("$schema", "title"):
        if key not in schema:
            yield f"there is no {key}"


def documents(kind, path):
    """The documents of a file."""
    text = pathlib.Path(path).read_text()
    if kind.endswith("-journal"):
        return [json.loads(line) for line in text.splitlines()]
    if kind == "checkpoint":
        text = text.rstrip("\n").rpartition("\n")[0]
    return [json.loads(text)]


def objects(value, place=""):
    """All objects within a value, once for each kind of place, with the place."""
    seen = set()

    def walk(value, place):
        if isinstance(value, dict):
            if place not in seen:
                seen.add(place)
                yield place, value
            for key, inner in value.items():
                yield from walk(inner, f"{place}.{key}".lstrip("."))
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner, place)

    yield from walk(value, place)


def required(schema, document):
    """The required keys of a document, and those of the object `feedline` of a summary, as paths."""
    for one in schema.get("oneOf", [schema]):
        one = schema["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        if set(one["required"]) <= set(document):
            yield from ((key,) for key in one["required"])
    inner = schema.get("properties", {}).get("feedline")
    if inner:
        yield from (("feedline", key) for key in inner["required"])


def at(document, path):
    for key in path:
        document = document[key]
    return document


def mutations(kind, schema, document):
    """Changed documents that must be refused."""
    for *path, key in required(schema, document):
        changed = copy.deepcopy(document)
        del at(changed, path)[key]
        yield f"without {'.'.join([*path, key])}", changed
        changed = copy.deepcopy(document)
        at(changed, path)[key] = {"unexpected": [[]]}
        if (kind, key) not in OPEN:
            yield f"with another type of {'.'.join([*path, key])}", changed
    if kind == "error":
        return
    changed = copy.deepcopy(document)
    for place, value in objects(changed):
        if (kind, place) not in OPEN:
            value["unexpected"] = {"unexpected": [[]]}
            yield f"with another key in {place or 'the document'}", changed
            del value["unexpected"]


def check(kind, schema, path):
    validator = Draft202012Validator(schema)
    for document in documents(kind, path):
        problems = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]
        yield from problems
        if problems:
            continue
        for what, changed in mutations(kind, schema, document):
            if validator.is_valid(changed):
                yield f"{what}, it is accepted, too"


def main():
    folder, task = pathlib.Path(sys.argv[1]), sys.argv[2]
    schemas = {
        path.name.removesuffix(".schema.json"): json.loads(path.read_text())
        for path in folder.glob("*.schema.json")
    }
    if task == "LINT":
        found = [(name, problem) for name, schema in schemas.items() for problem in lint(name, schema)]
    else:
        listed = json.loads(pathlib.Path(task).read_text())
        found = [
            (f"{kind} {path}", problem)
            for kind, path in listed
            for problem in check(kind, schemas[kind], path)
        ]
    for where, problem in found:
        print(f"{where}: {problem}")
    sys.exit(1 if found or not schemas else 0)


main()
