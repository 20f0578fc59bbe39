"""collect: dialogues that the target writes itself, many at once, until there are as many reply tokens as wanted."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

from engine.cli.options import add_threads_option, silent, tell
from engine.cli.progress import format_duration
from engine.config import KERNELS, Message, SamplingParams
from engine.errors import EngineError
from engine.heads.load import target_sizes
from engine.loading.load import load
from engine.networks.kv_cache import common_prefix
from engine.networks.model import Model
from engine.text.tokenizer import Tokenizer
from engine.train.batch import DialogueTurns, GeneratedDialogue, TurnRequest, generate_dialogues
from engine.train.dialogues import Dialogue, append_dialogues, read_dialogues
from engine.train.features import FeatureStore, all_layers, layers_option
from engine.train.prompts.make import TrainingPrompt, follow_up, prompts
from engine.train.prompts.passages import Passage, Pool, read_passages

INVENTED = 0.25
"""Share of the dialogues whose user's turns the target writes as well."""
SECOND_TURNS = 0.2
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
WARM = (0.8, 1.0)
"""Of the user's turns: at temperature 0 they would all be the same."""
TOP_P = 0.95
USER_TOKENS = 300
REPLY_TOKENS, LONG_REPLY_TOKENS, LONG_SHARE = 384, 700, 0.2
REPORT_S = 10.0

Report = Callable[[str], None]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "sample dialogues from the target; started again, it goes on where it stopped"
    command = commands.add_parser("collect", help=text, description=text)
    command.add_argument("--out", type=Path, required=True, help="JSON lines; what is there is kept")
    command.add_argument("--tokens", type=_positive, default=300_000, help="reply tokens in all (default: %(default)s)")
    command.add_argument("--batch", type=_positive, default=64, help="dialogues at a time (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--model", default="embedded", help="the target (default: %(default)s)")
    command.add_argument("--kernel", choices=KERNELS, default="auto")
    command.add_argument("--offline", action="store_true", help="never use the network")
    command.add_argument(
        "--passages", type=Path, nargs="+", default=[], metavar="PATH",
        help="text files or folders of them, paragraphs between empty lines; NAME.de.txt is in German",
    )  # fmt: skip
    command.add_argument("--features", type=Path, metavar="FOLDER", help="also keep the hidden states computed here")
    command.add_argument(
        "--layers", type=layers_option, help="whose, such as 3,16,29 (default: three that suit the target)"
    )
    add_threads_option(command)
    command.set_defaults(run=run)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


_positive.__name__ = "whole number"  # what argparse calls it


def run(args: argparse.Namespace) -> None:
    """Raises EngineError, and KeyboardInterrupt once it has said how far it came."""
    trim(args.out)
    passages = read_passages(args.passages)
    loaded = load(args.model, threads=args.threads, kernel=args.kernel, offline=args.offline, progress=silent)
    tell(f"{loaded.name}, {loaded.weights}, {loaded.kernel}; {len(passages)} passages")
    store = None
    if args.features:
        layers, hidden, _ = target_sizes(loaded.network, loaded.name)
        store = FeatureStore(args.features, args.model, all_layers(args.layers, layers), hidden)
    model = Model(loaded.network, loaded.context_len)
    collect(
        model, loaded.tokenizer, args.out,
        tokens=args.tokens, batch=args.batch, seed=args.seed, passages=passages, store=store,
    )  # fmt: skip


def collect(
    model: Model,
    tokenizer: Tokenizer,
    out: Path,
    *,
    tokens: int,
    batch: int,
    seed: int,
    passages: Sequence[Passage] = (),
    store: FeatureStore | None = None,
    report: Report = tell,
) -> None:
    """Appends to `out` until it holds `tokens` tokens of replies, and each dialogue's hidden states to the store.

    What is there decides the seed, so that going on brings new prompts; its replies are passages for them, too.
    """
    dialogues = list(read_dialogues(out)) if out.exists() else []
    pool = Pool(passages)
    for dialogue in dialogues:
        pool.add_reply(_reply_text(tokenizer, dialogue))
    tally = CollectTally(dialogues, tokens, report)
    rng = random.Random(f"{seed} {len(dialogues)}")
    scripts = _make_dialogues(
        tokenizer, pool, rng, tally, {d.ids[: d.prompt_len] for d in dialogues}, model.context_len
    )
    layers = store.layers if store else ()
    try:
        for output in generate_dialogues(
            model, scripts, batch, tokenizer.stop_ids, rng=random.Random(rng.random()), layers=layers
        ):
            _keep(output, out, store)
            pool.add_reply(_reply_text(tokenizer, output.dialogue))
            tally.add(output.dialogue)
    except KeyboardInterrupt:
        report(f"stopped: {tally}; the same command goes on from here")
        raise
    report(f"done: {tally}")


