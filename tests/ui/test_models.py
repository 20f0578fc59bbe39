"""What the tab "Models" says (pure), and which models may be named on a page that others use: pairs that are known, and
what really lies in the models folder."""

from __future__ import annotations

import os
import re
import string
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.loading.model_presets import MODEL_PRESETS
from engine.preflight.check import Report
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, Diagnostic, FitLevel, diagnose, worst
from engine.preflight.memory import Machine
from engine.serving.served_pair import Inexact
from engine.serving.swap import SwapPhase, SwapStatus
from tests.fake_engine import FakeEngine
from ui.controls import Options
from ui.html.render import both
from ui.models import page as models
from ui.models.names import MAX_NAME, NotAllowed, display_name, hide_folder, locate, offered_names
from ui.strings import TEXT
from ui.strings.models import CHINESE

FACTS = FakeEngine().facts()


def card(*diagnostics: Diagnostic, parts: tuple[tuple[str, float], ...] = (), free: float | None = None) -> str:
    needs = sum(mib for _, mib in parts)
    return models.card(Report(worst(diagnostics), diagnostics, None, None, needs, free, parts, "ngram"))


def filled(code: str) -> Diagnostic:
    """A finding whose values are easily told from anything else."""
    return diagnose(code, **{name: f"<{name}>" for name in DIAGNOSTIC_TEXTS[code].fields})


def test_whatever_can_be_found_says_all_its_values_escaped_in_both_languages() -> None:
    assert set(CHINESE) == set(DIAGNOSTIC_TEXTS)
    for code, sentence in DIAGNOSTIC_TEXTS.items():
        shown = card(filled(code))
        assert (f"check.{code}.try" in TEXT) == bool(sentence.advice) == (both("models.try") in shown), code
        for name in sentence.fields:
            assert shown.count(f"&lt;{name}&gt;") >= 2 and f"<{name}>" not in shown, (code, name)
    unknown = card(Diagnostic("new", FitLevel.SLOW, "It is <new>.", "Wait & see.", ()))
    assert "It is &lt;new&gt;." in unknown and "Wait &amp; see." in unknown, "as the engine put it"
    words = card(diagnose("memory_short", needs="5 GiB", free="3 GiB", where="memory"))
    assert "内存只剩" in words and "3 GiB of memory is free" in words


def test_the_worst_comes_first_and_gives_the_verdict() -> None:
    shown = card(*map(filled, ("no_chat_template", "not_found", "drafter_larger")))
    places = [shown.index(both(f"models.level.{verdict}")) for verdict in ("cannot", "slow", "fits")]
    assert places == sorted(places) and both("models.verdict.cannot") in shown
    assert both("models.verdict.slow") in card(*map(filled, ("memory_beside", "no_chat_template")))
    assert both("models.verdict.fits") in card(filled("no_chat_template")) and worst(()) is FitLevel.FITS


def test_the_bar_of_memory_is_to_scale_with_what_is_free() -> None:
    parts = (("target", 60.0), ("drafter", 30.0), ("cache", 10.0))
    for free, scale, limits in ((None, 1, []), (50.0, 1, ["50.00"]), (100.0, 1, []), (400.0, 4, [])):
        shown = card(parts=parts, free=free)
        assert re.findall(r"width: ([\d.]+)%", shown) == [f"{mib / scale:.2f}" for _, mib in parts]
        assert re.findall(r"left: ([\d.]+)%", shown) == limits
        assert (both("models.part.free") in shown) == (free == 400.0)
    assert "memory" not in card()


def test_sizes_in_few_figures() -> None:
    counts = (999, 134_515_008, 8_190_735_360, 10**12)
    assert [models.parameter_count(count) for count in counts] == ["999", "135M", "8.2B", "1000.0B"]
    sizes = (9.94, 999, 1024, 18_500, 200 * 1024)
    assert [models.size(mib) for mib in sizes] == ["9.9 MiB", "999 MiB", "1.0 GiB", "18.1 GiB", "200 GiB"]


def test_all_that_is_true_of_the_pair_is_said_and_escaped() -> None:
    values = {"target": "<b>", "weights": "W<", "kernel": "K<", "device": "cuda:0", "drafter_name": "D<"}
    shown = models.in_use(replace(FACTS, **values))  # type: ignore[arg-type]
    assert all(escape(value) in shown for value in values.values()) and both("pair.context.is", count=8192) in shown
    usual = models.in_use(FACTS)
    assert both("pair.device.cpu", device="cpu", threads=2) in usual and both("pair.exact.yes") in usual
    for why in get_args(Inexact):
        words = both("pair.exact.no" + (f".{why}" if why else ""), device="cpu")
        assert words in models.in_use(replace(FACTS, exact=False, inexact=why))


def test_every_phase_has_words_and_says_what_it_waits_for() -> None:
    for phase in (phase for phase in SwapPhase if not SwapStatus(phase, EngineConfig()).over):
        for writing in (0, 2):
            status = SwapStatus(phase, EngineConfig(), "load", 0.25)
            said = models.going(status, "<i>new</i>", 12.4, 40, writing)
            assert said["going"] and said["bar"] == 0.25 and "<b><i>new</i></b>" in said["title"]
            assert both("models.so_far", seconds=12) in said["far"] and "25 %" in said["far"]
            waits = both("models.phase.waiting" if phase is SwapPhase.WAITING else "models.waits", count=2)
            assert (waits in said["far"] + said["while"]) == bool(writing)
            room = models.going(replace(status, made_room=True), "x", 0, None, writing)
            for key, one in (("models.meanwhile", said), ("models.instead", room)):
                assert both(key) in one["while"] and both(key) not in (said if one is room else room)["while"]


def test_the_table_has_every_pair_and_says_what_is_free() -> None:
    shown = models.presets(Machine(free_mib=4096, gpu_free_mib=8000))
    assert shown.count("<tr>") == len(MODEL_PRESETS) + 1
    for pair in MODEL_PRESETS:
        for value in (pair.target, pair.drafter, pair.quant, pair.drafter_quant, pair.device):
            assert f'"{value}"' in shown and models.size(pair.needs_mib) in shown
    assert both("models.free.gpu", free="7.8 GiB") in shown and both("models.free.memory", free="4.0 GiB") in shown
    short = [pair for pair in MODEL_PRESETS if pair.needs_mib > (4096 if pair.device == "cpu" else 8000)]
    assert shown.count(both("models.short")) == len(short) > 0
    assert both("models.free.unknown") in models.presets(Machine(free_mib=None))


def test_served_to_others_the_page_says_what_may_be_loaded(tmp_path: Path) -> None:
    (tmp_path / 'a"b.gguf').write_bytes(b"")
    served = models.models(Options(served=True, models_folder=str(tmp_path)))
    assert both("models.served") in served and 'value="a&quot;b.gguf"' in served and str(tmp_path) not in served
    assert both("models.served") not in models.models(Options())
    config = EngineConfig("owner/model", "ngram", quant="nf4", device="cuda", compute="bf16")
    wish = models.wish_of(config, Options())
    assert wish and tuple(wish) == models.FIELDS and EngineConfig(**wish) == config  # type: ignore[arg-type]
    assert models.wish_of(config, Options(served=True)) is None


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
