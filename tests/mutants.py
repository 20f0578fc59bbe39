"""How well the tests protect the code: one small mistake at a time is made in a copy of it, and a test should fail.

`python -m tests.mutants`, by hand: it takes a quarter of an hour. What survives is a property that no test states.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

from engine.storage.cache_folder import cache_folder

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """pattern: text that occurs exactly once in the file."""

    file: str
    pattern: str
    replacement: str


VERIFY, STOPPING, CONTROL = "engine/verify.py", "engine/stopping.py", "engine/control/controller.py"
SAMPLING, GGUF, DECODE = "engine/sampling.py", "engine/loading/gguf", "engine/decode.py"
CACHE, TEXT, STATE, HTML = "engine/networks/kv_cache.py", "engine/text/detokenizer.py", "ui/state.py", "ui/html"

# fmt: off
MUTANTS = tuple(Mutant(*row) for row in (
    # One number decides both the test of a draft and what takes its place.
    (VERIFY, "rng.uniform(position + i, Purpose.ACCEPT)", "rng.uniform(position + i, Purpose.TARGET)"),
    (VERIFY, "positive_part[proposal.token_ids[i]] = 0.0", "positive_part[proposal.token_ids[0]] = 0.0"),
    (VERIFY, "_last(k, target_probs[k], tests", "_last(k, target_probs[max(0, k - 1)], tests"),
    (SAMPLING, "if 0 < params.top_k < len(logs)", "if 1 < params.top_k < len(logs)"),
    (SAMPLING, "if reached >= top_p", "if reached > top_p"),
    (SAMPLING, "np.float32(params.min_p) * probs.max()", "np.float32(params.min_p)"),
    (SAMPLING, "torch.bincount(prefix[prompt_len:]", "torch.bincount(prefix"),
    # A draft behind a rejection is drawn again with the number that drew it before.
    ("engine/rng.py", "self.seed if purpose is not Purpose.DRAFT else _key(self.seed, self.begin)", "self.seed"),
    (CACHE, "min(-(-begin // BLOCK) * BLOCK, storage", "min(begin // BLOCK * BLOCK, storage"),
    (CACHE, "copy.ids = list(self.ids)", "copy.ids = self.ids"),
    ("engine/networks/model.py", "min(common_prefix(r.cache.ids, r.ids), len", "min(len(r.cache.ids), len"),
    (TEXT, "copy._decoder.setstate(self._decoder.getstate())", "copy._decoder.reset()"),
    (TEXT, "self._shown_count < LONGEST_CHARACTER", "self._shown_count <= LONGEST_CHARACTER"),
    (DECODE, "if token_id in tokenizer.stop_ids:\n                break", "if False:\n                break"),
    (DECODE, "self.params.max_new_tokens <= replied", "self.params.max_new_tokens < replied"),
    # A prompt that fills the context to the last token.
    (DECODE, "if len(ids) >= context.model.context_len", "if len(ids) > context.model.context_len"),
    (STOPPING, "if offset >= cut:", "if offset > cut:"),
    # A character of more than two tokens, of which the first ones go out alone.
    (STOPPING, "while num_safe and _ends_inside", "if num_safe and _ends_inside"),
    (CONTROL, "best.worth(rate) > 1.0 - rate * plain_s", "best.worth(rate) > 0.0"),
    (CONTROL, "if choice is not None and probe_due:", "if probe_due:"),
    # A drafter's first round, which also read the prompt, is taken for a usual one.
    ("engine/control/latency.py", "        elif count:", "        if count:"),
    # A file that was replaced by an older one of the same size.
    ("engine/storage/checksums.py", '["mtime_ns"] != entry["mtime_ns"]', '["mtime_ns"] > entry["mtime_ns"]'),
    (f"{GGUF}/convert.py", '"attn_k": config["num_key_value_heads"]', '"attn_k": config["num_attention_heads"]'),
    # Weights that the configuration does not know are left out in silence.
    (f"{GGUF}/files.py", "for key in [*expected, *actual] if", "for key in expected if"),
    (STATE, "place = losses[0].position", "place = losses[-1].position"),
    # A redo after a new message.
    (STATE, "next_key=turn.key + 1, past=past, future=())", "next_key=turn.key + 1, past=past)"),
    (f"{HTML}/render.py", "</span>' + escape(\n        part.text\n    )", "</span>' + part.text"),
    # A message that leaves no room for a reply.
    (f"{HTML}/render.py", "asking is not None and asking >= context_len", "asking is not None and asking > context_len"),
    (f"{HTML}/panel.py", '_rest(course) if writing else ""', "_rest(course)"),
    # "With a new seed" takes that of the settings, so it writes the same reply again.
    ("ui/chat/handlers.py", "turn.reply.seed if same_seed else None", 'turn.reply.seed if same_seed else "settings"'),
))
# fmt: on


def copy_tree(root: Path, tests: Path) -> None:
    """The tracked files as they are now, with this folder of tests."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    shutil.copytree(tests, root / "tests", ignore=shutil.ignore_patterns("__pycache__"))


