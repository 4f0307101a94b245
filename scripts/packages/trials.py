"""Installs each package in a clean root, uses it as a new user would, and removes it again. Nothing may remain."""

import dataclasses
import fnmatch
import json
import os
import re
import stat
import time
import zipfile

from . import binary
from .base import ROOT, Failed, Heading, say
from .roots import DATA, USER, CleanRoot

TIME_LIMIT = 60
"""Seconds from the start of the installation to the verdict of the demo."""
VERDICTS = ("valid", "unverified")
ATTEMPTS = 5
# What the package manager itself changes, whatever it installs.
OF_DPKG = [
    "var/lib/dpkg/*",
    "var/log/dpkg.log",
    "var/log/alternatives.log",
    "var/cache/man/*",
    "var/cache/ldconfig/*",
    "var/lib/apt/*",
    "var/log/apt/*",
    "var/cache/apt/*",
]
# How mlpstorage 3.x and 2.0 require DLIO, and how they are installed beside the wheel: pip replaces an installed package by
# one that a requirement names with an address.
REQUIREMENTS = {
    "3": ("dlio-benchmark", "--no-index"),
    "2": ("dlio-benchmark @ git+https://github.com/argonne-lcf/dlio_benchmark.git@mlperf_storage_v2.0", "--no-deps"),
}


@dataclasses.dataclass(frozen=True)
class Way:
    """How a package is installed and removed, and where it puts its files."""

    install: str
    remove: str
    prefix: str
    user: str
    before: str = "true"
    changed: tuple = ()
    """Files that the package manager changes."""
    on_path: bool = True
    """Whether the shells look below the prefix for completions."""
    keeps_folders: bool = True
    """Whether folders remain that are empty: pip and tar do not know who made them."""


VENV = os.path.join("/home", USER, "venv")
# fish keeps files of its own, and looks below /usr/local only if the desktop or the user says so.
FISH = {"XDG_CONFIG_HOME": "/tmp/fish", "XDG_DATA_HOME": "/tmp/fish", "XDG_DATA_DIRS": "/usr/local/share:/usr/share"}
WAYS = {
    "wheel": Way(
        f"{VENV}/bin/pip install @PACKAGE@",
        f"{VENV}/bin/pip uninstall --yes feedline",
        VENV,
        "tester",
        f"python3 -m venv {VENV}",
        on_path=False,
    ),
    "deb": Way(
        "dpkg --install @PACKAGE@", "dpkg --purge feedline", "/usr", "root", changed=tuple(OF_DPKG), keeps_folders=False
    ),
    "tarball": Way(
        "tar -xzf @PACKAGE@ -C /usr/local --strip-components=1",
        "tar -tzf @PACKAGE@ | sed 's|^[^/]*|/usr/local|' | xargs -d '\\n' rm",
        "/usr/local",
        "root",
    ),
}


def try_package(kind, package, release):
    Heading(f"trial of {package.name}")
    way = WAYS[kind]
    with CleanRoot(kind) as root:
        place = root.put(package)
        root.ok(way.before, user=way.user)
        no_network(root)
        before = root.files()
        started = time.monotonic()
        root.ok(way.install.replace("@PACKAGE@", place), user=way.user)
        installed = time.monotonic() - started
        demo(root, f"{way.prefix}/bin/feedline")
        whole = time.monotonic() - started
        say(f"installed in {installed:.1f} s, verdict {whole:.1f} s after the start of the installation")
        if whole > TIME_LIMIT:
            raise Failed(f"{package.name}: the verdict came after {whole:.1f} s, later than {TIME_LIMIT} s")
        use(root, way, release)
        root.ok(way.remove.replace("@PACKAGE@", place), user=way.user)
        leftovers(root, before, package.name, way.changed, way.keeps_folders)


