"""Every failure that the engine reports on purpose. Each message says what happened and what to do."""


class EngineError(Exception):
    """Base of all expected failures; `str(error)` is one plain sentence fit for a person."""


class InvalidParams(EngineError):
    """A setting is out of range or of the wrong type. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ContextFull(EngineError):
    """The prompt alone leaves no room for a reply. Carries both lengths, in tokens."""

    def __init__(self, prompt_tokens: int, context_len: int) -> None:
        super().__init__(
            f"The conversation has {prompt_tokens} tokens and the model reads at most {context_len}: "
            "shorten the message or start a new conversation."
        )
        self.prompt_tokens = prompt_tokens
        self.context_len = context_len


class NumericalError(EngineError):
    """The model produced logits from which no distribution can be made (NaN, or nothing left to draw)."""


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust broke where it should have raised an error; this is no Exception."""
    return type(error).__name__ == "PanicException"


class LoadError(EngineError):
    """A model could not be found, fetched, checked or loaded."""


class NotReady(EngineError):
    """The engine is still loading, has failed to load, or has been closed."""


class Busy(EngineError):
    """More requests wait than the engine accepts."""


class TraceError(EngineError):
    """A kept reply cannot be read: damaged, made up, or of another version."""


BROKEN = "Something in the engine broke and ended this reply (see the log); please try again."
"""What a person reads when it was nobody's fault but ours."""
