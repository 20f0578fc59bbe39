"""The jobs of an engine: those that wait, and those that take turns."""

from __future__ import annotations

from collections import deque

from engine.errors import Busy
from engine.serving.jobs import Job

MAX_ACTIVE = 4
"""Replies that take turns; further ones wait. Bounds the memory of running caches."""


class JobQueue:
    """The engine's lock guards it; `active` is the engine thread's own."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.active: list[Job] = []

    def add(self, job: Job, max_waiting: int) -> None:
        """Raises Busy."""
        others = [other for other in (*self.active, *self.waiting) if type(other) is type(job)]
        if job.busy_message and any(other.streams for other in others):
            raise Busy(job.busy_message)
        if len(self.waiting) >= max_waiting:
            raise Busy(f"{len(self.waiting)} requests are waiting already: please try again in a minute.")
        self.waiting.append(job)

    def admit(self) -> None:
        """Those that have waited longest take turns, as far as there are places."""
        while self.waiting and len(self.active) < MAX_ACTIVE:
            self.active.append(self.waiting.popleft())

    def remove_cancelled(self) -> list[Job]:
        """Of those that wait: nobody should wait for a place in order to leave the queue."""
        cancelled_jobs = [job for job in self.waiting if job.cancelled]
        for job in cancelled_jobs:
            self.waiting.remove(job)
        return cancelled_jobs

    def remove_all(self) -> list[Job]:
        jobs = [*self.active, *self.waiting]
        self.active, self.waiting = [], deque()
        return jobs
