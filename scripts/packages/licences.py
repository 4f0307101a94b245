"""THIRD-PARTY-LICENSES.txt: the licence of each piece of outside code. Equal texts are printed once."""

from . import crates
from .base import Failed

RULE = "=" * 100


def text():
    outside = [one for one in crates.all_components() if one.texts]
    if len(outside) < 100:
        raise Failed(f"only {len(outside)} components have licence texts")
    lines = ["feedline is licensed under Apache-2.0, see LICENSE. The program contains this code of others.", ""]
    numbers, bodies, users = {}, [], {}
    for one in sorted(outside, key=lambda one: (one.name.lower(), one.version)):
        marks = []
        for path in one.texts:
            body = "\n".join(line.rstrip() for line in path.read_text(errors="replace").strip().splitlines())
            if not body:
                continue
            key = " ".join(body.split())
            if key not in numbers:
                numbers[key] = len(numbers) + 1
                bodies.append(body)
            marks.append(numbers[key])
            users.setdefault(numbers[key], []).append(f"{one.name} {one.version}")
        unique = sorted(set(marks))
        if not unique:
            raise Failed(f"{one.name} {one.version} has empty licence files only")
        label = "texts" if len(unique) > 1 else "text"
        lines.append(f"{one.name} {one.version}: {one.licence} ({label} {', '.join(map(str, unique))})")
    for number, body in enumerate(bodies, 1):
        named = sorted(set(users[number]))
        lines += ["", RULE, f"Text {number}, of {', '.join(named)}", RULE, "", body]
    return "\n".join(lines) + "\n"
