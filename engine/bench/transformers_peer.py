"""The transformers library's own `generate`, with its own cache and attention, on the same weights, dequantised."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.bench.options import silent
from engine.bench.prompts import Prompt
from engine.bench.turn import Job, Peer, Turn
from engine.errors import EngineError
from engine.places import find, first_line

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"bfloat16": "transformers_bf16", "float32": "transformers_fp32"}
LOOKUP = "transformers_prompt_lookup"
TRIAL_TOKENS = 24
TRIALS = 2


def peers(target: str, device: str, threads: int, k: int, offline: bool) -> tuple[list[Peer], dict[str, str]]:
    """Both number formats, and prompt lookup of k tokens in the one that is quicker at it; what cannot be had, as sentences.

    Sets the number of threads that torch uses in the calling thread.
    """
    import torch
    import transformers

    torch.set_num_threads(threads)
    try:
        folder = find(target, offline, silent).folder
        models = {dtype: load(folder, dtype, device) for dtype in DTYPES}
    except EngineError as error:
        return [], dict.fromkeys([*DTYPES.values(), LOOKUP], str(error))
    note = f"transformers {transformers.__version__}, sdpa"
    found = [Peer(name, f"{note}, {dtype}", partial(play, models[dtype])) for dtype, name in DTYPES.items()]
    if k == 0:
        return found, {LOOKUP: "There is nothing to look up with K = 0: choose another --k."}
    dtype = quicker(models, k)
    lookup = f"{note}, prompt_lookup_num_tokens = {k}, {dtype} (the quicker of the two here)"
    return [*found, Peer(LOOKUP, lookup, partial(play, models[dtype], lookup=k))], {}


def load(folder: Any, dtype: str, device: str) -> Any:
    """Raises EngineError."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", use_safetensors=True,
            trust_remote_code=False, local_files_only=True,
        )  # fmt: skip
    except Exception as error:  # damaged files fail in many ways, and each of them is this sentence
        raise EngineError(f"transformers cannot load {folder} ({first_line(error)}).") from error
    model = model.eval().to(device)
    # No end token: so many tokens as are asked for, without the cost of a filter that forbids it.
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
    return model


class Arrivals:
    """A streamer in the sense of `generate`: notes how many tokens came when. The first that it is given is the prompt."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, float]] = []

    def put(self, ids: Tensor) -> None:
        """On the CPU, so the device is done with them."""
        self._seen.append((ids.numel(), perf_counter()))

    def end(self) -> None:
        pass

    def turn(self) -> Turn:
        """Timed from the first arrival to the last. The first holds one token, under prompt lookup perhaps more."""
        (first, begin_s), *rest = self._seen[1:]
        decoded = sum(count for count, _ in rest)
        return Turn(first + decoded, decoded, self._seen[-1][1] - begin_s)


def play(model: Any, job: Job, lookup: int | None = None) -> Turn:
    """One greedy reply of exactly job.tokens tokens. Raises EngineError."""
    import torch

    ids = torch.tensor([job.ids], device=model.device)
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
    """The number format in which prompt lookup takes fewer seconds a token, over a few short replies to an invented prompt."""
    rows = min(model.config.get_text_config().vocab_size for model in models.values())
    trial = Job(Prompt("", ""), [1 + 7 * (i % 40) % (rows - 1) for i in range(200)], TRIAL_TOKENS)
    turns = {dtype: [play(model, trial, k) for _ in range(1 + TRIALS)][1:] for dtype, model in models.items()}
    return min(turns, key=lambda dtype: sum(turn.seconds / max(1, turn.decoded) for turn in turns[dtype]))
