# Virtual environments of pinned Python packages, in folders that git ignores. Sourced by scripts that run in the root of the repository.
# shellcheck shell=bash

# A virtual environment with these packages: FOLDER PACKAGE...
make_environment() {
    local folder=$1
    shift
    local wanted stamp=$folder/feedline-packages
    wanted="$* $(python3 --version)"
    [[ -x $folder/bin/python && -f $stamp && $(<"$stamp") == "$wanted" ]] && return
    printf '\n== creating %s with %s\n' "$folder" "$*"
    rm -rf "$folder"
    if ! python3 -m venv "$folder"; then
        # On Debian venv is a separate package.
        [[ $EUID -eq 0 ]] || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }
        apt-get update -qq
        apt-get install -y -qq python3-venv
        rm -rf "$folder"
        python3 -m venv "$folder"
    fi
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --constraint scripts/constraints.txt "$@"
    printf '%s\n' "$wanted" >"$stamp"
}
