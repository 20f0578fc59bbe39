"""Where models, prepared weights, compiled kernels and answers about this machine are kept."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from engine.errors import LoadError


def cache_folder() -> Path:
    """Where models are kept: GREENLIGHT_CACHE, else the platform's usual place (XDG_CACHE_HOME is heeded)."""
    if setting := os.environ.get("GREENLIGHT_CACHE", "").strip():
        return Path(setting).expanduser().absolute()
    folder = platformdirs.user_cache_path("greenlight", appauthor=False)
    if not folder.is_absolute():  # there is no home folder to be found
        raise LoadError("There is no home folder to keep the model in: set GREENLIGHT_CACHE to a folder for it.")
    return folder
