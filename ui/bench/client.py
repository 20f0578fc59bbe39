"""A page without a browser, for measurements: sends a message as the page does and receives every update, over HTTP."""

from __future__ import annotations

import json
import multiprocessing
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from engine import EngineError, Event, trace

TIMEOUT_S = 60.0
"""The server speaks at least every second while a reply is written."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came: the reply's events, how many updates, and seconds from the first token to the end by the client's
    clock."""

    events: tuple[Event, ...]
    updates: int
    wall_s: float


def in_a_process(url: str, message: str, values: Sequence[object]) -> Receipt:
    """`listen` in a fresh process, so that it takes nothing from the server's interpreter. Raises EngineError."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        rows, updates, wall_s = pool.apply(listen, (url, message, list(values)))
    return Receipt(trace.events(rows), updates, wall_s)


def listen(url: str, message: str, values: list[object]) -> tuple[list[Any], int, float]:
    """One message in a new conversation. Returns the rows of its reply's events, updates, and seconds as in `Receipt`.

    values: of the settings, in the order of `controls.table`. Raises EngineError.
    """
    rows: list[Any] = []
    updates, begin_s = 0, 0.0
    for patch in _patches(url, ["", message, *values]):
        updates += 1
        for turn in patch["turns"]:
            if turn["from"] > len(rows):
                raise EngineError("An update did not arrive: run it again.")
            rows += [row for _, row in turn["blocks"][len(rows) - turn["from"] :]]
        begin_s = begin_s or (perf_counter() if rows else 0.0)
        if patch.get("notice") and not rows:
            raise EngineError(f"The page refused the message: {patch['notice']}")
    return rows, updates, perf_counter() - begin_s


def _patches(url: str, data: list[object]) -> Iterator[dict[str, Any]]:
    """What the page's own event yields, through Gradio's queue."""
    import httpx
    from gradio_client.utils import apply_diff  # type: ignore[import-untyped]

    session = secrets.token_hex(8)
    with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client:
        fn = _send_event(client.get("config").json(), len(data))
        request = {"data": data, "fn_index": fn, "session_hash": session}
        client.post("gradio_api/queue/join", json=request).raise_for_status()
        with client.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as answer:
            value: Any = None
            for line in answer.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("msg") == "process_generating" and message["output"].get("data"):
                    [change] = message["output"]["data"]
                    value = change if value is None else apply_diff(value, change)
                    yield json.loads(value)
                elif message.get("msg") == "process_completed":
                    if not message.get("success"):
                        raise EngineError(f"The page's event failed: {message['output'].get('error')}")
                    return


def _send_event(config: dict[str, Any], inputs: int) -> int:
    """The number of the event behind the Send button."""
    [button] = [part["id"] for part in config["components"] if part["props"].get("elem_id") == "gl-send"]
    numbers = [
        event["id"] for event in config["dependencies"]
        if [button, "click"] in [list(target) for target in event["targets"]] and len(event["inputs"]) == inputs
    ]  # fmt: skip
    if len(numbers) != 1:
        raise EngineError(
            "The Send button does not take these settings: the client and the page do not belong together."
        )
    return int(numbers[0])
