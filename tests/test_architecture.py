"""The import rules, read from the code: app -> ui -> engine, never back; who may know torch, transformers, gradio."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [path.relative_to(ROOT) for folder in ("engine", "ui") for path in sorted((ROOT / folder).rglob("*.py"))]
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py", "core.py"}
LAYERS = ["errors", "config", "events", "randomness", "sampling", "verify", "drafters", "decode", "engine"]
"""Of these, each may import only those before it (modules not named here are used where they are needed)."""


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 15


@pytest.mark.parametrize("path", FILES, ids=str)
def test_each_side_imports_only_what_it_may(path: Path) -> None:
    allowed_transformers = path == Path("engine/loading/load.py") or path == Path("engine/loading/gguf_convert.py")
    if path.parts[0] == "engine":
        assert not packages(path) & {"gradio", "plotly", "ui", "app"}
        assert allowed_transformers or path.parts[1] == "bench" or "transformers" not in packages(path)
    else:
        assert not packages(path) & {"torch", "transformers", "app", "bitsandbytes"}
    assert path.name not in FORBIDDEN_NAMES


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "engine"], ids=str)
def test_the_engines_layers_point_one_way(path: Path) -> None:
    own = path.with_suffix("").parts[1]
    if own not in LAYERS:
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "engine" and len(parts) > 1 and parts[1] in LAYERS:
            assert LAYERS.index(parts[1]) <= LAYERS.index(own), f"{path} imports {name}"


def test_the_engine_without_a_model_needs_no_torch() -> None:
    """The page is up before torch is imported: what it imports of the engine must not import torch."""
    seen: set[Path] = set()
    todo = [Path("engine/serving/engine.py")]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for node in tree.body:  # the module's own imports, not those inside functions or `if TYPE_CHECKING`
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert not {name.split(".")[0] for name in names} & {"torch", "transformers"}, path
            todo += [p for name in names if (p := Path(name.replace(".", "/") + ".py")) in FILES]
    assert len(seen) > 3
