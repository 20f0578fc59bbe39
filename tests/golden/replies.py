"""Replies of real and of tiny models under every rule, drafter and K; races, experiments, and chats in turn."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.bench.random_drafter import RandomDraftsEngine
from engine.config import DecodingParams, Detail, EngineConfig, Message, Rule, SamplingParams
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.events import Prefilled
from engine.lab import LoadLab
from engine.lab.results import ExperimentName, Result
from engine.loading.progress import Progress
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine
from engine.serving.load_pair import ModelPair, load_pair
from tests.engine import tokenisers
from tests.engine.simulate import World, simulate
from tests.engine.test_reencoded import ALL, PROMPT, SCRIPT, Spoken, drafter, model
from tests.engine.tiny_folders import write_folder
from tests.engine.tiny_ggufs import random_model
from tests.fakes import FakeNetwork, Scripted, byte_tokenizer, fake_engine, hashed_logits, noisy, run
from tests.golden.clock import CLOCK
from tests.golden.items import Item, plain

THREADS = 2

PROMPTS: dict[str, list[Message]] = {
    name: [Message("assistant" if i % 2 else "user", said) for i, said in enumerate(turns)]
    for name, turns in json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8")).items()
}
LONG = [Message("user", "Repeat: " + "one two three 四五六 " * 50)]
"""A prompt that is read in several pieces; in the native replies from the cache from the second on."""

EVERY = 4
"""The first so many prompts are answered in every way, each of the others in every third, all of which take turns."""

WAYS = {
    "greedy": (SamplingParams(seed=1), Rule.REJECTION),
    "rejection": (SamplingParams(1.0, seed=2), Rule.REJECTION),
    "shared_noise": (SamplingParams(1.0, seed=3), Rule.SHARED_NOISE),
}
KS = {"k3": 3, "k7": 7, "auto": None}

VOCAB = 257
LANGUAGE = hashed_logits(VOCAB, seed=5)


def items() -> Iterator[Item]:
    yield from _simulated()
    yield from _fakes()
    yield from _scripted()
    yield from _reencoded()
    yield from _folders()
    yield from _native()
    yield from _torch()


# -- engines, and how they are asked -----------------------------------------------------------------------------------


def loaded(config: EngineConfig, progress: Progress) -> ModelPair:
    with CLOCK.held():
        return load_pair(config, progress)


def config(**more: Any) -> EngineConfig:
    return EngineConfig(**{"device": "cpu", "threads": THREADS, "offline": True} | more)


def events(engine: Engine, said: Sequence[Message], params: DecodingParams, chat: str = "") -> list[Any]:
    """K left open depends on times, and so has them."""
    told = list(engine.stream(said, params, chat))
    return _told(told, params)


def _told(told: Sequence[Any], params: DecodingParams) -> list[Any]:
    timed = params.num_speculative_tokens is None
    return [plain(replace(one, queued_s=0.0) if isinstance(one, Prefilled) else one, timed) for one in told]


def grid(drafters: Sequence[str], tokens: int) -> dict[str, DecodingParams]:
    """Every rule with every K and drafter."""
    found: dict[str, DecodingParams] = {}
    for way, (sampling, rule) in WAYS.items():
        found[f"none/{way}/k0"] = DecodingParams(sampling, drafters[0], 0, rule, tokens)
        for drafter_, (k, number) in itertools.product(drafters, KS.items()):
            found[f"{drafter_}/{way}/{k}"] = DecodingParams(sampling, drafter_, number, rule, tokens)
    return found


def answered(
    begins: str, engine: Engine, ways: dict[str, DecodingParams], names: Sequence[str], every: int = EVERY
) -> Iterator[Item]:
    for number, name in enumerate(names):
        for turn, (way, params) in enumerate(ways.items()):
            if number < every or (number + turn) % 3 == 0:
                yield f"{begins}/{way}/{name}", events(engine, PROMPTS[name], params)


def special(drafter_: str, tokens: int) -> dict[str, DecodingParams]:
    """What else a request can ask for, greedy and sampled."""
    usual = DecodingParams(SamplingParams(seed=4), drafter_, 7, Rule.REJECTION, tokens)
    warm = replace(usual.sampling, temperature=0.8)

    def sampled(**more: Any) -> DecodingParams:
        return replace(usual, sampling=replace(warm, **more))

    penalties = {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": -0.3}
    bias = ((101, 4.0), (28, -100.0), (216, 2.5))
    found = {
        "top_k": sampled(top_k=20), "top_p": sampled(top_p=0.8), "min_p": sampled(min_p=0.1),
        "filters": sampled(top_k=40, top_p=0.9, min_p=0.02, temperature=1.5),
        "penalties": sampled(**penalties), "bias": sampled(logit_bias=bias),
        "greedy penalties": replace(usual, sampling=replace(usual.sampling, **penalties)),
        "greedy bias": replace(usual, sampling=replace(usual.sampling, logit_bias=bias)),
        "greedy shared noise": replace(usual, rule=Rule.SHARED_NOISE),
        "filters, shared noise": replace(sampled(top_k=40, top_p=0.9, repetition_penalty=1.1), rule=Rule.SHARED_NOISE),
        "no probes": replace(usual, probe_every=0), "probes": replace(usual, probe_every=2),
        "probes, auto": replace(usual, probe_every=3, num_speculative_tokens=None),
        "no probes, auto": replace(usual, probe_every=0, num_speculative_tokens=None),
        "stop": replace(usual, stop=("the", " is", "\n")), "stop late": replace(usual, stop=("ion ", "。", ", and")),
        "k1": replace(usual, num_speculative_tokens=1), "k16": replace(usual, num_speculative_tokens=16),
    }  # fmt: skip
    found |= {f"{n} tokens": replace(usual, max_new_tokens=n) for n in (1, 2, 5, 9)}
    for name, detail in itertools.product(("greedy", "warm", "shared_noise"), (Detail.PROBS, Detail.FULL)):
        params = replace(usual, sampling=usual.sampling if name == "greedy" else warm, detail=detail)
        params = replace(params, rule=Rule.SHARED_NOISE) if name == "shared_noise" else params
        found[f"{name}, detail {detail.value}"] = params
    return found


def raced(engine: Engine, said: Sequence[Message], params: DecodingParams) -> dict[str, Any]:
    with engine.race(said, params) as race:
        return {
            name: _told(list(stream), params) for name, stream in (("plain", race.plain), ("other", race.speculative))
        }


def measured(engine: Engine, name: ExperimentName, xs: Sequence[float]) -> list[Any]:
    """All reports but the last one's date and the machine's name; seconds are the clock's."""
    told = list(LoadLab(engine).experiment(name, xs, repeats=2))
    return [plain(replace(one, made="", machine=()) if isinstance(one, Result) else one, timed=True) for one in told]


