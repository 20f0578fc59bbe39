"""What the READMEs say is true: the Space's header, every option and place they name, and one content in two
languages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
READMES = [(ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh.md")]
BLOCK = re.compile(r"^```(.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = [BLOCK.sub("", text) for text in READMES]
HEADINGS = [re.findall(r"^(#+) (.+)$", text, re.MULTILINE) for text in PROSE]


def test_the_header_is_one_that_a_space_takes() -> None:
    opening, header, _ = READMES[0].split("---\n", 2)
    assert opening == "", "a Space reads its header only at the very beginning"
    values = yaml.safe_load(header)
    assert values["sdk"] == "gradio" and (ROOT / values["app_file"]).is_file() and values["license"] == "apache-2.0"
    assert values["title"] and values["emoji"] and 0 < len(values["short_description"]) <= 60
    assert {values["colorFrom"], values["colorTo"]} <= {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}  # fmt: skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python, least = ([int(part) for part in v.split(".")] for v in (values["python_version"], project["requires-python"][2:]))  # fmt: skip
    assert python >= least, "quoted, or 3.10 is 3.1"
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\d+(?:\.\d+)+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE))  # fmt: skip
    assert values["sdk_version"] == pins["gradio"], "a Space installs this one first; two would fight"
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(pins), "every version is exact"


@pytest.mark.slow
def test_the_installed_packages_agree() -> None:
    pytest.importorskip("pip")
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_links_lead_somewhere() -> None:
    for text, headings in zip(PROSE, HEADINGS, strict=True):
        anchors = {re.sub(r"[^\w\- ]", "", words).lower().replace(" ", "-") for _, words in headings}
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            made = target.startswith("https://") or target == "assets/screenshot.png"  # a picture is made, not written
            assert made or target[1:] in anchors or (ROOT / target).exists(), target


def test_a_map_names_every_room_and_nothing_that_is_gone() -> None:
    for folder in (ROOT / "engine", ROOT / "ui"):
        text = (folder / "README.md").read_text("utf-8")
        rooms = {
            f"`{p.name}/`" if p.is_dir() else f"`{p.name}`" for p in folder.iterdir() if p.is_dir() or p.suffix == ".py"
        }
        assert {room for room in rooms if room not in text} <= {"`__init__.py`", "`__pycache__/`"}
        links = re.findall(r"\[`(?:[^`]+\.)?(\w+)`\]\(([^)]+)\)", text)
        assert len(links) > 15
        for name, target in links:
            named = rf"^\s*(async def|def|class) {name}\b|^{name}\b.*="
            assert re.search(named, (folder / target).read_text("utf-8"), re.MULTILINE), (name, target)


def test_every_option_parameter_and_figure_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    import app
    from engine.bench.__main__ import parser
    from tests.fake_engine import FakeEngine
    from ui.api import Record, make_generate
    from ui.chat.handlers import Handlers
    from ui.controls import Options

    with pytest.raises(SystemExit):
        app.parse(["--help"])
    bench = next(a for a in parser()._actions if a.dest == "command").choices["speed"].format_help()  # type: ignore[index]
    options, measures = (set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)) for text in (capsys.readouterr().out, bench))  # fmt: skip
    assert len(options) > 10 < len(measures)
    figures = Record().json()
    words = [*(measures - {"--help"}), *figures, *figures["stats"]]
    for text in READMES:
        assert [option for option in options if f"\n| `{option}` |" not in text] == []
        assert [word for word in words if f"`{word}`" not in text] == []
        rows = [
            text.index(f"| `{name}` |")
            for name in signature(make_generate(Handlers(FakeEngine(), Options()))).parameters
        ]
        assert rows == sorted(rows)


def test_both_languages_have_the_same_parts_commands_and_sources() -> None:
    english, chinese = (
        (
            [level for level, _ in headings],
            len(re.findall(r"^\|", text, re.MULTILINE)),
            BLOCK.findall(text),
            re.findall(r"https://arxiv\.org/abs/[\d.]+", text),
        )
        for text, headings in zip(READMES, HEADINGS, strict=True)
    )
    assert english == chinese
    papers = re.findall(r"\[arXiv:([\d.]+)\]\(.*?/abs/([\d.]+)\)", "".join(READMES))
    assert papers and all(name == address for name, address in papers)
