"""The package's source as syntax trees, for the tests of house rules."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meshwright"
PROGRAMS = {PACKAGE / "frameworks" / "target_checks" / "scripts", PACKAGE / "launchers" / "scripts"}


def modules() -> list[Path]:
    """Every module of the package, without the programs that run in the Python of an export's target or of a job."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent not in PROGRAMS)


def module_name(path: Path) -> str:
    """Dotted name: ``meshwright.plans.files.plan_file``; a package's ``__init__`` has the package's name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(name: str) -> str:
    """The package (or lone module) right below ``meshwright``: ``plan`` for ``meshwright.plans.files.plan_file``."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree."""
    return tuple(ast.walk(tree(path)))


@cache
def file_imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of every import in a file; name is empty for ``import module``."""
    return tuple(imports(nodes(path)))


def imports(children: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """(module, name) of the imports among nodes; name is empty for ``import module``."""
    for child in children:
        if isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports are not used"
            yield from ((child.module or "", alias.name) for alias in child.names)


def imported_module(module: str, name: str) -> str:
    """The module that ``from module import name`` loads: ``module.name`` where that is a module."""
    inner = PACKAGE.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else module


@cache
def own_imports(path: Path) -> set[str]:
    """Return the package's modules that a module imports; the package itself names its functions for type checkers."""
    every = file_imports(path)
    if path == PACKAGE / "__init__.py":
        body = [child for child in tree(path).body if not isinstance(child, ast.If)]
        every = tuple(imports(ast.walk(ast.Module(body, []))))
    found = {imported_module(m, n) if n else m for m, n in every if room_of_ours(m)}
    return found - {module_name(path)}


def room_of_ours(module: str) -> bool:
    """Whether a dotted name is the package or lies in it."""
    return module.split(".")[0] == "meshwright"
