"""A world of made-up costs and acceptance for the controller: a reply takes no time and gives the same figures each
time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from engine.config import MAX_K, DecodingParams, Rule
from engine.control.controller import Controller, Plan
from engine.control.latency import Profile
from engine.drafters.protocol import DraftOption
from engine.events import Outcome, Round, RoundKind, Source, Token, TokenDecision

HEAD, COPY = DraftOption("head", "head"), DraftOption("ngram", "ngram 3-4")

NO_DECISION = TokenDecision(0, "", 0, Outcome.DISCARDED, 0.5)
TOKEN = Token(0, "", 0, Source.PLAIN)


def flat(rows: int) -> float:
    """What a kernel takes that reads the weights once for all rows."""
    return 1.0 + 0.05 * (rows - 1)


@dataclass
class World:
    """What is true. plain_s: seconds of a plain round; rows: cost of so many rows in plain rounds; draft: of one draft.

    accept: by kind of offer, the chance that a draft at this position stands. confident: kinds whose drafter says how
    sure it is: then the chances scatter from draft to draft around `accept`, and what it says is right, unless it
    boasts. copies: how often there is something to copy. change: called before every round with the number of tokens so
    far.
    """

    rows: Callable[[int], float] = flat
    draft: dict[str, float] = field(default_factory=lambda: {"head": 0.1, "ngram": 0.002})
    accept: Mapping[str, Sequence[float]] = field(default_factory=dict)
    confident: tuple[str, ...] = ("head",)
    copies: float = 0.3
    boast: float | None = None
    plain_s: float = 0.01
    noise: float = 0.03
    change: Callable[[World, int], None] = lambda world, tokens: None

    def profile(self, **more: object) -> Profile:
        """As the engine would have measured them."""
        rows = tuple((rows, self.plain_s * self.rows(rows)) for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17))
        return Profile(rows, tuple((name, share * self.plain_s) for name, share in self.draft.items()), **more)  # type: ignore[arg-type]


@dataclass
class Played:
    """One reply: its plans, rounds, and the tokens before each; seconds and tokens without probes."""

    begins: list[int] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0

    @property
    def tok_s(self) -> float:
        return self.tokens / self.seconds


def simulate(world: World, params: DecodingParams, profile: Profile, n: int, seed: int = 0) -> Played:
    """A reply of n tokens."""
    rng, controller, played = Random(seed), Controller(params, profile), Played()
    done, index = 0, 1
    while done < n:
        world.change(world, done)
        options = tuple(
            o for o in (COPY, HEAD) if o.kind in world.accept and (o is HEAD or rng.random() < world.copies)
        )
        plan = controller.plan(index, options, n - done, 10_000, None)
        round_, confidences = play(world, plan, rng, index)
        controller.observe(round_, plan, confidences)
        played.begins.append(done)
        played.plans.append(plan)
        played.rounds.append(round_)
        emitted = min(len(round_.tokens), n - done)
        done += emitted
        index += 1
        if round_.kind is not RoundKind.PROBE:
            played.tokens += emitted
            played.seconds += round_.total_s
    return played


def play(world: World, plan: Plan, rng: Random, index: int) -> tuple[Round, tuple[float, ...]]:
    chances: list[float] = []
    confidences: tuple[float, ...] = ()
    kind = plan.option.kind if plan.option else ""
    while plan.option and len(chances) < plan.k:
        if confidences and not plan.should_continue(confidences):
            break
        mean = world.accept[kind][min(len(chances), len(world.accept[kind]) - 1)]
        chance = mean
        if kind in world.confident:
            chance = rng.betavariate(3 * mean, 3 * (1 - mean)) if 0 < mean < 1 else mean
            confidences += (chance if world.boast is None else world.boast,)
        chances.append(chance)
    stood = 0
    while stood < len(chances) and rng.random() < chances[stood]:
        stood += 1
    fates = [Outcome.ACCEPTED] * stood + [Outcome.REJECTED] + [Outcome.DISCARDED] * MAX_K
    decisions = tuple(TokenDecision(0, "", 0, fate, 0.5) for fate in fates[: len(chances)])
    drafter = plan.option.drafter if plan.option else "none"
    draft_s = world.plain_s * world.draft.get(drafter, 0.0) * len(chances)
    rest_s = world.plain_s * world.rows(len(chances) + 1) * rng.uniform(1 - world.noise, 1 + world.noise)
    round_ = Round(
        index, plan.kind, Rule.REJECTION, drafter, plan.k, plan.reason, len(chances), 9, decisions,
        (TOKEN,) * (stood + 1), draft_s, rest_s, 0.0, draft_s + rest_s,
    )  # fmt: skip
    return round_, confidences
