"""What the tab "Models" says: the pair in use, what a check found, a change, the known pairs. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.loading.model_presets import MODEL_PRESETS
from engine.preflight.check import Report
from engine.preflight.diagnostics import DIAGNOSTIC_TEXTS, Diagnostic, FitLevel, diagnose, worst
from engine.preflight.memory import Machine
from engine.serving.served_pair import Facts
from engine.serving.swap import SwapPhase, SwapStatus
from tests.fake_engine import FakeEngine
from ui.controls import Options
from ui.html.render import both
from ui.models import page as models
from ui.strings import LANGS, TEXT
from ui.strings.models import CHINESE

FACTS = FakeEngine().facts()


def report(*codes: str, parts: tuple[tuple[str, float], ...] = (), free: float | None = None) -> Report:
    diagnostics = tuple(filled(code) for code in codes)
    needs = sum(mib for _, mib in parts)
    return Report(worst(diagnostics), diagnostics, None, None, needs, free, parts, "ngram")


def filled(code: str) -> Diagnostic:
    """A finding whose values are easily told from anything else."""
    return diagnose(code, **{name: f"<{name}>" for name in DIAGNOSTIC_TEXTS[code].fields})


# -- what a check found


def test_whatever_can_be_found_has_words_in_both_languages() -> None:
    assert set(CHINESE) == set(DIAGNOSTIC_TEXTS)
    for code, sentence in DIAGNOSTIC_TEXTS.items():
        assert f"check.{code}" in TEXT and (f"check.{code}.try" in TEXT) == bool(sentence.advice), code


@pytest.mark.parametrize("code", DIAGNOSTIC_TEXTS)
def test_a_finding_says_all_its_values_escaped(code: str) -> None:
    shown = models.card(report(code))
    for name in DIAGNOSTIC_TEXTS[code].fields:
        assert shown.count(f"&lt;{name}&gt;") >= 2, name  # in each language
    assert "<" + next(iter(DIAGNOSTIC_TEXTS[code].fields), "nothing") + ">" not in shown
    assert bool(DIAGNOSTIC_TEXTS[code].advice) == (both("models.try") in shown)


def test_a_finding_that_nobody_knows_here_stands_as_the_engine_put_it() -> None:
    diagnostic = Diagnostic("new", FitLevel.SLOW, "It is <new>.", "Wait & see.", ())
    shown = models.card(replace(report(), diagnostics=(diagnostic,), verdict=FitLevel.SLOW))
    assert "It is &lt;new&gt;." in shown and "Wait &amp; see." in shown


def test_the_worst_comes_first_and_gives_the_verdict() -> None:
    shown = models.card(report("no_chat_template", "not_found", "drafter_larger"))
    places = [shown.index(both(f"models.level.{verdict}")) for verdict in ("cannot", "slow", "fits")]
    assert places == sorted(places) and both("models.verdict.cannot") in shown
    assert both("models.verdict.fits") in models.card(report("no_chat_template"))


def test_words_among_the_values_are_said_in_each_language() -> None:
    shown = models.card(
        replace(report(), diagnostics=(diagnose("memory_short", needs="5 GiB", free="3 GiB", where="memory"),))
    )
    assert "内存只剩" in shown and "3 GiB of memory is free" in shown


@pytest.mark.parametrize("free", [None, 50.0, 100.0, 400.0])
def test_the_bar_of_memory_is_to_scale_with_what_is_free(free: float | None) -> None:
    parts = (("target", 60.0), ("drafter", 30.0), ("cache", 10.0))
    shown = models.card(report(parts=parts, free=free))
    whole = max(100.0, free or 0.0)
    widths = [float(width) for width in re.findall(r"width: ([\d.]+)%", shown)]
    assert widths == [round(mib / whole * 100, 2) for _, mib in parts]
    limits = [float(left) for left in re.findall(r"left: ([\d.]+)%", shown)]
    assert limits == ([50.0] if free == 50.0 else [])
    assert (both("models.part.free") in shown) == (free == 400.0)
    assert "memory" not in models.card(report())


def test_what_fits_without_the_pair_in_use_is_no_refusal() -> None:
    assert report("memory_beside", "no_chat_template").verdict is FitLevel.SLOW
    assert report("memory_beside", "not_found").verdict is FitLevel.CANNOT
    assert report().verdict is FitLevel.FITS


@pytest.mark.parametrize(
    ("count", "said"), [(999, "999"), (134_515_008, "135M"), (8_190_735_360, "8.2B"), (10**12, "1000.0B")]
)
def test_parameters_as_people_say_them(count: int, said: str) -> None:
    assert models.parameter_count(count) == said


@pytest.mark.parametrize(("mib", "said"), [(0.0, "0.0 MiB"), (9.94, "9.9 MiB"), (300, "300 MiB"), (999, "999 MiB"), (1024, "1.0 GiB"),
                                           (18_500, "18.1 GiB"), (200 * 1024, "200 GiB")])  # fmt: skip
def test_sizes_in_few_figures(mib: float, said: str) -> None:
    assert models.size(mib) == said


# -- the pair in use


def test_all_that_is_true_of_the_pair_is_said_and_escaped() -> None:
    facts = replace(
        FACTS,
        target="<b>",
        weights="W<",
        kernel="K<",
        device="cuda:0",
        drafter_name="D<",
        exact=False,
        inexact="device",
    )
    shown = models.in_use(facts)
    assert (
        "<b>&lt;b&gt;</b>" in shown and "W&lt;" in shown and "K&lt;" in shown and "D&lt;" in shown and "cuda:0" in shown
    )
    assert both("pair.exact.no.device", device="cuda:0") in shown and both("pair.context.is", count=8192) in shown
    assert both("pair.device.cpu", device="cpu", threads=2) in models.in_use(FACTS)
    assert both("pair.exact.yes") in models.in_use(FACTS)


@pytest.mark.parametrize("why", ["device", "transformers", "kernel", ""])
def test_every_reason_against_exactness_has_words(why: str) -> None:
    facts: Facts = replace(FACTS, exact=False, inexact=why)
    assert both("pair.exact.no" + (f".{why}" if why else ""), device="cpu") in models.in_use(facts)


# -- a change


@pytest.mark.parametrize("phase", [phase for phase in SwapPhase if not SwapStatus(phase, EngineConfig()).over])
@pytest.mark.parametrize("writing", [0, 2])
def test_every_phase_has_words_and_says_what_it_waits_for(phase: SwapPhase, writing: int) -> None:
    said = models.going(SwapStatus(phase, EngineConfig(), "load", 0.25), "<i>new</i>", 12.4, 40, writing)
    assert (
        said["going"]
        and said["bar"] == 0.25
        and both("models.so_far", seconds=12) in said["far"]
        and "25 %" in said["far"]
    )
    assert said["title"].count("<b><i>new</i></b>") == len(LANGS)
    told = both("models.phase.waiting", count=2) if phase is SwapPhase.WAITING else both("models.waits", count=2)
    assert (told in said["far"] + said["while"]) == bool(writing)
    assert both("models.meanwhile") in said["while"]
    made_room = models.going(SwapStatus(phase, EngineConfig(), made_room=True), "x", 0, None, writing)
    assert both("models.instead") in made_room["while"] and both("models.meanwhile") not in made_room["while"]


def test_what_came_of_it_is_said() -> None:
    ended = {phase: models.over(SwapStatus(phase, EngineConfig(), message="It <broke>."), "new", 3.2)["title"]
             for phase in (SwapPhase.DONE, SwapPhase.FAILED, SwapPhase.CANCELLED)}  # fmt: skip
    assert "<b>new</b>" in ended[SwapPhase.DONE] and "3 s" in ended[SwapPhase.DONE]
    assert both("models.failed", message="It <broke>.") in ended[SwapPhase.FAILED]
    assert ended[SwapPhase.CANCELLED] == both("models.cancelled")


# -- the known pairs, and the frame


def test_the_table_has_every_pair_and_says_what_is_free() -> None:
    shown = models.presets(Machine(free_mib=4096, gpu_free_mib=8000))
    assert shown.count("<tr>") == len(MODEL_PRESETS) + 1 and shown.count(both("models.chinese")) == sum(
        p.chinese for p in MODEL_PRESETS
    )
    for pair in MODEL_PRESETS:
        assert f"pair.{pair.name}" in TEXT and models.size(pair.needs_mib) in shown
        for value in (pair.target, pair.drafter, pair.quant, pair.drafter_quant, pair.device):
            assert f'"{value}"' in shown
    assert both("models.free.gpu", free="7.8 GiB") in shown and both("models.free.memory", free="4.0 GiB") in shown
    assert shown.count(both("models.short")) == sum(
        pair.needs_mib > (4096 if pair.device == "cpu" else 8000) for pair in MODEL_PRESETS
    )
    assert both("models.free.no_gpu") in models.presets(Machine(free_mib=4096))
    assert both("models.free.unknown") in models.presets(Machine(free_mib=None))


def test_served_to_others_the_page_says_what_may_be_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("models")
    (folder / 'a"b.gguf').write_bytes(b"")
    served = models.models(Options(served=True, models_folder=str(folder)))
    assert both("models.served") in served and 'value="a&quot;b.gguf"' in served and str(folder) not in served
    assert both("models.served") not in models.models(Options())
    for shown in (served, models.models(Options())):
        assert "trust" not in shown and "pickle" not in shown


def test_the_wish_for_a_pair_is_what_the_form_holds() -> None:
    config = EngineConfig("owner/model", "ngram", quant="nf4", device="cuda", compute="bf16")
    wish = models.wish_of(config, Options())
    assert wish is not None and tuple(wish) == models.FIELDS
    assert replace(EngineConfig(), **wish) == config
    assert models.wish_of(config, Options(served=True)) is None
