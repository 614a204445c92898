"""Options of a command line, and the names that one release of a target accepts.

``FRAMEWORK/TARGET-RELEASE.txt`` holds one name a line, read from the target's own parser: megatron-core
0.19.2's ``add_megatron_arguments`` and torchtitan 0.3.0's tyro parser over the configurations of
``torchtitan-0.3.0-models.csv``. Values are not checked here: ranges and relations are the exporter's work.
"""

import shlex
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

Option = tuple[str, ...]
"""One option with its values, unquoted: ``("--seq-length", "8192")``."""


@cache
def option_names(target: str, release: str) -> frozenset[str]:
    """Every option and subcommand of ``target`` at ``release``."""
    name = f"{target}-{release}.txt"
    (path,) = (
        file for folder in files("meshwright.frameworks").iterdir() if (file := folder / name).is_file()
    )
    return frozenset(path.read_text(encoding="utf-8").split())


def unknown_options(options: Iterable[Option], target: str, release: str) -> list[str]:
    """Names among ``options`` that the target does not know."""
    known = option_names(target, release)
    return sorted({option[0] for option in options} - known)


def assert_known(options: Iterable[Option], target: str, release: str) -> None:
    """Fail where an exporter, by its own mistake, wrote an option that the target does not have."""
    unknown = unknown_options(options, target, release)
    assert not unknown, f"{target} {release} has no options {unknown}"


def bash_array(name: str, options: Iterable[Option]) -> str:
    """Return a bash array with one quoted option a line."""
    lines = [f"  {shlex.join(option)}" for option in options]
    return "\n".join([f"{name}=(", *lines, ")"])
