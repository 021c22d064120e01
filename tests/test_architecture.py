"""The rules that a machine can hold: import order, one door a package, docstrings, file size."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = """
rng corpus tokens inputs encoder objectives pretraining evaluation interop tracking config run study
report sweep __main__
""".split()
FREE = {"inspect", "bench", "predict"}  # entry points: import anything, imported by nothing
DOORS = {
    "wandb": {"tracking/loggers.py"},
    "transformers": {"interop/"},
    "matplotlib": {"report/"},
    "hydra": {"config/compose.py", "config/failures.py", "__main__.py", "study/"},
    "pytorch_lightning": {"pretraining/", "inputs/datamodule.py", "tracking/lightning.py"},
    "numba": {"inputs/compiled.py"},
}
FILES = sorted((ROOT / "ablate").rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "ablate").as_posix()


def room_of(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            found += [f"{base}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_left(path):
    room = name_of(path).split("/")[0].removesuffix(".py")
    if room in FREE or room == "__init__" or path.name == "__main__.py":
        return
    for name in imports(path):
        if name.split(".")[0] == "ablate":
            target = room_of(name)
            assert target not in FREE, f"{name_of(path)} imports the entry point {name}"
            assert ORDER.index(target) <= ORDER.index(room), f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_third_party_packages_have_one_door(path):
    room = name_of(path).split("/")[0].removesuffix(".py")
    for name in imports(path):
        doors = DOORS.get(name.split(".")[0])
        if doors is not None and room not in FREE:
            assert any(name_of(path).startswith(door) for door in doors), f"{name_of(path)}: {name}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_module_opens_with_a_docstring(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), name_of(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file_is_read_in_one_sitting(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_public_functions_of_more_than_a_few_statements_have_docstrings():
    missing = []
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            public = isinstance(node, ast.FunctionDef) and node.name[0] != "_"
            if public and len(node.body) > 4 and not ast.get_docstring(node):
                missing.append(f"{name_of(path)}:{node.name}")
    assert not missing
