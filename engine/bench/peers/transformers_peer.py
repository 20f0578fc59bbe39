"""The transformers library's own `generate`, with its own cache and attention, on the same weights, dequantised.

In a process of its own: two engines in one process share OpenMP's count of threads, which then wait more sleepily for
each other than either would alone.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.bench.peers.peer import Peer, PeerJob, PeerTurn
from engine.cli.options import silent, tell
from engine.cli.prompts import BenchPrompt
from engine.errors import EngineError
from engine.loading.source import find, first_line

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"bfloat16": "transformers_bf16", "float32": "transformers_fp32"}
LOOKUP = "transformers_prompt_lookup"
LOOKUP_TOKENS = 10
"""Prompt lookup's K where ours is left open: the library's own default."""

TRIAL_TOKENS = 16
TRIALS = 2

REPLY_LIMIT_S = 3600.0
"""For one reply: bf16 without instructions for it reads long prompts for minutes."""

STOP_LIMIT_S = 10.0


def peers(
    stack: ExitStack, target: str, device: str, threads: int, k: int | None, offline: bool
) -> tuple[list[Peer], dict[str, str]]:
    """Both number formats, and prompt lookup of k tokens in the one that is quicker at it, until the stack closes.

    k None: LOOKUP_TOKENS. For those that are not there a sentence.
    """
    tell("transformers: loading")
    k = LOOKUP_TOKENS if k is None else k
    try:
        folder = find(target, offline, silent).folder
        library = stack.enter_context(run_library(folder, device, threads))
        note = f"transformers {library.ask('version')}, sdpa"
        for dtype in DTYPES:
            library.ask("load", dtype)
        dtype_peers = [Peer(name, f"{note}, {dtype}", partial(library.play, dtype)) for dtype, name in DTYPES.items()]
        if k == 0:
            return dtype_peers, {LOOKUP: "There is nothing to look up with K = 0: choose another --k."}
        tell("transformers: finding out which number format is quicker at prompt lookup")
        dtype = library.ask("quicker", k)
    except EngineError as error:
        return [], dict.fromkeys([*DTYPES.values(), LOOKUP], str(error))
    lookup = f"{note}, prompt_lookup_num_tokens = {k}, {dtype} (the quicker of the two here)"
    return [*dtype_peers, Peer(LOOKUP, lookup, partial(library.play, dtype, lookup=k))], {}


@dataclass(frozen=True, slots=True)
class Library:
    """Our end of the process that runs transformers."""

    pipe: Connection

    def ask(self, what: str, *arguments: Any) -> Any:
        """Raises EngineError, with the process's own sentence where it has one."""
        try:
            self.pipe.send((what, *arguments))
            if not self.pipe.poll(REPLY_LIMIT_S):
                raise EngineError(f"transformers gave no answer for {REPLY_LIMIT_S:.0f} s.")
            good, answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise EngineError("The process that runs transformers has ended: is there enough memory?") from error
        if not good:
            raise EngineError(answer)
        return answer

    def play(self, dtype: str, job: PeerJob, lookup: int | None = None) -> PeerTurn:
        turn = self.ask("play", dtype, job, lookup)
        assert isinstance(turn, PeerTurn)
        return turn


@contextmanager
def run_library(folder: Path, device: str, threads: int) -> Iterator[Library]:
    """The process, ended on leaving."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, folder, device, threads), daemon=True)
    process.start()
    theirs.close()  # so that its end is seen as the pipe's
    try:
        yield Library(ours)
    finally:
        ours.close()
        process.terminate()
        process.join(STOP_LIMIT_S)
        process.kill()


def _serve(pipe: Connection, folder: Path, device: str, threads: int) -> None:
    """The process: answers (True, answer) or (False, sentence) until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    import torch
    import transformers

    torch.set_num_threads(threads)
    models: dict[str, Any] = {}
    while True:
        try:
            what, *arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Any = None
            if what == "version":
                answer = transformers.__version__
            elif what == "load":
                models[arguments[0]] = load(folder, arguments[0], device)
            elif what == "quicker":
                answer = quicker(models, arguments[0])
            else:
                dtype, job, lookup = arguments
                answer = play(models[dtype], job, lookup)
            pipe.send((True, answer))
        except EngineError as error:
            pipe.send((False, str(error)))


def load(folder: Path, dtype: str, device: str) -> Any:
    """Raises EngineError."""
    import torch
    import transformers

    from engine.networks.devices import move_to_device

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", use_safetensors=True,
            trust_remote_code=False, local_files_only=True,
        )  # fmt: skip
    except Exception as error:  # damaged files fail in many ways, and each of them is this sentence
        raise EngineError(f"transformers cannot load {folder} ({first_line(error)}).") from error
    model = move_to_device(model.eval(), device)
    # No end token: so many tokens as are asked for, without the cost of a filter that forbids it.
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model


class Arrivals:
    """A streamer in the sense of `generate`: notes how many tokens came when. The first that it is
    given is the prompt."""

    def __init__(self) -> None:
        self._arrivals: list[tuple[int, float]] = []

    def put(self, ids: Tensor) -> None:
        """On the CPU, so the device is done with them."""
        self._arrivals.append((ids.numel(), perf_counter()))

    def end(self) -> None:
        pass

    def turn(self) -> PeerTurn:
        """Timed from the first arrival to the last. The first holds one token, under prompt lookup perhaps more."""
        (first, begin_s), *later = self._arrivals[1:]
        decoded = sum(count for count, _ in later)
        return PeerTurn(first + decoded, decoded, self._arrivals[-1][1] - begin_s)


def play(model: Any, job: PeerJob, lookup: int | None = None) -> PeerTurn:
    """One greedy reply of exactly job.tokens tokens. Raises EngineError."""
    import torch

    from engine.networks.devices import send_ids

    ids = send_ids([job.ids], model.device)[0][None]
    arrivals = Arrivals()
    try:
        with torch.inference_mode():
            model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=job.tokens, streamer=arrivals,
                **({"prompt_lookup_num_tokens": lookup} if lookup else {}),
            )  # fmt: skip
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise EngineError(f"transformers could not answer a prompt ({first_line(error)}).") from error
    return arrivals.turn()


def quicker(models: dict[str, Any], k: int) -> str:
    """The number format in which prompt lookup takes fewer seconds a token: the best of a few short replies.

    To an invented prompt that repeats itself, and short: bf16 without instructions for it reads slowly.
    """
    rows = min(model.config.get_text_config().vocab_size for model in models.values())
    trial = PeerJob(BenchPrompt("", ""), [1 + 7 * (i % 10) % (rows - 1) for i in range(40)], TRIAL_TOKENS)
    turns = {dtype: [play(model, trial, k) for _ in range(1 + TRIALS)][1:] for dtype, model in models.items()}
    return min(turns, key=lambda dtype: min(turn.seconds / max(1, turn.decoded) for turn in turns[dtype]))
