"""python -m ui.record: records the races that come with the app (assets/traces), on this machine, with the default
model.

They are what the page shows before a model is there. Anybody can record them anew; speeds are those of the machine at
hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine import DecodingParams, Detail, Engine, EngineConfig, EngineError, Message, Race, Rule, SamplingParams, State
from ui.examples import ASSETS
from ui.recording import trace_file
from ui.recording.recordings import Lane, LaneName, Recording, extend, race_lanes


@dataclass(frozen=True, slots=True)
class Take:
    """What is recorded under a name. title: in English and Chinese."""

    name: str
    title: tuple[str, str]
    prompt: str
    params: DecodingParams


def _params(tokens: int, temperature: float = 0.0, k: int | None = None, drafter: str = "auto") -> DecodingParams:
    sampling = SamplingParams(temperature=temperature, seed=7)
    return DecodingParams(sampling, drafter, k, Rule.SHARED_NOISE, tokens, probe_every=0, detail=Detail.FULL)


TAKES = (
    Take("chat", ("A question, answered", "一问一答"),
         "What color is the sun, and why does it look yellow from the ground?", _params(160)),
    Take("code", ("Code, which repeats itself", "代码，自己重复自己"),
         "Write a Python class Account with the methods deposit, withdraw and balance.", _params(192)),
    Take("bad", ("A poem at high temperature, with too many guesses", "高温度写诗，还猜得太多"),
         "Write a short poem about a river at night.", _params(96, temperature=1.3, k=8, drafter="head")),
)  # fmt: skip


def record(engine: Engine, take: Take) -> Recording:
    """Runs one race to its end. Raises EngineError where a lane ends in an error."""
    lanes = race_lanes(engine.facts(), take.params)
    date = datetime.now(UTC).date().isoformat()
    recording = Recording(take.name, take.prompt, lanes, date=date, title=take.title)
    with engine.race([Message("user", take.prompt)], take.params) as race:
        return _follow(recording, race)


def _follow(recording: Recording, race: Race) -> Recording:
    streams = {LaneName.PLAIN: race.plain, LaneName.SPECULATIVE: race.speculative}
    for name, stream in streams.items():  # both are played at once; what waits is only events
        recording = extend(recording, name, list(stream))
    for lane in recording.lanes:
        if lane.reply.message:
            raise EngineError(lane.reply.message)
    return recording


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ui.record", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=ASSETS / "traces", help="where the files go (default: assets/traces)"
    )
    parser.add_argument("--only", choices=[take.name for take in TAKES], help="one of them (default: all)")
    parser.add_argument("--offline", action="store_true", help="never use the network")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(EngineConfig(offline=args.offline))
    try:
        if (status := engine.wait_ready()).state is not State.READY:
            print(status.message, file=sys.stderr)
            return 1
        for take in TAKES:
            if args.only in (None, take.name):
                recording = record(engine, take)
                (args.folder / f"{take.name}.json").write_text(trace_file.dump(recording), encoding="utf-8")
                print(take.name, *(f"{lane.name}: {_figures_line(lane)}" for lane in recording.lanes), sep="  ")
    except (EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        engine.close()
    return 0


def _figures_line(lane: Lane) -> str:
    own = lane.reply.tally.summary()
    speed = "-" if own.overall_tok_s is None else f"{own.overall_tok_s:.0f} tokens/s"
    return f"{own.tokens} tokens, {speed}"


if __name__ == "__main__":
    sys.exit(main())