# -- the default model -------------------------------------------------------------------------------------------------


def _native() -> Iterator[Item]:
    names = list(PROMPTS)
    with closing(Engine(config(kernel="native"), loaded)) as engine:
        engine.wait_ready()
        yield "native/facts", engine.facts()
        yield "native/costs", LoadLab(engine).experiments()
        yield from answered("native", engine, grid(("ngram", "head", "both"), 24), names)
        ways = {f"special/{key}": params for key, params in special("both", 24).items()}
        yield from answered("native", engine, ways, ["edit", "story", "chinese copy", "quote"], every=2)
        ways = {f"head special/{key}": params for key, params in special("head", 16).items()}
        yield from answered("native", engine, ways, ["again", "poem"], every=1)
        for way, params in grid(("both",), 16).items():
            yield f"native/long/{way}", events(engine, LONG, params, "long")
        yield from _in_turn(engine)
        for name, (way, params) in itertools.product(("edit", "two turns"), grid(("both",), 24).items()):
            if params.num_speculative_tokens != 0:
                yield f"native/race/{way}/{name}", raced(engine, PROMPTS[name], params)
        yield "native/lab/rate", measured(engine, ExperimentName.RATE, (1, 3))
        yield "native/lab/k", measured(engine, ExperimentName.K, (3,))
    with closing(RandomDraftsEngine(config(kernel="native"), 9, loaded)) as engine:
        engine.wait_ready()
        yield from answered("native useless", engine, grid(("both",), 24), ["greeting", "edit", "chinese list"], 1)


