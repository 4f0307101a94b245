"""Compiles the Python examples of the documentation: a JSON file with the place and the text of each."""

import ast
import json
import sys
import textwrap

mistakes = []
for snippet in json.load(open(sys.argv[1])):
    try:
        if snippet["whole"]:
            compile(snippet["text"], snippet["place"], "exec")
        else:
            # A part of a program: `return` and `yield` are allowed outside of a function.
            ast.parse(textwrap.dedent(snippet["text"]), snippet["place"])
    except SyntaxError as error:
        mistakes.append(f"{snippet['place']}: line {error.lineno}: {error.msg}")
print("\n".join(mistakes))
sys.exit(1 if mistakes else 0)
