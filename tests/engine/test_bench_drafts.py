"""What the benchmark tells of drafts, on made-up rounds; and the drafter that is useless on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.bench.drafts import acceptance, auto_speedups, draft_figures, draft_table
from engine.bench.pairs import report_of, run_pairs
from engine.bench.random_drafter import RandomDrafter, RandomDraftsEngine
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, EngineConfig, Rule, SamplingParams
from engine.drafters.ngram import NgramDrafter
from engine.drafters.protocol import DraftContext
from engine.events import KReason, Outcome, Round, RoundKind, Source, Token, TokenDecision
from engine.rng import KeyedRng
from engine.serving.load_pair import ModelPair
from tests.fakes import FakeLoaded, FakeNetwork, byte_tokenizer, fake_engine, hashed_logits

LANGUAGE = hashed_logits(257, seed=21)
GREEDY = SamplingParams(seed=0)
RNG = KeyedRng(0, Rule.REJECTION)


def round_(
    drafter: str,
    fates: str,
    position: int = 0,
    kind: RoundKind = RoundKind.SPECULATIVE,
    reason: KReason = KReason.AUTO,
    predicted: float | None = None,
    total_s: float = 0.01,
) -> Round:
    """fates: a letter for each draft, + accepted, - rejected, . discarded."""
    outcomes = {"+": Outcome.ACCEPTED, "-": Outcome.REJECTED, ".": Outcome.DISCARDED}
    decisions = tuple(TokenDecision(1, "", position + i, outcomes[fate], 1.0) for i, fate in enumerate(fates))
    tokens = tuple(Token(1, "", position + i, Source.PLAIN) for i in range(fates.count("+") + 1))
    return Round(
        1, kind, Rule.REJECTION, drafter, len(fates), reason, len(fates), 10 + position, decisions, tokens,
        0.0, 0.0, 0.0, total_s, predicted_speedup=predicted,
    )  # fmt: skip


def test_drafts_are_counted_by_drafter_and_by_place() -> None:
    rounds = [
        round_("head", "++-.", position=62),
        round_("ngram", "-", position=200),
        round_("none", "", position=201, reason=KReason.NO_OFFER),
        round_("none", "", position=202, kind=RoundKind.PLAIN, reason=KReason.OFF),
        round_("head", "+", position=600),
    ]
    found = draft_figures(rounds, 100.0)
    assert found["mean_k"] == pytest.approx(6 / 4) and found["plain_by_choice"] == pytest.approx(1 / 5)
    assert found["drafters"] == {
        "head": {"rounds": 2, "drafted": 5, "tested": 4, "accepted": 3, "acceptance": 0.75},
        "ngram": {"rounds": 1, "drafted": 1, "tested": 1, "accepted": 0, "acceptance": 0.0},
    }
    counted = {place: (row["accepted"], row["tested"]) for place, row in found["positions"].items()}
    assert counted == {"0-63": (2, 2), "64-127": (0, 1), "128-255": (0, 1), "512-": (1, 1)}
    shown = draft_table({"qa": found, "rag": draft_figures([], None)})
    assert "3/4 0.75" in shown and "0/1 0.00" in shown and "20%" in shown and "512-" in shown
    assert "256-511" not in shown, "nobody asks for what was not tested"
    assert acceptance(None) == "-"


def test_the_prediction_is_held_against_the_rounds_that_it_was_about() -> None:
    rounds = [
        round_("head", "++", predicted=2.0, total_s=0.02),  # three tokens
        round_("head", "-", predicted=1.0, total_s=0.01),  # one
        round_("ngram", "-", predicted=5.0, reason=KReason.EXPLORE),
        round_("none", "", predicted=0.5, kind=RoundKind.PLAIN, reason=KReason.OFF),
        round_("head", "++++"),  # K was fixed
    ]
    predicted, measured = auto_speedups(rounds, 100.0)
    assert predicted == pytest.approx((2.0 * 0.02 + 1.0 * 0.01) / 0.03)
    assert measured == pytest.approx(4 / 0.03 / 100.0)
    assert auto_speedups(rounds[2:], 100.0) == (None, None) and auto_speedups(rounds, None)[1] is None


def test_the_report_tells_of_drafts_by_category() -> None:
    engine = fake_engine(lambda ids: LANGUAGE(ids[-1:]))
    params = DecodingParams(SamplingParams(seed=3), "ngram", 3, max_new_tokens=30)
    runs = run_pairs(engine, [BenchPrompt("qa", "a"), BenchPrompt("rag", "b")], params, lambda line: None)
    report = report_of(runs)
    assert list(report["drafts"]) == ["qa", "rag", "overall"]
    total = report["drafts"]["overall"]["drafters"]["ngram"]
    assert total["drafted"] == sum(r.num_drafted for run in runs for r in run.spec.rounds) > 0
    assert total["acceptance"] == pytest.approx(report["overall"]["alpha"])
    engine.close()


# -- useless -----------------------------------------------------------------------------------------------------------


def test_a_useless_drafter_keeps_offers_and_counts_and_replaces_tokens() -> None:
    real, useless = NgramDrafter(), RandomDrafter(NgramDrafter(), 50_000, seed=1)
    text = [5, 6, 7, 8, 5, 6, 7]
    assert useless.options(text) == real.options(text) != ()
    [option] = useless.options(text)
    made = useless.propose(option, DraftContext(text, 3, None, GREEDY, RNG), 4)
    assert len(made.token_ids) == 4 and made.probs is None and all(0 <= i < 50_000 for i in made.token_ids)
    assert made.token_ids != real.propose(option, DraftContext(text, 3, None, GREEDY, RNG), 4).token_ids
    assert made == useless.propose(option, DraftContext(text, 3, None, GREEDY, RNG), 4), "the same again"
    assert made != RandomDrafter(NgramDrafter(), 50_000, seed=2).propose(
        option, DraftContext(text, 3, None, GREEDY, RNG), 4
    )
    other = useless.propose(option, DraftContext([*text, 8], 3, None, GREEDY, RNG), 4)
    assert not set(other.token_ids) & set(made.token_ids), "other places, other guesses"


@pytest.fixture
def engine() -> Iterator[RandomDraftsEngine]:
    def load(config: EngineConfig, progress: object) -> ModelPair:
        return ModelPair(FakeLoaded(FakeNetwork(257, lambda ids: LANGUAGE(ids[-1:])), byte_tokenizer()))  # type: ignore[arg-type]

    made = RandomDraftsEngine(EngineConfig(), 0, load)
    made.wait_ready(60)
    yield made
    made.close()


@pytest.mark.parametrize("k", [3, None])
@pytest.mark.parametrize(("rule", "temperature"), [(Rule.REJECTION, 0.0), (Rule.SHARED_NOISE, 1.0)])
def test_useless_guesses_are_tested_refused_and_leave_the_text(
    engine: RandomDraftsEngine, k: int | None, rule: Rule, temperature: float
) -> None:
    params = DecodingParams(SamplingParams(temperature=temperature, seed=3), "auto", k, rule, 120)
    runs = run_pairs(engine, [BenchPrompt("qa", f"p{i}") for i in range(3)], params, lambda line: None)
    assert all(run.first_difference is None for run in runs)
    [found] = report_of(runs)["drafts"]["overall"]["drafters"].values()
    assert found["tested"] > 3 and found["acceptance"] < 0.1