def trim(out: Path) -> None:
    """Cuts off a last line that a stop left unfinished, so that the next one does not join it. Raises EngineError."""
    if out.suffix == ".gz":
        raise EngineError(f"{out} would be gzipped, and dialogues are appended to plain text: name a .jsonl file.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a+b") as file:
            file.seek(0)
            content = file.read()
            if (end := content.rfind(b"\n") + 1) < len(content):
                file.truncate(end)
    except OSError as error:
        raise EngineError(f"{out} cannot be written ({error}): name another file with --out.") from error


class CollectTally:
    """How many dialogues and reply tokens there are, and what that says about the time left."""

    def __init__(self, dialogues: Sequence[Dialogue], goal: int, report: Report) -> None:
        self.dialogues, self.tokens, self.goal = len(dialogues), sum(d.reply_len for d in dialogues), goal
        self._report, self._begin_s, self._begin_tokens = report, perf_counter(), self.tokens
        self._reported_s = self._begin_s

    def __str__(self) -> str:
        return f"{self.dialogues:,} dialogues, {self.tokens:,} of {self.goal:,} reply tokens"

    def add(self, dialogue: Dialogue) -> None:
        self.dialogues += 1
        self.tokens += dialogue.reply_len
        now_s = perf_counter()
        if now_s - self._reported_s >= REPORT_S:
            self._reported_s = now_s
            speed = (self.tokens - self._begin_tokens) / (now_s - self._begin_s)
            time_left = (
                f"{format_duration((self.goal - self.tokens) / speed)} left"
                if self.tokens < self.goal
                else "the last ones"
            )
            self._report(f"{self}, {speed:.0f} tokens/s, {time_left}")


def _make_dialogues(
    tokenizer: Tokenizer,
    pool: Pool,
    rng: random.Random,
    tally: CollectTally,
    known_prompts: set[tuple[int, ...]],
    context_len: int,
) -> Iterator[DialogueTurns]:
    """New dialogues until the goal is reached. What is running then is still ended, or only short
    replies would count."""
    training_prompts = prompts(rng, pool)
    while tally.tokens < tally.goal:
        prompt = None if rng.random() < INVENTED else next(training_prompts)
        yield _dialogue_turns(tokenizer, prompt, random.Random(rng.getrandbits(63)), known_prompts, context_len)


def _dialogue_turns(
    tokenizer: Tokenizer,
    prompt: TrainingPrompt | None,
    rng: random.Random,
    known_prompts: set[tuple[int, ...]],
    context_len: int,
) -> DialogueTurns:
    """The turns of one dialogue. prompt: what the user asks; None where the target invents the user's turns."""
    messages: list[Message] = []
    for turn in range(1 + (rng.random() < SECOND_TURNS)):
        if prompt is None:
            ids_before_user = _ids_before_user_text(tokenizer, messages)
            if len(ids_before_user) + REPLY_TOKENS > context_len:
                return
            text = tokenizer.decode(
                (yield TurnRequest(ids_before_user, USER_TOKENS, _sampling(rng, WARM), kept=False))
            ).strip()
        else:
            text = follow_up(rng, prompt.kind) if turn else prompt.text
        if not text:
            return
        messages.append(Message("user", text))
        prompt_ids = tuple(tokenizer.encode_chat(messages))
        if prompt_ids in known_prompts or len(prompt_ids) + REPLY_TOKENS > context_len:
            return
        known_prompts.add(prompt_ids)
        limit = LONG_REPLY_TOKENS if rng.random() < LONG_SHARE else REPLY_TOKENS
        reply = yield TurnRequest(prompt_ids, limit, _sampling(rng, TEMPERATURES))
        messages.append(Message("assistant", tokenizer.decode(reply)))


def _sampling(rng: random.Random, temperatures: Sequence[float]) -> SamplingParams:
    return SamplingParams(temperature=rng.choice(temperatures), top_p=TOP_P)


def _ids_before_user_text(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The prompt up to where the user's next turn begins: what two different turns have in common."""
    ids, other_ids = (tokenizer.encode_chat([*messages, Message("user", text)]) for text in ("Apples", "how 3"))
    return ids[: common_prefix(ids, other_ids)]


def _keep(output: GeneratedDialogue, out: Path, store: FeatureStore | None) -> None:
    """The dialogue first: states that a stop has cost can be computed again."""
    append_dialogues(out, [output.dialogue])
    if store is not None and output.states is not None:
        store.add([output.dialogue], [output.states])


def _reply_text(tokenizer: Tokenizer, dialogue: Dialogue) -> str:
    return tokenizer.decode(dialogue.ids[dialogue.prompt_len :])
