"""What may import what, read from the code: arrows between rooms point downwards only, app -> ui -> engine."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "app.py", *sorted((ROOT / "engine").rglob("*.py")), *sorted((ROOT / "ui").rglob("*.py"))]

ENGINE: Mapping[str, str] = {
    "errors": "",
    "config": "errors",
    "events": "config",
    "stats": "events",
    "hardware": "errors",
    "storage": "errors",
    "kernels": "errors hardware storage",
    "rng": "config kernels",
    "sampling": "config errors kernels",
    "text": "config errors",
    "trace": "config errors events",
    "networks": "errors kernels sampling",
    "loading": "config errors hardware kernels networks storage text",
    "heads": "config errors kernels loading networks sampling",
    "drafters": "config errors heads networks rng sampling text",
    "verify": "config drafters rng",
    "stopping": "events",
    "logprobs": "config drafters events networks verify",
    "control": "config drafters events networks rng",
    "rounds": "events networks",
    "decode": "config control drafters errors events logprobs networks rng rounds sampling stopping text verify",
    "preflight": "config errors hardware heads loading networks storage",
    "serving": "config control decode drafters errors events heads loading networks preflight",
    "check": "preflight",
    "fetch": "loading",
    "lab": "config control decode drafters errors events hardware networks rounds serving stats text trace",
    "cli": "config errors",
    "bench": "cli config drafters errors events hardware lab loading networks serving stats",
    "train": "cli config errors hardware heads loading networks rng sampling text",
}
"""What each room of the engine may import besides itself. Nothing that a reply needs knows lab, cli, bench or train."""

UI: Mapping[str, str] = {
    "controller_history": "",
    "strings": "",
    "state": "controller_history",
    "sessions": "state",
    "controls": "strings",
    "html": "controller_history state strings",
    "eta": "html",
    "examples": "html",
    "jobs": "html",
    "bundle": "examples",
    "theme": "bundle examples",
    "charts": "html state strings",
    "recording": "examples html state strings",
    "record": "examples recording",
    "updates": "html recording state",
    "inspect": "controller_history controls html recording state strings",
    "chat": "charts controls eta html inspect jobs recording sessions state strings updates",
    "settings": "chat controls html strings",
    "race": "charts chat controls examples html inspect jobs recording sessions state strings updates",
    "learn": "charts chat controls examples html inspect jobs recording sessions state strings updates",
    "when": "charts chat controls eta html jobs sessions strings updates",
    "models": "chat controls eta html sessions strings updates",
    "api": "chat controls jobs sessions",
    "layout": "api bundle charts chat controls examples html learn models race recording settings state strings theme "
    "updates when",
    "bench": "charts controls html layout race recording state updates",
}
"""The same for the page, in rooms of `ui`."""

FACES = {"engine", "engine.lab", "engine.trace"}
"""All that the page may import of the engine: what these packages name in their __init__."""

MOST_FILES = 16
"""Files in a folder that a newcomer can still look over."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of everything that a file imports anywhere in it; name "" for `import module`."""
    pairs: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            pairs += [(node.module or "", alias.name) for alias in node.names]
    return tuple(pairs)


