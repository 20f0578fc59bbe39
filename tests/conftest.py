"""What a marked test needs is looked for once; without it the test is skipped with the reason, but fails under CI."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: processes side by side, each with a thread a core, wait
# for each other's threads more than they compute

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loading.default_model import DEFAULT_MODEL, GEMMA, fetch_model
from engine.serving.engine import Engine, State

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is slow unless `--all` is given, and says what must run in one process: a module, and all that
    asks for the real model, which is loaded once. The longest come first, so that all processes end together."""
    if not config.getoption("--all"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        real = "real_engine" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("real model" if real else item.nodeid.partition("::")[0]))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    marks = [item.get_closest_marker(name) is not None for name in ("browser", "model")]
    return 0 if all(marks) else 1 if any(marks) else 2


@pytest.fixture(scope="session")
def real_engine() -> Iterator[Engine]:
    """The default model, loaded once for all tests that ask for it; they are marked `model`."""
    made = Engine(EngineConfig(offline=True, threads=1))  # the other core has tests of its own
    status = made.wait_ready(600)
    assert status.state is State.READY, status.message
    yield made
    made.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := _lacks_gpu()):
        pytest.skip(reason)
    for marker, lacks in (("model", _lacks_model), ("browser", _lacks_browser)):
        found = item.get_closest_marker(marker)
        if found is not None and (reason := lacks(*found.args)):
            if os.environ.get("CI", "").lower() in ("1", "true"):
                pytest.fail(f"CI has to run this test: {reason}")
            pytest.skip(reason)
