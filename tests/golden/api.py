"""What the endpoint for programs answers, over HTTP: the default model behind a real page on a local port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
from gradio_client import Client
from gradio_client.exceptions import AppError

from engine.config import EngineConfig
from engine.serving.engine import Engine
from tests.golden.items import Item
from tests.ui.conftest import serve
from ui.controls import Options

WAIT_S = 120
NAME = "/generate"

OFF = ("Hello!", 5, 0, 3, "ngram", 1)

CALLS: dict[str, tuple[Any, ...]] = {
    "greedy head": ("Write one sentence about rain.", 24, 0, 3, "head", 1),
    "greedy both": ("List three colours, one on each line.", 24, 0, 7, "both", 1),
    "plain": ("List three colours, one on each line.", 24, 0, 0, "none", 1),
    "sampled ngram": ("Count to twenty in words: one, two, three", 32, 1.0, 5, "ngram", 7),
    "shared noise": ("请用一句话介绍北京。", 24, 0.8, 3, "auto", 3, 0.9, 40, 0.02, 1.1, 0.2, -0.2, [], "shared_noise"),
    "stop string": ("Count from 1 to 20 with commas.", 40, 0, 3, "both", 1, 1, 0, 0, 1, 0, 0, ["7", " 9"]),
    "one token": ("Hello!", 1, 0, 3, "head", 1),
}

WRONG: dict[str, tuple[Any, ...]] = {
    "empty": ("",), "blank": (" \u200b\n",), "no tokens": ("hi", 0), "too many tokens": ("hi", 10**6),
    "tokens in words": ("hi", "many"), "cold": ("hi", 5, -1), "hot": ("hi", 5, 9), "temperature in "
                                                                                   "words": ("hi", 5, "warm"),
    "k": ("hi", 5, 0, 99), "k in words": ("hi", 5, 0, "many"), "k true": ("hi", 5, 0, True), "k half": ("hi", 5, 0, 2.5),
    "drafter": ("hi", 5, 0, 4, "magic"), "drafter not "
                                         "here": ("hi", 5, 0, 4, "draft_model"), "no drafter": ("hi", 5, 0, 4, ""),
    "seed": ("hi", 5, 0, 4, "auto", -1), "seed in words": ("hi", 5, 0, 4, "auto", "x"), "top_p": (*OFF, 0),
    "top_k": (*OFF, 1, -3), "min_p": (*OFF, 1, 0, 2), "repetition": (*OFF, 1, 0, 0, 0), "frequency": (*OFF, 1, 0, 0, 1, 3),
    "presence": (*OFF, 1, 0, 0, 1, 0, "x"), "stop no list": (*OFF, 1, 0, 0, 1, 0, 0, "END"), "stop empty": (*OFF, 1, 0, 0, 1, 0, 0, [""]),
    "stop numbers": (*OFF, 1, 0, 0, 1, 0, 0, [1]), "rule": (*OFF, 1, 0, 0, 1, 0, 0, [], "magic"), "long": ("word " * 9000,),
    "no text": (7,), "nothing": (),
}  # fmt: skip

BARE = ("shared noise", "rule", "one token", "nothing")
"""Those that are also sent without a client library, which fills in what was left out: all values, all but right, too
few."""

MEASURED = ("spec_tok_s", "plain_tok_s", "speedup", "ttft_s")
"""What depends on time."""


def items() -> Iterator[Item]:
    engine = Engine(EngineConfig(kernel="native", threads=2, offline=True))
    with closing(engine):
        engine.wait_ready()
        app, url = serve(engine, Options())
        try:
            info = httpx.get(f"{url}gradio_api/info", timeout=WAIT_S).text
            yield "info", json.loads(info.replace(url.rstrip("/"), "<address>"))
            with closing(Client(url, verbose=False)) as client:
                for name, values in CALLS.items():
                    final = _timeless(client.predict(*values, api_name=NAME))
                    yield f"answer/{name}", final
                    parts = [_timeless(part) for part in client.submit(*values, api_name=NAME)]
                    yield f"parts/{name}", [all(_begins(part, final) for part in parts), parts[-1]]
                for name, values in WRONG.items():
                    yield f"wrong/{name}", _refused(client, values)
            for name in BARE:
                yield f"http/{name}", _posted(url, list((CALLS | WRONG)[name]))
        finally:
            app.close(verbose=False)


def _timeless(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"stats": {key: key in MEASURED or value for key, value in answer["stats"].items()}}


def _begins(part: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether it is the same answer, as far as it was written."""
    count = len(part["tokens"])
    return part.keys() == whole.keys() and part["tokens"] == whole["tokens"][:count]


def _refused(client: Client, values: tuple[Any, ...]) -> list[str]:
    try:
        client.predict(*values, api_name=NAME)
    except (AppError, TypeError, ValueError) as error:
        return [type(error).__name__, str(error)]
    return ["answered"]


def _posted(url: str, values: list[Any]) -> list[Any]:
    """The last event of a call."""
    joined = httpx.post(f"{url}gradio_api/call{NAME}", json={"data": values}, timeout=WAIT_S)
    if joined.status_code != 200:
        return [joined.status_code, joined.text]
    events = httpx.get(f"{url}gradio_api/call{NAME}/{joined.json()['event_id']}", timeout=WAIT_S).text
    name, _, data = events.strip().rpartition("event: ")[2].partition("\ndata: ")
    said = json.loads(data)
    return [name, [_timeless(one) for one in said] if name == "complete" else said]
