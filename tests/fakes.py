"""Small, fast stand-ins for what a test does not mean to test. The network reads its context back out of the
cache that it was given, so a cache that is one entry off, or stale, changes its answers."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tokenizers
import torch
from torch import Tensor

from engine.config import DecodingParams, EngineConfig, Message
from engine.control.latency import Profile
from engine.decode import ReplyContext, generate
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.protocol import Drafter, Proposal, always
from engine.events import Event, Finished, Round
from engine.kernels.native_sampler import NativeSampler
from engine.networks.attention import Span
from engine.networks.kv_cache import KVCache
from engine.networks.model import Model
from engine.serving.engine import Engine
from engine.serving.load_pair import ModelPair
from engine.text.tokenizer import Tokenizer, build_tokenizer

END = "<|end|>"

LogitsOf = Callable[[tuple[int, ...]], np.ndarray]


class FakeNetwork:
    """logits = logits_of(ids so far), where the ids so far are what the cache holds (as keys, one number a position).

    The feature of every layer is the token's id, one number a position.
    """

    writes_features = True

    sampler: NativeSampler | None = None

    def __init__(self, vocab_size: int, logits_of: LogitsOf, padding: int = 3) -> None:
        self.vocab_size = vocab_size
        self.device = torch.device("cpu")
        self.weight_bytes = 0
        self.logits_of = logits_of
        self.padding = padding
        self.rows: list[int] = []  # rows of each pass, for tests that count work

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        self.rows.append(len(token_ids))
        logits = torch.full((len(token_ids), self.vocab_size + self.padding), 1e4)  # padding rows are tempting
        wanted = set(logit_rows.tolist())
        for span in spans:
            new = token_ids[span.row : span.row + span.count].double().reshape(1, -1, 1)
            keys, _ = span.cache.write(0, span.begin, new, new)
            for layer in span.cache.feature_layers if self.writes_features else ():
                span.cache.write_features(layer, span.begin, new[0])
            at = positions[span.row : span.row + span.count].tolist()
            assert at == list(range(span.begin, span.begin + span.count))
            context = tuple(map(int, keys[0, :, 0].tolist()))
            for i in range(span.count):
                if span.row + i in wanted:
                    row = self.logits_of(context[: span.begin + i + 1])
                    logits[span.row + i, : self.vocab_size] = torch.tensor(row, dtype=torch.float32)
        return logits[logit_rows]

    def embed(self, token_ids: Tensor) -> Tensor:
        return token_ids[:, None].float()


def hashed_logits(vocab_size: int, seed: int = 0, order: int = 3, scale: float = 2.0) -> LogitsOf:
    """A fixed random language: logits depend on the last `order` ids and the length (so positions matter)."""

    @functools.lru_cache(maxsize=100_000)
    def logits_of(key: tuple[int, ...]) -> np.ndarray:
        digest = hashlib.sha256(repr((seed, key)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(size=vocab_size) * scale

    return lambda ids: logits_of((len(ids) % 7, *ids[-order:]))


def noisy(logits_of: LogitsOf, vocab_size: int, amount: float) -> LogitsOf:
    """Another language that is right to a degree: 0 is the same, large is useless."""
    other = hashed_logits(vocab_size, seed=99)
    return lambda ids: logits_of(ids) + amount * other(ids)


def byte_tokenizer() -> Tokenizer:
    """Each id is a byte; id 256 ends a turn. The template is <role>content\\n."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    to_char = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(rest)}
    vocab = {to_char[byte]: byte for byte in range(256)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([END])

    def render(turns: list[dict[str, str]]) -> str:
        return "".join(f"<{turn['role']}>{turn['content']}\n" for turn in turns) + "<assistant>"

    return build_tokenizer(backend, render, {256})


@dataclass
class Scripted:
    """A language that says one text, whatever the prompt: byte by byte, then the end token. Ids after `prompt_len` are
    the reply."""

    script: bytes
    prompt_len: int

    def __call__(self, ids: tuple[int, ...]) -> np.ndarray:
        said = len(ids) - self.prompt_len
        row = np.zeros(257)
        row[self.script[said] if said < len(self.script) else 256] = 20.0
        return row


def run(
    prompt: Sequence[int],
    params: DecodingParams,
    model: Model,
    tokenizer: Tokenizer,
    drafter: Drafter | None = None,
    cache: KVCache | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    profile: Profile | None = None,
) -> list[Event]:
    """All events of one reply."""
    own = cache or KVCache(drafter.feature_layers if drafter else ())
    lane = ReplyContext(model, own, tokenizer, drafter, cancelled, profile or Profile())
    return list(generate(prompt, params, lane))


def finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    return last


def rounds(events: Sequence[Event]) -> list[Round]:
    return [event for event in events if isinstance(event, Round)]


@dataclass(frozen=True)
class FakeLoaded:
    """The shape of `loading.Loaded`."""

    network: FakeNetwork
    tokenizer: Tokenizer
    name: str = "fake"
    weights: str = "none"
    kernel: str = "none"
    context_len: int = 4096
    device: str = "cpu"
    exact: bool = True
    note: str = ""


@dataclass(frozen=True)
class FakeHead:
    """The shape of a trained head; its drafter guesses by a language of its own."""

    logits_of: LogitsOf
    acceptance = (0.6, 0.5)


class FakePair(ModelPair):
    """A pair whose head is a FakeHead."""

    def head_drafter(self, cache: KVCache) -> Drafter:
        logits_of = self.head.logits_of  # type: ignore[union-attr]
        return _FakeHeadDrafter(Model(FakeNetwork(257, logits_of), 4096), KVCache())


class _FakeHeadDrafter(DraftModelDrafter):
    """Insists on the features that it was promised."""

    name = "head"
    feature_layers: tuple[int, ...] = (0, 2)

    def propose(self, option, context, k, should_continue=always) -> Proposal:  # type: ignore[no-untyped-def]
        ids, features = context.ids, context.features
        assert features.shape == (len(ids) - 1, 2, 1) and features[:, 0, 0].tolist() == list(ids[:-1])
        return super().propose(option, replace(context, features=None), k, should_continue)


def fake_engine(
    logits_of: LogitsOf, drafter: LogitsOf | None = None, head: LogitsOf | None = None, **config: object
) -> Engine:
    """A real engine over fake networks, ready."""
    tokenizer = byte_tokenizer()

    def load(config: EngineConfig, progress: object) -> ModelPair:
        target = FakeLoaded(FakeNetwork(257, logits_of), tokenizer)
        draft = FakeLoaded(FakeNetwork(257, drafter), tokenizer, name="fake drafter") if drafter else None
        return FakePair(target, draft, head=FakeHead(head) if head else None)  # type: ignore[arg-type]

    engine = Engine(EngineConfig(**config), load)  # type: ignore[arg-type]
    engine.wait_ready(60)
    return engine


def say(text: str) -> list[Message]:
    return [Message("user", text)]


ANY = hashed_logits(257, seed=8)


def endless(ids: tuple[int, ...]) -> np.ndarray:
    """Never ends, and repeats itself now and then, so that copies are offered, some of them right."""
    row = ANY(ids).copy()
    row[256] = -50.0
    row[ord("a") + len(ids) % 3] += 8.0
    return row


class Gate:
    """An endless language that waits for permission once `length` tokens are there: lets a test look at the middle of
    a reply."""

    def __init__(self, length: int) -> None:
        self.length, self.open, self.reached = length, threading.Event(), threading.Event()

    def __call__(self, ids: tuple[int, ...]) -> np.ndarray:
        if len(ids) > self.length:
            self.reached.set()
            assert self.open.wait(60)
        return endless(ids)