def no_network(root, **options):
    names = [line.split(":")[0].strip() for line in root.ok("cat /proc/net/dev", **options).splitlines()[2:]]
    if names != ["lo"]:
        raise Failed(f"the root for trials has a network: {' '.join(names)}")


def demo(root, program, **options):
    """The demo, as an ordinary user. A host that is busy with other work can spoil a run, so there are several attempts."""
    root.ok("mkdir -p demo", folder=f"/{DATA}", **options)
    for attempt in range(1, ATTEMPTS + 1):
        code, out, said = root.call(f"{program} run --json", folder=f"/{DATA}/demo", **options)
        try:
            verdict = json.loads(out)["feedline"]["verdict"]
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"the demo has no result, exit code {code}: {said}") from error
        reasons = [
            f"{rule['rule']}: {rule['evidence']}"
            for rule in verdict["rules"]
            if rule["outcome"] not in ("pass", "note")
        ]
        say(f"demo, attempt {attempt}: {verdict['status']}{''.join(f' ({one})' for one in reasons)}")
        if verdict["status"] in VERDICTS and code == 0:
            return
    raise Failed(f"the demo has no verdict of {VERDICTS} in {ATTEMPTS} attempts")


def use(root, way, release):
    """What a new user tries next."""
    program = f"{way.prefix}/bin/feedline"
    path = {"PATH": f"{way.prefix}/bin:/usr/bin:/bin"}
    version = root.ok("feedline --version", **path).strip()
    say(version.splitlines()[0])
    if not version.startswith(f"feedline {release.version}"):
        raise Failed(f"feedline --version prints {version}")
    # In parentheses is the commit. A binary that was given to this script may be of another one.
    if "(" in version and release.commit not in version:
        raise Failed(f"feedline --version does not name commit {release.commit}: {version}")
    said = root.ok("feedline --help", **path)
    if "Commands:" not in said:
        raise Failed(f"feedline --help prints {said}")
    manual_pages(root, path, binary.commands(root.path / program.lstrip("/")))
    completions(root, way)
    audit(root, program)


def manual_pages(root, path, commands):
    """`man` finds the page of each command."""
    for page in ["feedline", *(f"feedline-{name}" for name in commands)]:
        said = root.ok(f"man {page}", MANWIDTH="80", **path)
        if "NAME" not in said or page not in said:
            raise Failed(f"man {page} prints {said}")
    say(f"man: {len(commands) + 1} pages")


def completions(root, way):
    """Each shell completes `feedline ru`, from its own folder for completions where it has one."""
    share, path = f"{way.prefix}/share", {"PATH": f"{way.prefix}/bin:/usr/bin:/bin"}
    bash = f"{share}/{binary.COMPLETIONS['bash']}"
    load = (
        "source /usr/share/bash-completion/bash_completion; _completion_loader feedline"
        if way.on_path
        else f"source {bash}"
    )
    said = root.ok(
        f"{load}; COMP_WORDS=(feedline ru) COMP_CWORD=1; _feedline feedline ru feedline; echo reply: ${{COMPREPLY[*]}}",
        **path,
    )
    complete("bash", "reply: run" in said, said)
    add = "" if way.on_path else f"fpath=({share}/zsh/site-functions $fpath); "
    said = root.ok(
        f"zsh -fc '{add}autoload -Uz compinit && compinit -D -u && print loaded: $_comps[feedline] && autoload +X _feedline && print found'",
        **path,
    )
    complete("zsh", "loaded: _feedline" in said and "found" in said, said)
    add = "" if way.on_path else f"source {share}/{binary.COMPLETIONS['fish']}; "
    said = root.ok(f"fish --command '{add}complete --do-complete \"feedline ru\"'", **FISH, **path)
    complete("fish", re.search(r"^run\b", said, re.M), said)
    root.ok("rm -rf /tmp/fish /tmp/fish.*")
    say("completions: bash, zsh, fish")


def complete(shell, worked, said):
    if not worked:
        raise Failed(f"{shell} does not complete `feedline ru`: {said}")


