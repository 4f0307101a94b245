"""The modules of scripts/package.

base      places, facts about the release, commands
tools     what has to be installed
binary    builds the binary, and lets it write its documents
crates    which outside code is in it; licences and sbom list it
archives  writes the packages
contents  checks them without installing them; faults damages them for these checks
roots     clean roots; trials installs, uses and removes the packages in them
make      the order of all that
"""

from .base import Failed, Heading
from .make import KINDS, SHORT_KINDS, make_and_try