def _in_turn(engine: Engine) -> Iterator[Item]:
    """Two chats whose replies are written at once, each of two turns: what the caches keep of the first is used
    again."""
    for way, params in grid(("both", "ngram"), 20).items():
        chats = {name: list(PROMPTS[name]) for name in ("capital", "list")}
        for turn in (1, 2):
            streams = {name: engine.stream(said, params, f"{way} {name}") for name, said in chats.items()}
            for name, stream in streams.items():
                told = list(stream)
                yield f"native/in turn/{way}/{name} {turn}", _told(told, params)
                chats[name] += [Message("assistant", told[-1].text), Message("user", "Tell me more.")]


def _torch() -> Iterator[Item]:
    for quant in ("gguf", "bf16"):
        with closing(Engine(config(kernel="torch", quant=quant), loaded)) as engine:
            engine.wait_ready()
            yield f"torch {quant}/facts", engine.facts()
            ways = grid(("head", "both"), 10)
            ways |= {f"special/{k}": p for k, p in special("both", 10).items() if k in ("filters", "warm, detail full")}
            yield from answered(f"torch {quant}", engine, ways, ["capital", "edit"], every=0)


# -- tiny models and made-up languages ---------------------------------------------------------------------------------


def _folders() -> Iterator[Item]:
    """Random models from files: a drafter of the same tokens, one of others, and one that runs on transformers."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        target, same = write_folder(home / "target"), write_folder(home / "same", seed=1, num_hidden_layers=1)
        other = write_folder(home / "other", tokenisers.byte_fallback(), seed=2)
        short = write_folder(home / "short", max_position_embeddings=96)
        gemma = write_folder(home / "gemma")
        random_model("gemma3", sliding_window=16).save_pretrained(gemma)
        for name, pair in {"itself": (target, target), "another": (target, same), "re-encoded": (target, other),
                           "re-encoding": (other, target), "short": (short, same), "short drafter": (target, short),
                           "transformers": (gemma, gemma)}.items():  # fmt: skip
            own = config(target=str(pair[0]), drafter=str(pair[1]), quant="fp32", drafter_quant="fp32")
            with closing(Engine(own, loaded)) as engine:
                engine.wait_ready()
                ways = grid(("draft_model", "ngram"), 24) | {f"special/{k}": p for k, p in special("auto", 24).items()}
                prompts = ["capital", "choice"] if "short" in name else ["greeting", "chinese", "emoji"]
                yield from answered(f"folders/{name}", engine, ways, prompts, every=1)


def _fakes() -> Iterator[Item]:
    """Languages of bytes that are right to a degree, by the real engine."""
    near, far = noisy(LANGUAGE, VOCAB, 0.3), noisy(LANGUAGE, VOCAB, 2.0)
    with closing(fake_engine(LANGUAGE, near, far)) as engine:
        ways = grid(("ngram", "head", "both", "draft_model"), 40)
        ways |= {f"special/{key}": params for key, params in special("draft_model", 40).items()}
        ways |= {f"head special/{key}": params for key, params in special("both", 40).items()}
        yield from answered("fakes", engine, ways, ["capital", "again", "chinese"], every=1)
        for way, params in grid(("draft_model", "both"), 16).items():
            yield f"fakes/long/{way}", events(engine, LONG, params)
        for way, params in grid(("draft_model", "both"), 60).items():
            if params.num_speculative_tokens != 0:
                yield f"fakes/race/{way}", raced(engine, PROMPTS["again"], params)
        for name, xs in {ExperimentName.RATE: (1, 3), ExperimentName.LENGTH: (1, 16), ExperimentName.K: (4,), ExperimentName.TEMPERATURE: (0.0, 0.9),
                         ExperimentName.TEXT: (0,)}.items():  # fmt: skip
            yield f"fakes/lab/{name.value}", measured(engine, name, xs)


def _scripted() -> Iterator[Item]:
    """Ends of every kind, at every place of a block: a stop id, a stop string, the limit, the context, a cancel, a
    failure."""
    tokenizer, prompt = byte_tokenizer(), [60, 117, 62, 104, 105]
    script = "abcabcabcd 你好🙂 abcabc the end".encode()
    language = Scripted(script, len(prompt))
    for k, (way, (sampling, rule)) in itertools.product((0, 3, 7, None), WAYS.items()):
        params = DecodingParams(sampling, "draft_model", k, rule, 60, detail=Detail.FULL if k == 3 else Detail.OFF)
        ends: dict[str, Callable[[FakeNetwork], dict[str, Any]]] = {
            "stop id": lambda _, p=params: {"params": p},
            **{f"stop {s!r}": lambda _, p=params, s=s: {"params": replace(p, stop=(s,))} for s in ("b", "abcd", "好", "d ")},
            **{f"limit {n}": lambda _, p=params, n=n: {"params": replace(p, max_new_tokens=n)} for n in range(1, 20, 3)},
            **{f"context {n}": lambda _, p=params, n=n: {"params": p, "context": n} for n in range(6, 30, 3)},
            **{f"cancel {n}": lambda net, p=params, n=n: {"params": p, "cancelled": lambda: len(net.rows) >= n}
               for n in (0, 1, 2, 4)},
            "failure": lambda _, p=params: {"params": p, "language": _failing(language, len(prompt) + 12)},
        }  # fmt: skip
        for (end, how), who in itertools.product(ends.items(), ("ngram", "draft_model")):
            network = FakeNetwork(VOCAB, language)
            asked = {"context": 200, "cancelled": lambda: False, "language": language} | how(network)
            network.logits_of = asked["language"]
            own = Model(FakeNetwork(VOCAB, noisy(language, VOCAB, 2.0)), 60)
            by = NgramDrafter() if who == "ngram" else DraftModelDrafter(own, KVCache())
            target = Model(network, asked["context"])
            told = run(prompt, asked["params"], target, tokenizer, by, cancelled=asked["cancelled"])
            yield f"scripted/{end}/{who}/{way}/{'auto' if k is None else k}", [_told(told, params), network.rows]


def _failing(language: Callable[..., Any], length: int) -> Callable[..., Any]:
    def logits_of(ids: tuple[int, ...]) -> Any:
        if len(ids) > length:
            raise RuntimeError("it broke")
        return language(ids)

    return logits_of


def _reencoded() -> Iterator[Item]:
    """A drafter that knows what the target is going to say, in tokens of another kind."""
    for (name, target), (own_name, own) in itertools.product(ALL.items(), ALL.items()):
        prompt = target.encode_chat([PROMPT])
        for k, (way, (sampling, rule)) in itertools.product((3, 7, None), WAYS.items()):
            params = DecodingParams(sampling, "draft_model", k, rule, 40)
            guesses = drafter(own, target, Spoken(own, SCRIPT, len(own.encode_chat([PROMPT])), 1.0))
            told = run(prompt, params, model(target, Spoken(target, SCRIPT, len(prompt), 1.0)), target, guesses)
            yield f"reencoded/{name}/{own_name}/{way}/{'auto' if k is None else k}", _told(told, params)


def _simulated() -> Iterator[Item]:
    """The controller alone in made-up worlds."""
    worlds = {
        "good head": World(accept={"head": (0.8, 0.7, 0.6)}),
        "copies": World(accept={"head": (0.5,), "ngram 3-4": (0.7, 0.8)}, copies=0.6),
        "useless": World(accept={"head": (0.02,)}, boast=0.9),
        "dear rows": World(accept={"head": (0.7,)}, rows=lambda rows: 0.8 + 0.4 * rows),
        "changing": World(accept={"head": (0.7,)}, change=_worse),
    }
    for (name, world), k, seed in itertools.product(worlds.items(), (None, 3), (0, 1)):
        own = replace(world, accept=dict(world.accept))
        played = simulate(own, DecodingParams(num_speculative_tokens=k), own.profile(), 200, seed)
        yield f"simulated/{name}/{'auto' if k is None else k}/{seed}", [played.plans, played.tokens, played.seconds]


def _worse(world: World, tokens: int) -> None:
    world.accept["head"] = (0.7,) if tokens % 100 < 50 else (0.1,)
