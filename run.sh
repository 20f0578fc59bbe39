#!/usr/bin/env bash
# Sets Greenlight up if need be, then starts it: bash run.sh [options of app.py]
# GREENLIGHT_TORCH_INDEX: an extra package index that holds the small CPU build of torch (see the README).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./set_up.sh

# Whether the options make the default model necessary before the start.
needs_default_model() {
    local option previous=""
    for option in "$@"; do
        case "$option" in
        -h | --help | --version | --offline) return 1 ;;
        --target=embedded) ;;
        --target=*) return 1 ;;
        esac
        if [ "$previous" = --target ] && [ "$option" != embedded ]; then return 1; fi
        previous=$option
    done
}

install requirements.txt
if needs_default_model "$@"; then "$venv_python" -m engine.fetch >&2; fi
exec "$venv_python" app.py "$@"