def exists(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def rooms(path: Path, top: str) -> set[str]:
    """The rooms of `top` that a file imports from: `engine.text.tokenizer` lies in the room text."""
    modules = {f"{module}.{name}" if exists(f"{module}.{name}") else module for module, name in imports(path)}
    return {module.split(".")[1] for module in modules if module.startswith(f"{top}.")}


def arrows(top: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        parts = module_of(path).split(".")
        if parts[0] == top and len(parts) > 1:
            found[parts[1]] |= rooms(path, top) - {parts[1]}
    return dict(found)


def libraries(path: Path) -> set[str]:
    return {module.split(".")[0] for module, _ in imports(path)}


def test_rooms_import_only_what_the_tables_allow() -> None:
    for top, table in (("engine", ENGINE), ("ui", UI)):
        found, allowed = arrows(top), {room: set(below.split()) for room, below in table.items()}
        assert len(found) > 20 and set(found) == set(allowed), "each room has its line"
        too_many = {room: more for room, below in found.items() if (more := below - allowed[room])}
        assert not too_many, f"{top}: not in the table"
        unused = {room: less for room, below in allowed.items() if (less := below - found[room])}
        assert not unused, f"{top}: the table allows what nobody needs any more"
        assert list(TopologicalSorter(allowed).static_order()), "raises CycleError where arrows run in a circle"


def test_the_engine_knows_no_page_and_the_page_no_tensors() -> None:
    for path in FILES:
        parts, used = path.relative_to(ROOT).parts, libraries(path)
        if parts[0] == "engine":
            assert not used & {"gradio", "plotly", "ui", "app"}, path
            may = parts[1] == "bench" or (path.name == "transformers_load.py")
            assert may or "transformers" not in used, path
        else:
            assert not used & {"torch", "transformers", "bitsandbytes"}, path


def test_the_page_imports_only_the_engines_faces() -> None:
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "engine":
            continue
        measures = "bench" in path.parts  # the page's own bench is built like the engine's
        of_engine = {module for module, _ in imports(path) if module.split(".")[0] == "engine"}
        others = {module for module in of_engine - FACES if not (measures and module.split(".")[1] in ("bench", "cli"))}
        assert not others, path


def test_faces_name_what_is_there() -> None:
    import engine

    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert {"Engine", "EngineConfig", "DecodingParams", "Message", "Round"} <= set(engine.__all__)


def definitions(top: str) -> Iterator[tuple[str, str]]:
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == top:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, module_of(path)


def test_no_class_name_stands_twice() -> None:
    for top in ("engine", "ui"):
        names = list(definitions(top))
        twice = {name for name, count in Counter(name for name, _ in names).items() if count > 1}
        assert not twice, [pair for pair in names if pair[0] in twice]


def test_folders_can_be_looked_over() -> None:
    for folder, count in Counter(path.parent for path in FILES).items():
        assert count <= MOST_FILES, folder
    assert not {path.name for path in FILES} & {"utils.py", "helpers.py", "common.py", "misc.py", "core.py"}


def test_one_round_fits_on_a_page() -> None:
    tree = ast.parse((ROOT / "engine" / "decode.py").read_text(encoding="utf-8"))
    [round_] = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "round"]
    assert (round_.end_lineno or 0) - round_.lineno + 1 <= 45 and len(round_.args.args) <= 3


def top_level_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Those that run with the module: not in functions, nor for type checkers alone."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_the_engine_without_a_model_needs_no_torch() -> None:
    """The page is up before torch is imported: what it imports of the engine must not import torch."""
    faces = [ROOT.joinpath(*face.split("."), "__init__.py") for face in sorted(FACES)]
    stub = ast.parse((ROOT / "engine" / "__init__.pyi").read_text(encoding="utf-8"))
    modules = [node.module for node in stub.body if isinstance(node, ast.ImportFrom) and node.module]
    todo = [*faces, *(ROOT.joinpath("engine", *module.split(".")).with_suffix(".py") for module in modules)]
    seen: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for module, name in top_level_imports(path):
            assert module.split(".")[0] not in ("torch", "transformers"), path
            for one in (module, f"{module}.{name}"):
                place = ROOT.joinpath(*one.split("."))
                todo += [p for p in (place.with_suffix(".py"), place / "__init__.py") if p in FILES]
    assert len(seen) > 10


ANSWERS = """
from engine import DecodingParams, Message, SamplingParams
from tests.fakes import fake_engine, hashed_logits
engine = fake_engine(hashed_logits(257, 1))
params = DecodingParams(SamplingParams(seed=1), "ngram", 3, max_new_tokens=8)
print(len([*engine.stream([Message("user", "hello hello")], params)][-1].token_ids))
engine.close()
"""


def test_the_engine_answers_with_lab_bench_and_train_deleted(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    for entry in (ROOT / "engine").iterdir():
        if entry.name not in ("lab", "bench", "train", "cli", "__pycache__"):
            (tmp_path / "engine" / entry.name).symlink_to(entry)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    run = subprocess.run(
        [sys.executable, "-c", ANSWERS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == "8", run.stderr