def audit(root, program):
    """The library inside the program loads into a process of this system."""
    said = root.ok(f"{program} audit -- cat /etc/debian_version /usr/bin/env >/dev/null", folder=f"/{DATA}/demo")
    found = re.search(r"^observed +([0-9,]+) file calls", said, re.M)
    if not found or found[1] == "0":
        raise Failed(f"feedline audit observed no call of a job: {said}")
    say(f"audit: {found[1]} file calls of a job were observed")


def leftovers(root, before, name, allowed=(), keeps_folders=False):
    """All files are as before. A new folder that has files is reported by these files."""
    after = root.files()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    folders = {path for path in changed - before.keys() if stat.S_ISDIR(after[path][0])} if keeps_folders else set()
    managed = {path for path in changed - folders if any(fnmatch.fnmatch(path, pattern) for pattern in allowed)}
    left = sorted(changed - folders - managed)
    if left:
        shown = [
            f"{'removed' if path not in after else 'new' if path not in before else 'changed'}: /{path}"
            for path in left
        ]
        raise Failed(f"{name} leaves {len(left)} changed files after its removal:\n" + "\n".join(shown[:20]))
    rest = [f"{len(managed)} of the package manager"] if managed else []
    rest += [f"{len(folders)} empty folders"] if folders else []
    say(
        f"removed: {len(before):,} files and folders as before" + (f", except for {' and '.join(rest)}" if rest else "")
    )


def try_elsewhere(debian, packages):
    """The packages on another Debian, whose C library is older or newer."""
    Heading(f"trial on {debian}")
    for kind, package in packages.items():
        way = WAYS[kind]
        with CleanRoot(debian, debian) as root:
            place = root.put(package)
            root.ok(way.before, user=way.user)
            before = root.files()
            root.ok(way.install.replace("@PACKAGE@", place), user=way.user)
            demo(root, f"{way.prefix}/bin/feedline")
            root.ok(way.remove.replace("@PACKAGE@", place), user=way.user)
            library = root.ok("ldd --version").splitlines()[0]
            say(f"{package.name}, {library}")
            leftovers(root, before, package.name, way.changed, way.keeps_folders)


def try_pipx(package):
    """`pipx run` needs no installation. pipx updates its own pip, so this has the network."""
    with CleanRoot("pipx") as root:
        place = root.put(package)
        started = time.monotonic()
        code, version, said = root.call(f"pipx run --spec {place} feedline --version", network=True)
        if code != 0 or not version.startswith("feedline "):
            raise Failed(f"pipx run ends with exit code {code}: {said}")
        say(f"pipx run: {version.splitlines()[0]}, after {time.monotonic() - started:.1f} s")


