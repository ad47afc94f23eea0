"""Imports point inward only, and each room keeps to its job (CONTRIBUTING.md draws the rings)."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import onward

PACKAGE = Path(onward.__file__).parent

# From inside to outside. Rooms of one ring do not know each other.
RINGS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("core",),
    ("ports",),
    ("testing.faults",),
    ("store", "processes", "native", "config", "testing"),
    ("recovery",),
    ("supervisor",),
    ("api",),
    ("supervisor.main",),  # where the daemon is served
    ("cli",),
    ("__main__",),
)
RING_OF = {room: ring for ring, rooms in enumerate(RINGS) for room in rooms}

# Rooms that take nothing from outside but these packages and, of the standard library, nothing that is named here.
PURE = {
    "errors": (frozenset[str](), frozenset(sys.stdlib_module_names)),
    "core": (
        frozenset({"orjson"}),
        frozenset({"asyncio", "io", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}),
    ),
}

# Who may name a file of the run directory in code.
OWNERS = {"journal.jsonl": {"store"}, "meta.json": {"store"}}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room of a module of Onward: the longest name in RINGS that fits. None for the package itself."""
    inside = module.split(".")[1:]
    if not inside:
        return None
    names = [".".join(inside[:depth]) for depth in range(len(inside), 0, -1)]
    return next((name for name in names if name in RING_OF), inside[0])


def imports_of(module: str, tree: ast.AST, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Every import of a module, those in functions too: (line, absolute name)."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from onward.testing import faults` imports onward.testing.faults.
            names = [f"{source}.{alias.name}" for alias in node.names]
            yield from ((node.lineno, name if is_module(name) else source) for name in names)


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def wrong_import(module: str, imported: str) -> str | None:
    """Why `module` may not import `imported`; None if it may."""
    room, top = room_of(module), imported.partition(".")[0]
    if top != "onward":
        return wrong_foreign(room, top)
    target = room_of(imported)
    if target is None or room is None or target == room:
        return None
    if RING_OF[target] < RING_OF[room]:
        return None
    inner = ", ".join(name for rooms in RINGS[: RING_OF[room]] for name in rooms) or "nothing"
    return f"{room} may import {inner}; not {target}"


def wrong_foreign(room: str | None, top: str) -> str | None:
    if room not in PURE:
        return None
    packages, forbidden = PURE[room]
    if top in forbidden or (top not in packages and top not in sys.stdlib_module_names):
        return f"{room} is pure: it does not import {top}"
    return None


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_imports_point_inward(file: Path) -> None:
    module, tree = name_of(file), ast.parse(file.read_text(), file)
    if (room := room_of(module)) is not None:
        assert room in RING_OF, f"{file}: give the room {room!r} its ring in RINGS"
    wrong = [
        f"{file}:{line}: imports {imported}: {reason}"
        for line, imported in imports_of(module, tree, is_package=file.name == "__init__.py")
        if (reason := wrong_import(module, imported))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_files_of_the_run_directory_are_named_by_their_owner_only(file: Path) -> None:
    room, tree = room_of(name_of(file)), ast.parse(file.read_text(), file)
    wrong = [
        f"{file}:{node.lineno}: {found[0]} belongs to {', '.join(OWNERS[found[0]])}/: ask the RunStore"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        # A whole path, not a sentence that mentions one.
        if (found := re.search(r"(?<![^/])(?:journal\.jsonl|meta\.json)$", node.value)) and " " not in node.value
        if room not in OWNERS[found[0]]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("onward.core.fold", "import orjson, dataclasses", None),
        ("onward.core.fold", "from onward.errors import BadRequest", None),
        ("onward.core.fold", "import structlog", "core is pure: it does not import structlog"),
        ("onward.core.fold", "def f():\n    import time", "core is pure: it does not import time"),
        ("onward.core.fold", "from onward.ports import clock", "core may import errors; not ports"),
        ("onward.store.journal", "from onward.testing import faults", None),
        ("onward.store.journal", "from onward.testing.faults import hit", None),
        ("onward.store.journal", "from onward.testing.clock import FakeClock", "not testing"),
        ("onward.store.journal", "from .lock import RunsLock", None),
        ("onward.store.journal", "from ..native import loop", "not native"),
        ("onward.native.tools.shell", "from onward.processes import spawner", "not processes"),
        ("onward.recovery.boot", "from onward.store import runs", None),
        ("onward.recovery.boot", "from onward.supervisor import entry", "not supervisor"),
        ("onward.cli.main", "from onward import __version__", None),
        ("onward.cli.main", "from onward.api.app import app", None),
    ],
)
def test_the_rule_itself(module: str, source: str, reason: str | None) -> None:
    found = [wrong_import(module, imported) for _, imported in imports_of(module, ast.parse(source))]
    wrong = [text for text in found if text]
    assert bool(wrong) == bool(reason), wrong
    assert not reason or reason in wrong[0]
