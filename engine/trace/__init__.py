"""A reply's events as JSON and back: how it is kept outside the engine."""
