"""peers: the same prompts and token counts through Greenlight, transformers and llama.cpp, one after the other.

What is compared is decoding after the first token, greedy. Each prompt is worth as many tokens as Greenlight's plain
reply to it has (up to --max-new-tokens): a natural reply, not one driven on past its end. The others are asked for
exactly so many, with their end tokens turned off; as they round numbers otherwise, their own reply might end a little
earlier. A prompt for which some engine gives another number is left out for all.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.bench.options import (
    add_drafter_options,
    add_model_options,
    engine_of,
    params_of,
    prompts_of,
    settings_of,
)
from engine.bench.pairs import reply
from engine.bench.peers import llama_server, transformers_peer
from engine.bench.peers.peer import Peer, PeerJob, PeerTurn
from engine.cli.options import add_prompt_options, tell
from engine.cli.progress import Interruptible, TimeLeft, mark_partial
from engine.cli.prompts import BenchPrompt
from engine.config import DecodingParams, Message, format_k
from engine.errors import ContextFull, EngineError
from engine.serving.engine import Engine

NAMES = (
    "greenlight_speculative",
    "greenlight_plain",
    "transformers_bf16",
    "transformers_fp32",
    "transformers_prompt_lookup",
    "llama_cpp",
    "llama_cpp_ngram",
)

REST_S = 0.3
"""Pause before each turn. The threads of the one before look out for more work for a while, and
would take our cores."""

WARM_UP = BenchPrompt("", "Count from one to ten, and then once more from one to ten.")
WARM_UP_TOKENS = 16


@dataclass(slots=True)
class PeerRace:
    """What came of it. turns: by prompt, of all peers that lasted; failed: a sentence for each that did not."""

    turns: list[dict[str, PeerTurn]]
    failed: dict[str, str]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "the same prompts through Greenlight, transformers and llama.cpp: decode tokens per second"
    command = commands.add_parser("peers", help=text, description=text)
    add_prompt_options(command)
    add_drafter_options(command)
    command.add_argument(
        "--llama-server", type=Path, metavar="PATH", help="llama.cpp's server program (default: looked for on PATH)"
    )
    add_model_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """`rows` in the order of NAMES. Raises EngineError."""
    prompts = prompts_of(args)
    params = replace(params_of(args, args.k), probe_every=0)
    if args.llama_server and not args.llama_server.is_file():
        raise EngineError(f"There is no program {args.llama_server}: name llama.cpp's llama-server.")
    interruptible = Interruptible()
    with _ended_by_signals(), ExitStack() as stack:
        engine = stack.enter_context(engine_of(args))
        facts = engine.facts()
        ours = own_peers(engine, params)
        theirs, missing = transformers_peer.peers(stack, args.target, facts.device, facts.threads, args.k, args.offline)
        servers, absent = llama_server.peers(stack, args.llama_server, args.target, facts.device, facts.threads)
        race = run_race(engine, [*ours, *theirs, *servers], prompts, params, tell, REST_S, interruptible)
        report = report_of(race, [*ours, *theirs, *servers], missing | absent)
        report["settings"] = settings_of(args, engine, prompts=len(prompts))
    print(table(report))
    return mark_partial(report, interruptible)


def own_peers(engine: Engine, params: DecodingParams) -> list[Peer]:
    def player(side: DecodingParams) -> Callable[[PeerJob], PeerTurn]:
        def play(job: PeerJob) -> PeerTurn:
            result = reply(engine, job.prompt, replace(side, max_new_tokens=job.tokens))
            return PeerTurn(len(result.ids), result.decoded, result.summary.decode_s)

        return play

    facts = engine.facts()
    plain = replace(params, num_speculative_tokens=0)
    how = f"drafter {params.drafter}, K = {format_k(params.num_speculative_tokens)}, {facts.kernel}"
    return [
        Peer("greenlight_speculative", how, player(params)),
        Peer("greenlight_plain", facts.kernel, player(plain)),
    ]


def run_race(
    engine: Engine,
    peers: Sequence[Peer],
    prompts: Sequence[BenchPrompt],
    params: DecodingParams,
    report: Callable[[str], None],
    rest_s: float,
    interruptible: Interruptible | None = None,
) -> PeerRace:
    """One prompt after the other, each through all peers in turn; who begins moves on by one.

    Ctrl-C ends it with what there is, which `interruptible` then tells. A peer that fails leaves the race, the others
    go on.
    """
    race, running = PeerRace([], {}), list(peers)
    warm_up = PeerJob(
        WARM_UP, engine.encode([Message("user", WARM_UP.text)]), min(WARM_UP_TOKENS, params.max_new_tokens)
    )
    report(f"warming up: {', '.join(peer.name for peer in running)}")
    _turns(running, warm_up, race.failed, report, rest_s)
    running = [peer for peer in running if peer.name not in race.failed]
    pace = TimeLeft(len(prompts), report)
    with interruptible or Interruptible() as end:
        for n, prompt in enumerate(prompts, 1):
            job = natural_job(engine, prompt, params)
            if job is None:
                pace(n, "left out: no room for a reply, or a reply of one token")
                continue
            first = n % max(1, len(running))
            turns = _turns([*running[first:], *running[:first]], job, race.failed, report, rest_s)
            running = [peer for peer in running if peer.name not in race.failed]
            mismatches = [name for name, turn in turns.items() if turn.tokens != job.tokens]
            if mismatches:
                pace(n, f"left out: {', '.join(mismatches)} did not give {job.tokens} tokens")
                continue
            race.turns.append(turns)
            pace(n, f"{prompt.category}: {job.tokens} tokens")
    if end.partial:
        report(f"interrupted: the figures are about {len(race.turns)} of {len(prompts)} prompts")
    return race


def natural_job(engine: Engine, prompt: BenchPrompt, params: DecodingParams) -> PeerJob | None:
    """The prompt with the length of the plain reply to it; None where there is nothing to time."""
    try:
        result = reply(engine, prompt, replace(params, num_speculative_tokens=0))
    except ContextFull:
        return None
    ids = engine.encode([Message("user", prompt.text)])
    return PeerJob(prompt, ids, len(result.ids)) if result.decoded else None


def _turns(
    peers: Sequence[Peer], job: PeerJob, failed: dict[str, str], report: Callable[[str], None], rest_s: float
) -> dict[str, PeerTurn]:
    """One turn of each; failures go to `failed`."""
    turns: dict[str, PeerTurn] = {}
    for peer in peers:
        time.sleep(rest_s)
        try:
            turns[peer.name] = peer.play(job)
        except EngineError as error:
            failed[peer.name] = str(error)
            report(f"{peer.name} is out: {error}")
    return turns


def report_of(race: PeerRace, peers: Sequence[Peer], missing: dict[str, str]) -> dict[str, Any]:
    """tok_s: tokens / seconds, both summed over the prompts and both after the first token. missing:
    sentences by name."""
    missing = missing | race.failed
    notes = {peer.name: peer.note for peer in peers}
    return {"rows": [_row(name, race.turns, notes.get(name, ""), missing.get(name, "")) for name in NAMES]}


def _row(name: str, turns: Sequence[dict[str, PeerTurn]], note: str, missing: str) -> dict[str, Any]:
    if missing:
        return {"name": name, "tok_s": None, "missing": missing}
    mine = [turn[name] for turn in turns if name in turn]
    seconds = sum(turn.seconds for turn in mine)
    decoded = sum(turn.decoded for turn in mine)
    return {
        "name": name, "tok_s": decoded / seconds if seconds else None, "tokens": sum(turn.tokens for turn in mine),
        "decoded": decoded, "seconds": seconds, "prompts": len(mine), "note": note,
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    """For a terminal; "to plain" is a multiple of Greenlight's plain decoding."""
    plain = next((row["tok_s"] for row in report["rows"] if row["name"] == "greenlight_plain"), None)
    lines = [f"{'':28}{'tok/s':>8}{'to plain':>10}  how"]
    for row in report["rows"]:
        speed, note = row["tok_s"], row.get("missing") or row.get("note", "")
        cells = ("-", "-") if speed is None else (f"{speed:.1f}", f"{speed / plain:.2f}" if plain else "-")
        lines.append(f"{row['name']:28}{cells[0]:>8}{cells[1]:>10}  {note}")
    return "\n".join(lines)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Being told to end, like Ctrl-C, unwinds: no server is left behind."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
