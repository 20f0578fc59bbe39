"""What the READMEs say is true: the Space's header, every option and place they name, and one content in two
languages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
READMES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")}
BOTH = pytest.mark.parametrize("readme", READMES)

COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
"""The only ones that a Space knows."""


@pytest.fixture(scope="module")
def header() -> dict[str, Any]:
    opening, yaml_text, _ = READMES["README.md"].split("---\n", 2)
    assert opening == "", "a Space reads its header only at the very beginning"
    values = yaml.safe_load(yaml_text)
    assert isinstance(values, dict)
    return values


def pinned(package: str) -> str:
    [version] = re.findall(rf"^{package}==(\S+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    return str(version)


def prose_and_code(readme: str) -> tuple[str, list[str]]:
    """The text without code blocks, and the blocks with their languages."""
    blocks = re.findall(r"^```(.*?)^```$", READMES[readme], re.MULTILINE | re.DOTALL)
    return re.sub(r"^```.*?^```$", "", READMES[readme], flags=re.MULTILINE | re.DOTALL), blocks


def headings(readme: str) -> list[str]:
    return re.findall(r"^#+ .+$", prose_and_code(readme)[0], re.MULTILINE)


# -- the Space's header ------------------------------------------------------------------------------------------------


def test_the_header_has_what_a_space_needs(header: dict[str, Any]) -> None:
    assert header["sdk"] == "gradio"
    assert (ROOT / header["app_file"]).is_file()
    assert header["title"]
    assert header["emoji"]
    assert {header["colorFrom"], header["colorTo"]} <= COLOURS
    assert header["license"] == "apache-2.0"
    assert 0 < len(header["short_description"]) <= 60, "a Space refuses longer ones"


def test_the_headers_gradio_is_the_tested_one(header: dict[str, Any]) -> None:
    """A Space installs this version first and requirements.txt afterwards; two versions would fight."""
    assert isinstance(header["sdk_version"], str), "YAML took the version for a number"
    assert re.fullmatch(r"\d+\.\d+\.\d+", header["sdk_version"])
    assert header["sdk_version"] == pinned("gradio")


def test_the_headers_python_is_one_that_the_project_allows(header: dict[str, Any]) -> None:
    assert isinstance(header["python_version"], str), "quote it: 3.10 without quotes is 3.1"
    assert re.fullmatch(r"3\.\d+(\.\d+)?", header["python_version"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least = re.fullmatch(r">=(3\.\d+)", project["requires-python"])
    assert least, "this test reads only >=3.x"
    wanted, needed = ([int(part) for part in v.split(".")] for v in (header["python_version"], least[1]))
    assert wanted >= needed


def test_every_version_is_exact() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==\d+(\.\d+)+", line), line


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this Python has no pip")
def test_the_installed_packages_agree() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- files and options -------------------------------------------------------------------------------------------------


@BOTH
def test_links_lead_somewhere(readme: str) -> None:
    text, _ = prose_and_code(readme)
    anchors = {re.sub(r"[^\w\- ]", "", h.lstrip("# ")).lower().replace(" ", "-") for h in headings(readme)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://") and target != "assets/screenshot.png":  # a picture is made, not written
            assert (ROOT / target).exists(), target


MAPS = ("engine", "ui")


@pytest.mark.parametrize("folder", MAPS)
def test_a_map_names_every_room_and_nothing_that_is_gone(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    entries = [p for p in (ROOT / folder).iterdir() if p.is_dir() or p.suffix == ".py"]
    rooms = {f"{p.name}/" if p.is_dir() else p.name for p in entries} - {"__init__.py", "__pycache__/"}
    assert not {room for room in rooms if f"`{room}`" not in text}
    links = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", text)
    assert len(links) > 15
    for name, target in links:
        source = (ROOT / folder / target).read_text(encoding="utf-8")
        last = name.rsplit(".", 1)[-1]
        assert re.search(rf"^\s*(async def|def|class) {last}\b|^{last}\b.*=", source, re.MULTILINE), (name, target)


@BOTH
def test_every_option_of_the_app_is_explained(readme: str) -> None:
    shown = subprocess.run(
        [sys.executable, "app.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE))
    rows = set(re.findall(r"^\| `(--[a-z-]+)` \|", READMES[readme], re.MULTILINE))
    assert len(options) > 10
    assert not options - rows


@BOTH
def test_every_option_of_the_bench_is_explained(readme: str) -> None:
    from engine.bench.__main__ import parser

    shown = next(a for a in parser()._actions if a.dest == "command").choices["speed"].format_help()
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
    assert len(options) > 10
    assert not [option for option in options if f"`{option}`" not in READMES[readme]]


@BOTH
def test_the_endpoints_parameters_and_figures_are_explained(readme: str) -> None:
    """Read from a real signature and a real answer, in this order."""
    from inspect import signature

    from tests.fake_engine import FakeEngine
    from ui.api import Record, make_generate
    from ui.chat.handlers import Handlers
    from ui.controls import Options

    generate = make_generate(Handlers(FakeEngine(), Options()))  # type: ignore[arg-type]
    text = READMES[readme]
    rows = [text.index(f"| `{name}` |") for name in signature(generate).parameters]
    assert rows == sorted(rows)
    answer = Record().json()
    assert not [name for name in (*answer, *answer["stats"]) if f"`{name}`" not in text]


# -- one content, two languages ----------------------------------------------------------------------------------------


def test_both_languages_have_the_same_parts() -> None:
    english, chinese = ([h.split(" ")[0] for h in headings(readme)] for readme in READMES)
    assert english == chinese
    rows = [sum(line.startswith("|") for line in text.splitlines()) for text in READMES.values()]
    assert rows[0] == rows[1]


def test_both_languages_have_the_same_commands() -> None:
    assert prose_and_code("README.md")[1] == prose_and_code("README.zh.md")[1]


def test_both_languages_name_the_same_sources() -> None:
    english, chinese = (re.findall(r"https://arxiv\.org/abs/[\d.]+", text) for text in READMES.values())
    assert english == chinese
    for text in READMES.values():
        assert all(name == address for name, address in re.findall(r"\[arXiv:([\d.]+)\]\(.*?/abs/([\d.]+)\)", text))