def importers(sources: Mapping[str, str], file: str) -> set[str]:
    package, _, name = file.removesuffix(".py").replace("/", ".").rpartition(".")
    part = rf"from {re.escape(package)} import (?:\([^)]*|[^\n(]*)\b{name}\b"
    pattern = re.compile(rf"^\s*(?:(?:import|from) {re.escape(package)}\.{name}\b|{part})", re.MULTILINE)
    return {user for user, source in sources.items() if pattern.search(source)}


def tests_of(root: Path, file: str) -> list[str]:
    """Files of tests that import it, themselves or by a helper of theirs, or where none does, that import what imports
    it. Those of its name come first, then those that import it themselves, and little else."""
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.py")}
    users = importers(sources, file)
    helpers = {user for user in users if user.startswith("tests/") and "/test_" not in user}
    tests = {user for user in users | _users(sources, helpers) if "/test_" in user}
    tests = tests or {user for user in _users(sources, users) if "/test_" in user}
    imports = {test: len(re.findall(r"^from ", sources[test], re.MULTILINE)) for test in tests}
    return sorted(
        tests, key=lambda test: (Path(file).stem not in Path(test).stem, test not in users, imports[test], test)
    )


def _users(sources: Mapping[str, str], files: set[str]) -> set[str]:
    return {user for file in files for user in importers(sources, file)}


def outcome(root: Path, arguments: Sequence[str], limit_s: float) -> tuple[str, str]:
    """What became of it, and the test that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not browser", *arguments]
    cache = root / "cache"
    if cache_folder().is_dir():  # links, since what a mutant writes there would spoil later starts
        shutil.copytree(cache_folder(), cache, copy_function=os.symlink)
    with subprocess.Popen(
        command, cwd=root, env=os.environ | {"GREENLIGHT_CACHE": str(cache)}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "out of time", ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", out, re.MULTILINE)
    words = {0: "survived", 1: "killed", 5: "no test"}
    return words.get(process.returncode, f"status {process.returncode}"), failed[1] if failed else ""


def run(mutant: Mutant, tests: Path, options: Sequence[str], limit_s: float) -> str:
    """A line of the table."""
    with TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        root, begin = Path(folder), monotonic()
        copy_tree(root, tests)
        changed = (root / mutant.file).read_text("utf-8").replace(mutant.pattern, mutant.replacement)
        (root / mutant.file).write_text(changed, "utf-8")
        files = tests_of(root, mutant.file)
        word, test = outcome(root, [*options, *files], limit_s) if files else ("no test", "")
        seconds = monotonic() - begin
    change = " ".join(mutant.replacement.split())
    print(line := f"{word:11} {seconds:3.0f} s  {mutant.file:31} {change:62} {test}".rstrip(), flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--only", default="", help="those whose file or text holds this")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="another folder of tests")
    parser.add_argument("--limit", type=float, default=60, help="seconds for the tests of one mutant")
    parser.add_argument("--all", action="store_true", help="run the tests marked slow, too")
    args = parser.parse_args()
    for file, pattern, _ in MUTANTS:
        if (count := (ROOT / file).read_text("utf-8").count(pattern)) != 1:
            sys.exit(f"{file} holds this {count} times, not once: {pattern}")
    chosen = [mutant for mutant in MUTANTS if any(args.only in part for part in mutant)]
    with ThreadPoolExecutor(args.jobs) as pool:
        lines = list(pool.map(lambda mutant: run(mutant, args.tests, ["--all"] * args.all, args.limit), chosen))
    print("", *lines, f"killed {sum(line.startswith('killed') for line in lines)} of {len(lines)}", sep="\n")


if __name__ == "__main__":
    main()
