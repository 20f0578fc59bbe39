"""The two ends of one request: the engine thread puts events in, any other thread takes them out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from engine.errors import BROKEN, EngineError
from engine.events import Event, Finished, FinishReason

log = logging.getLogger(__name__)

Item = TypeVar("Item")
_Result = TypeVar("_Result")


def attempt(step: Callable[[], _Result]) -> _Result | Finished:
    """What the step returns, or the end of a reply that it broke: what nobody expected is logged, and
    told in our words."""
    try:
        return step()
    except EngineError as error:
        return Finished(FinishReason.ERROR, "", (), str(error))
    except Exception:
        log.exception("a reply failed")
        return Finished(FinishReason.ERROR, "", (), BROKEN)


class Channel(Generic[Item]):
    """The items of one request. Iterating yields them until the last, inclusive.

    A reader that is slow or gone never holds the engine: items wait in memory, at most a reply's worth. As a context
    manager it cancels on leaving, so a reader that fails half-way does not leave the engine working for nobody.
    """

    ends: ClassVar[tuple[type, ...]] = ()
    """What the last item is an instance of."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._cancelled = threading.Event()
        self._done = False

    def take(self, timeout_s: float) -> list[Item]:
        """All items that wait; blocks up to timeout_s for the first. [] on time-out or after the last was taken."""
        with self._changed:
            if not self._done:
                self._changed.wait_for(lambda: bool(self._items), timeout_s)
            items = list(self._items)
            self._items.clear()
            self._done = self._done or (bool(items) and isinstance(items[-1], self.ends))
            return items

    @property
    def done(self) -> bool:
        """True once the last item has been taken."""
        return self._done

    def cancel(self) -> None:
        """Ask the engine to end this request, which it does within a round. Safe at any time, and more than once."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def put(self, item: Item) -> None:
        """For the engine thread."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Item]:
        while not self._done:
            yield from self.take(timeout_s=3600.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class Stream(Channel[Event]):
    """The events of one reply, of which the last is `Finished`, CANCELLED after `cancel`."""

    ends = (Finished,)
