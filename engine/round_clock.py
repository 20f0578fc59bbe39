"""Where the time of one round goes."""

from __future__ import annotations

from time import perf_counter


class RoundClock:
    """Seconds of one round by part. It stands still while the round waits for the target's pass."""

    def __init__(self, overhead_s: float) -> None:
        """overhead_s: seconds before now that this round pays for."""
        self._since_s = perf_counter() - overhead_s
        self._parts: dict[str, float] = {}

    def lap(self, part: str) -> float:
        """What was done since the last lap was this part; returns its seconds."""
        now_s = perf_counter()
        self._parts[part], self._since_s = now_s - self._since_s, now_s
        return self._parts[part]

    def restart(self) -> float:
        """What was done so far is not this round's; returns its seconds."""
        now_s = perf_counter()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        return elapsed_s

    def resume(self, verify_s: float) -> None:
        self._parts["verify"], self._since_s = verify_s, perf_counter()

    def seconds(self) -> dict[str, float]:
        """As the fields of `Round`. detail_s is apart, and not in total_s."""
        draft_s, verify_s, sample_s, detail_s, rest_s = (
            self._parts[part] for part in ("draft", "verify", "sample", "detail", "rest")
        )
        return {
            "draft_s": draft_s,
            "verify_s": verify_s,
            "sample_s": sample_s,
            "detail_s": detail_s,
            "total_s": draft_s + verify_s + sample_s + rest_s,
        }
