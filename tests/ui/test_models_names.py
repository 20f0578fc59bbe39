"""Which models may be named on a page that others use: pairs that are known, and what really lies in the models
folder."""

from __future__ import annotations

import os
import string
from html import escape
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.loading.model_presets import MODEL_PRESETS
from ui.controls import Options
from ui.models.names import MAX_NAME, NotAllowed, display_name, hide_folder, locate, offered_names


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A models folder beside something that is nobody's business."""
    folder = tmp_path / "models"
    (folder / "family" / "tiny").mkdir(parents=True)
    (folder / "family" / "tiny" / "config.json").write_text("{}")
    (folder / "one.gguf").write_bytes(b"GGUF")
    (folder / "notes.txt").write_text("not a model")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text("{}")
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    return folder


def served(folder: Path | None) -> Options:
    return Options(served=True, models_folder=str(folder) if folder else None)


def test_names_in_the_folder_are_found_there(shelf: Path) -> None:
    for served_ in (True, False):
        options = Options(served=served_, models_folder=str(shelf))
        assert locate("one.gguf", options) == str(shelf / "one.gguf")
        assert locate("family/tiny", options) == str(shelf / "family" / "tiny")
        assert locate(str(shelf / "one.gguf"), options) == str(shelf / "one.gguf")


@pytest.mark.parametrize("name", [
    "../secret.gguf", "family/../../secret", "/etc/passwd", "~/models", "owner/model", "Qwen/Qwen3-0.6B-GGUF", ".", "",
    "missing.gguf", "one.gguf\x00", "family/tiny/../../../secret", "x" * 500, "//one.gguf",
])  # fmt: skip
def test_nothing_else_is_when_served(shelf: Path, name: str) -> None:
    with pytest.raises(NotAllowed):
        locate(name, served(shelf))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(parts=st.lists(st.sampled_from(["..", ".", "secret", "secret.gguf", "models", "family", "tiny", "one.gguf", "", "~", "*"]), max_size=7),
       absolute=st.booleans())  # fmt: skip
def test_no_way_of_writing_it_leads_out_of_the_folder(shelf: Path, parts: list[str], absolute: bool) -> None:
    name = ("/" if absolute else "") + "/".join(parts)
    try:
        found = locate(name, served(shelf))
    except NotAllowed:
        return
    assert Path(found).resolve().is_relative_to(shelf.resolve()) and Path(found).resolve() != shelf.resolve()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(string.printable + "\x00é模", max_size=30))
def test_whatever_is_written_is_answered(shelf: Path, name: str) -> None:
    try:
        found = locate(name, served(shelf))
    except NotAllowed:
        return
    assert Path(found).exists() or found in {"auto", "ngram", "none"} | {pair.name for pair in MODEL_PRESETS}


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_that_lead_out_are_as_good_as_missing(shelf: Path) -> None:
    (shelf / "away.gguf").symlink_to(shelf.parent / "secret.gguf")
    (shelf / "there").symlink_to(shelf.parent / "secret")
    (shelf / "mixed").mkdir()
    (shelf / "mixed" / "config.json").symlink_to(shelf.parent / "secret" / "config.json")
    (shelf / "loop").symlink_to(shelf / "loop")
    (shelf / "again.gguf").symlink_to(shelf / "one.gguf")  # inside: as a hub's cache has them
    for name in ("away.gguf", "there", "mixed", "loop"):
        with pytest.raises(NotAllowed):
            locate(name, served(shelf))
    assert locate("again.gguf", served(shelf)) == str(shelf / "one.gguf")
    assert offered_names(served(shelf)) == ("again.gguf", "family/tiny", "one.gguf")


def test_the_known_pairs_may_be_named_by_anybody() -> None:
    for pair in MODEL_PRESETS:
        for name in (pair.name, pair.target, pair.drafter):
            assert locate(name, served(None)) == name
    assert [locate(word, served(None)) for word in ("auto", "ngram", "none")] == ["auto", "ngram", "none"]


def test_on_ones_own_machine_any_name_goes_to_the_engine() -> None:
    for name in ("owner/model", "/somewhere/else", "~/model.gguf"):
        assert locate(name, Options()) == name
    with pytest.raises(NotAllowed):
        locate("x" * (MAX_NAME + 1), Options())


def test_what_is_said_of_a_model_does_not_say_where_the_folder_is(shelf: Path) -> None:
    options = served(shelf)
    assert display_name(str(shelf / "family" / "tiny"), options) == "family/tiny"
    assert display_name("/home/somebody/model", options) is None and display_name("owner/model", options) is None
    assert display_name("/home/somebody/model", Options()) == "/home/somebody/model"
    assert display_name("embedded", options) == "embedded" and display_name("auto", options) == "auto"
    assert hide_folder(f"{shelf}/one.gguf is cut short.", options) == "one.gguf is cut short."
    assert hide_folder("nothing", Options()) == "nothing"
    odd = served(shelf / 'a&"b')
    said = {"html": f"<b>{escape(odd.models_folder or '')}/x.gguf</b>", "n": 3, "none": None}
    assert hide_folder(said, odd) == {"html": "<b>x.gguf</b>", "n": 3, "none": None}


def test_what_lies_in_the_folder_is_offered(shelf: Path) -> None:
    assert offered_names(served(shelf)) == ("family/tiny", "one.gguf")
    assert offered_names(served(shelf / "missing")) == () and offered_names(Options()) == ()
