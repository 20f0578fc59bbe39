# Sourced by run.sh and test.sh: the virtual environment and its packages. Does nothing when both are up to date.
# A stamp in .venv, written last, is a copy of the requirements that were installed; whatever is interrupted is redone.

venv_python=.venv/bin/python

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Prints the first Python that is new enough; $PYTHON is tried first.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    local python
    # An interrupted creation leaves a Python without pip behind.
    if "$venv_python" -m pip --version >/dev/null 2>&1; then return; fi
    python=$(find_python) || die "Greenlight needs Python 3.11 or later: install it, or set PYTHON to it, and start again."
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "Python's venv module is missing: run \"apt-get install python3-venv\" (Debian, Ubuntu) and start again."
    say "Making the virtual environment .venv ..."
    "$python" -m venv --clear .venv || die "The folder .venv could not be made (see above): mend that and start again."
}

# What an installation of the given files looks like when it is up to date.
wanted() { cat requirements.txt "$1"; }

is_installed() { [ -x "$venv_python" ] && wanted "$1" | cmp -s - ".venv/stamp-$1"; }

stamp() {
    wanted "$1" >".venv/stamp-$1.new"
    mv ".venv/stamp-$1.new" ".venv/stamp-$1"
}

# install requirements.txt | requirements-dev.txt (which includes the former)
install() {
    if is_installed "$1"; then return; fi
    make_venv
    say "Installing the packages of $1 (the first time takes some minutes) ..."
    "$venv_python" -m pip install --disable-pip-version-check --no-input \
        ${GREENLIGHT_TORCH_INDEX:+--extra-index-url "$GREENLIGHT_TORCH_INDEX"} -r "$1" >&2 ||
        die "The packages could not be installed (see above): without a network, connect and start again."
    stamp requirements.txt
    stamp "$1"
}
