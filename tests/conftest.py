"""What a marked test needs is looked for once; without it the test is skipped with the reason, but fails under CI."""

from __future__ import annotations

import functools
import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

from engine.errors import LoadError
from engine.loading.default_model import DEFAULT_MODEL, GEMMA, fetch_model

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is Chromium without its own windows: the same engine draws the page, for half the processor time."""

settings.register_profile("greenlight", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("greenlight")  # a busy machine is no fault: nothing here fails for being slow


MODELS = {"default": DEFAULT_MODEL, "gemma": GEMMA}
"""By what the marker `model` names: none for the default one."""


@functools.cache
def _lacks_model(name: str = "default") -> str:
    try:
        fetch_model(MODELS[name], offline=False, progress=lambda phase, fraction: None)
    except LoadError as error:
        return str(error)
    return ""


@functools.cache
def _lacks_browser() -> str:
    return "" if any(map(shutil.which, CHROMIUMS)) else "there is no Chromium here"


@functools.cache
def _lacks_gpu() -> str:
    import torch

    return "" if torch.cuda.is_available() else "there is no accelerator here"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser that runs keeps an event loop in this thread, in which no other test could start its own."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := _lacks_gpu()):
        pytest.skip(reason)
    for marker, lacks in (("model", _lacks_model), ("browser", _lacks_browser)):
        found = item.get_closest_marker(marker)
        if found is not None and (reason := lacks(*found.args)):
            if os.environ.get("CI", "").lower() in ("1", "true"):
                pytest.fail(f"CI has to run this test: {reason}")
            pytest.skip(reason)
