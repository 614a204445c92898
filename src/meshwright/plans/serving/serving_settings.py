"""Changes to a serving plan from the command line: ``concurrency=64``, ``tp=4``, ``fill.tp=4``, ``stack=vllm``.

A bare name is the key of that name wherever it lies. A key of a pool stands alone where the plan has one pool, and
behind the pool's name otherwise. Of two keys that exclude each other the one that is set stays.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.files.validation_messages import sections, validated
from meshwright.plans.files.yaml_text import read_value
from meshwright.plans.serving.serving_file import PoolSpec, ServingFile

FIXED = ("plan", "task", "pools", "edges", "lengths", "share")
EXCLUDED = {
    "workload.concurrency": ("workload.rate_per_s",),
    "workload.rate_per_s": ("workload.concurrency",),
    "workload.input_tokens": ("workload.lengths",),
    "workload.output_tokens": ("workload.lengths",),
}
"""Keys that go where another one is set."""


def with_settings(file: ServingFile, settings: Iterable[str]) -> ServingFile:
    """Return the file with every ``name=value`` of ``settings``. Raise InputError with all problems."""
    keys, problems = setting_paths(file), list[Problem]()
    changes: dict[str, object] = {}
    for setting in settings:
        name, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or not text:
            problems.append(Problem("set", setting, "must read name=value", "e.g. tp=4"))
        elif name not in keys:
            problems.append(Problem("set", name, "unknown key", nearest(name, keys)))
        elif keys[name] in changes:
            problems.append(Problem("set", setting, f"{keys[name]} is set twice", "set it once"))
        else:
            try:
                changes[keys[name]] = read_value(text, name)
            except InputError as error:
                problems += error.problems
    data: dict[str, Any] = file.model_dump(by_alias=True, exclude_none=True)
    for path, value in changes.items():
        for other in EXCLUDED.get(path, ()):
            if other not in changes:
                _container(data, other).pop(other.rpartition(".")[2], None)
        _container(data, path)[path.rpartition(".")[2]] = value
    if problems:
        raise InputError(problems)
    return validated(ServingFile, data)


def setting_paths(file: ServingFile) -> Mapping[str, str]:
    """Return the path of each key that can be set, by every name that it has."""
    found = {name: path for name, path in sections(ServingFile).items() if not path.startswith("pools")}
    found |= {path: path for path in found.values()}
    for pool in file.pools:
        for name, path in sections(PoolSpec).items():
            whole = f"pools.{pool}.{path}"
            names = (f"{pool}.{name}", whole, *((name, path) if len(file.pools) == 1 else ()))
            found |= dict.fromkeys(names, whole)
    return {
        name: path
        for name, path in found.items()
        if not path.startswith(("edges", "workload.lengths")) and name not in FIXED
    }


def _container(data: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the mapping that holds the last key of a path; it is made where it is absent."""
    *above, _ = path.split(".")
    for key in above:
        inner = data.get(key)
        if not isinstance(inner, dict):
            inner = {}
            data[key] = inner
        data = inner
    return data
