#!/usr/bin/env bash
# Sets Greenlight up for development if need be, then runs the tests: bash test.sh [--all] [options of pytest]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./set_up.sh

have_chromium() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null; then return; fi
    done
    return 1
}

# Only where it is one plain package and we may install it; elsewhere the browser tests are skipped.
install_chromium() {
    if [ "$(id -u)" = 0 ] && grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
        say "Installing Chromium for the browser tests ..."
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y --no-install-recommends chromium >/dev/null </dev/null ||
            { apt-get update >/dev/null && apt-get install -y --no-install-recommends chromium >/dev/null </dev/null; } || true
    fi
}

install requirements-dev.txt
if ! have_chromium; then install_chromium; fi
if ! have_chromium; then say "There is no Chromium here: the browser tests are skipped."; fi
"$venv_python" -m engine.fetch >&2 || say "The tests that need the default model are skipped (under CI they fail)."
exec "$venv_python" -m pytest -n auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder "$@"
