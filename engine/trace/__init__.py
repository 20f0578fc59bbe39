"""A reply's events as JSON and back: how it is kept outside the engine."""

from engine.trace.reply import Row, events, row

__all__ = ["Row", "events", "row"]
