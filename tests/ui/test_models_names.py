"""Which models may be named on a page that others use: pairs that are known, and what really lies in the models
folder."""

from __future__ import annotations

import os
import string
from html import escape
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.loading.model_presets import MODEL_PRESETS
from ui.controls import Options
from ui.models.names import MAX_NAME, NotAllowed, display_name, hide_folder, locate, offered_names

PARTS = ["..", ".", "secret", "secret.gguf", "models", "family", "tiny", "one.gguf", "", "~", "*"]
WAYS = st.builds("{}{}".format, st.sampled_from(["", "/"]), st.lists(st.sampled_from(PARTS), max_size=7).map("/".join))


WORDS = {"auto", "ngram", "none"}.union(*((pair.name, pair.target, pair.drafter) for pair in MODEL_PRESETS))


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A models folder beside something that is nobody's business."""
    for name in (
        "models/family/tiny/config.json",
        "models/one.gguf",
        "models/notes.txt",
        "secret/config.json",
        "secret.gguf",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return tmp_path / "models"


def served(folder: Path | None) -> Options:
    return Options(served=True, models_folder=str(folder) if folder else None)


def found(name: str, options: Options) -> str:
    try:
        return locate(name, options)
    except NotAllowed:
        return ""


def test_names_in_the_folder_are_found_there(shelf: Path) -> None:
    for options in (served(shelf), Options(models_folder=str(shelf))):
        for name in ("one.gguf", "family/tiny", str(shelf / "one.gguf")):
            assert locate(name, options) == str(shelf / name)
    assert offered_names(served(shelf)) == ("family/tiny", "one.gguf")
    assert offered_names(served(shelf / "missing")) == () and offered_names(Options()) == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(WAYS | st.text(string.printable + "\x00é模", max_size=30))
@example("family/../../secret")
@example("~/models")
@example("one.gguf\x00")
@example("x" * 500)
@example("//one.gguf")
def test_whatever_is_written_leads_into_the_folder_or_nowhere(shelf: Path, name: str) -> None:
    place = found(name, served(shelf))
    assert place in {"", *WORDS} or shelf.resolve() in Path(place).resolve().parents


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_that_lead_out_are_as_good_as_missing(shelf: Path) -> None:
    (shelf / "mixed").mkdir()
    for link, target in (
        ("away.gguf", "secret.gguf"),
        ("there", "secret"),
        ("mixed/config.json", "secret/config.json"),
        ("loop", "models/loop"),
    ):
        (shelf / link).symlink_to(shelf.parent / target)
        assert not found(link.split("/")[0], served(shelf)), link
    (shelf / "again.gguf").symlink_to(shelf / "one.gguf")  # inside: as a hub's cache has them
    assert locate("again.gguf", served(shelf)) == str(shelf / "one.gguf")
    assert offered_names(served(shelf)) == ("again.gguf", "family/tiny", "one.gguf")


def test_known_pairs_may_be_named_by_anybody_and_on_ones_own_machine_anything() -> None:
    assert [name for name in WORDS if found(name, served(None)) != name] == []
    for name in ("owner/model", "/somewhere/else", "~/model.gguf"):
        assert locate(name, Options()) == name
    assert not found("x" * (MAX_NAME + 1), Options())


def test_what_is_said_of_a_model_does_not_say_where_the_folder_is(shelf: Path) -> None:
    options = served(shelf)
    names = (str(shelf / "family" / "tiny"), "/home/somebody/model", "owner/model", "embedded", "auto")
    assert [display_name(name, options) for name in names] == ["family/tiny", None, None, "embedded", "auto"]
    assert display_name(names[1], Options()) == names[1]
    assert hide_folder(f"{shelf}/one.gguf is cut short.", options) == "one.gguf is cut short."
    assert hide_folder("nothing", Options()) == "nothing"
    odd = served(shelf / 'a&"b')
    said = {"html": f"<b>{escape(odd.models_folder or '')}/x.gguf</b>", "n": 3, "none": None}
    assert hide_folder(said, odd) == {"html": "<b>x.gguf</b>", "n": 3, "none": None}
