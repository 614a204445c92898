"""Which noun a name means, and its description: a plan file, a model, a cluster or a stack."""

from pathlib import Path
from typing import Any

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.describe import describe_cluster
from meshwright.cluster.load import load_cluster, parse_cluster
from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError, Problem, nearest
from meshwright.model.describe import describe_model
from meshwright.model.load import load_model, zoo_names
from meshwright.plan.describe import describe_plan
from meshwright.plan.files import load_plan
from meshwright.plan.resolve import beside
from meshwright.plan.text import read_file, read_mapping
from meshwright.stack.describe import describe_stack
from meshwright.stack.load import load_stack, stack_names
from meshwright.workload.workload import MAX_SEQ_LEN

YAML = (".yaml", ".yml")


def describe_anything(name: str, *, long: bool, seq_len: int) -> dict[str, Any]:
    """Describe what ``name`` means. Raises InputError when it means nothing, with near names of all kinds."""
    if not 1 <= seq_len <= MAX_SEQ_LEN:
        rule = f"must be a whole number from 1 to {MAX_SEQ_LEN}"
        raise InputError(Problem("seq_len", seq_len, rule, "e.g. 4096"))
    if Path(name).suffix in YAML:
        return _describe_file(Path(name), long)
    if name.split("@")[0] in stack_names():
        return {"kind": "stack", **describe_stack(load_stack(name))}
    if parse_shorthand(name) is not None:
        return {"kind": "cluster", **describe_cluster(load_cluster(name))}
    if name in device_ids():
        return {"kind": "cluster", **describe_cluster(load_cluster(f"{name} x 1"))}
    if name in zoo_names() or "/" in name or name.endswith(".json") or _exists(Path(name)):
        return {"kind": "model", **describe_model(load_model(name), seq_len)}
    known = (*zoo_names(), *stack_names(), *device_ids())
    rule = "is no model, cluster (`DEVICE x COUNT`), stack or plan file that we know"
    raise InputError(Problem("name", name, rule, nearest(name, known)))


def _describe_file(path: Path, long: bool) -> dict[str, Any]:
    """A YAML file is a plan, a cluster or a stack; its keys say which."""
    text = read_file(path, "file", "check the path")
    keys = read_mapping(text, str(path))
    if "pools" in keys:
        return {"kind": "cluster", **describe_cluster(parse_cluster(text, str(path)))}
    if "release" in keys:
        return {"kind": "stack", **describe_stack(load_stack(path))}
    said = load_plan(path)
    plan = beside(said, path.parent)
    return {"kind": "plan", **describe_plan(plan, load_model(plan.model).architecture, long=long, said=said)}


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