def try_dlio(package, release):
    """The wheel satisfies the requirement of mlpstorage, and takes DLIO's command lines."""
    Heading(f"trial of {package.name}")
    with CleanRoot("dlio") as root:
        place = root.put(package)
        root.ok(f"python3 -m venv {VENV}")
        before = root.files()
        root.ok(f"{VENV}/bin/pip install {place}")
        for edition, (requirement, option) in REQUIREMENTS.items():
            other = requiring(root.data, edition, requirement)
            said = root.ok(f"{VENV}/bin/pip install {option} /{DATA}/{other} && {VENV}/bin/pip check")
            if "No broken requirements" not in said:
                raise Failed(f"pip does not accept the wheel as {requirement}: {said}")
            root.ok(f"{VENV}/bin/pip uninstall --yes mlpstorage")
            say(f"pip accepts it as {requirement}, with {option}")
        version = root.ok(
            f"{VENV}/bin/python -B -c 'import importlib.metadata as m; print(m.version(\"dlio-benchmark\"))'"
        ).strip()
        if version != release.dlio_version:
            raise Failed(f"the distribution has version {version}, not {release.dlio_version}")
        data = "++workload.dataset.data_folder=data ++workload.dataset.num_files_train=4 ++workload.dataset.record_length_bytes=65536"
        sizes = "++workload.dataset.record_length_bytes_stdev=0 ++workload.reader.batch_size=1 ++workload.train.computation_time=0.01 ++workload.train.epochs=1"
        root.ok("mkdir dlio", folder=f"/{DATA}")
        for step in [
            "generate_data=True ++workload.workflow.train=False",
            "generate_data=False ++workload.workflow.train=True",
        ]:
            root.ok(
                f"{VENV}/bin/dlio_benchmark workload=unet3d_h100 {data} {sizes} ++workload.workflow.checkpoint=False "
                f"++workload.workflow.{step} hydra.run.dir=results",
                folder=f"/{DATA}/dlio",
            )
        summary = json.loads((root.data / "dlio/results/summary.json").read_text())
        say(
            f"dlio_benchmark: {summary['num_accelerators']} accelerator, train_au_percentage {summary['metric']['train_au_percentage']}"
        )
        said = root.ok(
            f"cd dlio && {VENV}/bin/dlio_benchmark_query workload=unet3d_h100 ++workload.workflow.query=model.name",
            folder=f"/{DATA}",
        )
        say(f"dlio_benchmark_query: {said.strip()}")
        root.ok(f"{VENV}/bin/pip uninstall --yes dlio-benchmark")
        leftovers(root, before, package.name)


def requiring(folder, version, requirement):
    """An empty wheel `mlpstorage` with this requirement."""
    name, about = f"mlpstorage-{version}-py3-none-any.whl", f"mlpstorage-{version}.dist-info"
    members = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: mlpstorage\nVersion: {version}\nRequires-Dist: {requirement}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: feedline\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
        archive.writestr(f"{about}/RECORD", "".join(f"{member},,\n" for member in [*members, f"{about}/RECORD"]))
    return name


# What emulates Docker: the instructions of packaging/Dockerfile, executed in a clean root.
INSTRUCTIONS = {"FROM", "LABEL", "COPY", "RUN", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT", "CMD"}


def instructions():
    text = (ROOT / "packaging/Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    unknown = sorted({line[0] for line in lines} - INSTRUCTIONS)
    if unknown or any(len(line) != 2 for line in lines):
        raise Failed(f"packaging/Dockerfile has instructions that the trial does not know: {unknown}")
    return [(name, rest.strip()) for name, rest in lines]


def try_docker(package):
    """The image: each instruction of the Dockerfile has its effect in a root, then the image runs without network."""
    Heading("trial of packaging/Dockerfile")
    with CleanRoot("docker") as root:
        user, entry, command, folder = "root", [], [], "/"
        for name, rest in instructions():
            if name == "FROM" and rest != "debian:bookworm-slim":
                raise Failed(f"the trial has a root of debian:bookworm-slim, not of {rest}")
            elif name == "COPY":
                source, target = rest.split()
                if not fnmatch.fnmatch(package.name, source):
                    raise Failed(f"packaging/Dockerfile copies {source}, but the package is {package.name}")
                (root.path / target.lstrip("/")).write_bytes(package.read_bytes())
            elif name == "RUN":
                root.ok(rest, user=user, network=True, folder="/", DEBIAN_FRONTEND="noninteractive")
            elif name == "USER":
                user = rest
            elif name == "WORKDIR":
                folder = rest
            elif name == "ENTRYPOINT":
                entry = json.loads(rest)
            elif name == "CMD":
                command = json.loads(rest)
        said = root.ok(" ".join([*entry, *command]), user=user, folder=folder)
        say(f"docker run feedline: {said.strip().splitlines()[0]}")
        # As with `docker run --volume`: the data is on a file system of the host.
        root.ok(f"install -d -o {user} /{DATA}/demo", user="root")
        demo(root, " ".join(entry), user=user)
