"""What may import what, read from the code: arrows between rooms point downwards only, app -> ui -> engine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
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


TREES = {path: ast.parse(path.read_text("utf-8")) for path in FILES}


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """All modules that are imported: of `from a import b` also a:b, where that is one."""
    modules = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and node.level == 0, "imports are written out in full"
            modules |= {node.module, *filter(place, (f"{node.module}:{alias.name}" for alias in node.names))}
    return modules


def place(module: str) -> Path | None:
    path = ROOT.joinpath(*re.split("[.:]", module))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p in FILES), None)


USED = {path: imports(ast.walk(tree)) for path, tree in TREES.items()}


def test_rooms_import_only_what_the_tables_allow() -> None:
    for top, table in (("engine", ENGINE), ("ui", UI)):
        arrows: dict[str, set[str]] = defaultdict(set)
        for path, modules in USED.items():
            if (parts := module_of(path).split("."))[0] == top and len(parts) > 1:
                rooms = {one[2] for module in modules if (one := re.match(rf"({top})[.:](\w+)", module))}
                arrows[parts[1]] |= rooms - {parts[1]}
        allowed = {room: set(below.split()) for room, below in table.items()}
        assert len(arrows) > 20 and arrows == allowed, "the table allows this, and nothing that nobody needs"
        assert list(TopologicalSorter(allowed).static_order()), "raises CycleError where arrows run in a circle"


def test_the_engine_knows_no_page_and_the_page_no_tensors_and_only_the_engines_faces() -> None:
    for path, modules in USED.items():
        parts, libraries = path.relative_to(ROOT).parts, {re.split("[.:]", module)[0] for module in modules}
        if parts[0] == "engine":
            assert not libraries & {"gradio", "plotly", "ui", "app"}, path
            may = parts[1] == "bench" or path.name == "transformers_load.py"
            assert may or "transformers" not in libraries, path
        else:
            assert not libraries & {"torch", "transformers", "bitsandbytes"}, path
            others = {module.split(":")[0] for module in modules if module.startswith("engine.")} - FACES
            measures = "bench" in parts and {module.split(".")[1] for module in others} <= {"bench", "cli"}
            assert not others or measures, path  # the page's own bench is built like the engine's


def test_faces_name_what_is_there() -> None:
    import engine

    assert all(getattr(engine, name) is not None for name in engine.__all__)
    assert {"Engine", "EngineConfig", "DecodingParams", "Message", "Round"} <= set(engine.__all__)


def test_the_code_can_be_looked_over() -> None:
    for folder, count in Counter(path.parent for path in FILES).items():
        assert count <= MOST_FILES, folder
    assert not {path.name for path in FILES} & {"utils.py", "helpers.py", "common.py", "misc.py", "core.py"}
    nodes = ast.walk(TREES[ROOT / "engine" / "decode.py"])
    [round_] = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == "round"]
    assert (round_.end_lineno or 0) - round_.lineno + 1 <= 45, "one round fits on a page"


def test_the_engine_without_a_model_needs_no_torch() -> None:
    """The page is up before torch is imported: what it imports of the engine must not import torch as it is loaded."""
    stub = ast.parse((ROOT / "engine" / "__init__.pyi").read_text("utf-8"))
    todo = {place(f"engine.{node.module}") for node in stub.body if isinstance(node, ast.ImportFrom)} | {
        *map(place, FACES)
    }
    seen: set[Path] = set()
    while todo:
        if (path := todo.pop()) and path not in seen:
            seen.add(path)
            modules = imports(TREES[path].body)
            assert not {re.split("[.:]", module)[0] for module in modules} & {"torch", "transformers"}, path
            todo |= {place(".".join(re.split("[.:]", module)[:n])) for module in modules for n in (1, 2, 3)}
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
    command, path = [sys.executable, "-c", ANSWERS], {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "8", run.stderr
