"""Describe a noun by name or file: a plan, a model, a cluster, a stack or a checkpoint."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.describe import describe_cluster
from meshwright.cluster.file_errors import HABITUAL_KEYS, IN_A_POOL
from meshwright.cluster.file_schema import ClusterFile
from meshwright.cluster.load import load_cluster, parse_cluster
from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError, Problem, near_names, nearest
from meshwright.model.describe import describe_model
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_name, zoo_names
from meshwright.plans.describe import describe_plan
from meshwright.plans.files.plan_file import load_any_plan
from meshwright.plans.files.yaml_text import keys_read, read_file
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve, with_files_read, with_nouns_from
from meshwright.plans.rules.stack_limits import STACK_LIMITS
from meshwright.plans.serving.describe_serving import describe_serving
from meshwright.plans.serving.resolve_serving import resolve_serving
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.program.layout_description import describe_parts, describe_reshards
from meshwright.program.lowering.lower_plan import lower
from meshwright.stack.load import load_stack, stack_names
from meshwright.stack.stack import CHANGED_BY_PLANS, Stack, file_fields, file_rows
from meshwright.verbs.describe_checkpoint import describe_checkpoint, is_checkpoint
from meshwright.workload.workload import MAX_SEQ_LEN

MISSPELLED = 0.7
"""The part of its letters that a misspelled key shares with the one that is meant."""
SERVING_KEYS = frozenset(ServingFile.model_fields) - {"pools"}
"""Keys of serving plans; a cluster has pools, too."""
YAML = (".yaml", ".yml")


def describe_anything(
    name: str, *, long: bool, seq_len: int, plans: Sequence[str | Path] = ()
) -> dict[str, Any]:
    """Describe what ``name`` means. Raises InputError when it means nothing, with near names of all kinds.

    ``plans`` are asked whether they can go on from a checkpoint.
    """
    if is_checkpoint(name):
        return describe_checkpoint(Path(name), plans)
    if plans:
        rule = f"plans are compared with a checkpoint, and {name} is none"
        raise InputError(Problem("plan", str(plans[0]), rule, "run/checkpoints/step-00000120 for the name"))
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
    if zoo_name(name) or "/" in name or name.endswith(".json") or _exists(Path(name)):
        return {"kind": "model", **describe_model(load_model(name), seq_len)}
    known = (*zoo_names(), *stack_names(), *device_ids())
    rule = "is no model, cluster (`DEVICE x COUNT`), stack or plan file that we know"
    raise InputError(Problem("name", name, rule, nearest(name, known)))


def _describe_file(path: Path, long: bool) -> dict[str, Any]:
    """Describe the plan, cluster or stack of a YAML file, recognised by its keys."""
    text = read_file(path, "file", "check the path")
    kind = _kind_of_file(keys[0] for keys in keys_read(text) if len(keys) == 1)
    if kind == "cluster":
        return {"kind": "cluster", **describe_cluster(parse_cluster(text, str(path)))}
    if kind == "stack":
        return {"kind": "stack", **describe_stack(load_stack(path))}
    read = load_any_plan(path)
    if isinstance(read, ServingFile):
        return {"kind": "plan", **describe_serving(resolve_serving(with_nouns_from(read, path.parent)), read)}
    plan = with_files_read(read, path.parent)
    stack = load_stack(plan.stack) if long else None
    described = describe_plan(plan, load_model(plan.model).architecture, long=long, read=read, stack=stack)
    return {"kind": "plan", **described, **(_parts(plan) if long else {})}


def _parts(plan: ShortPlan | LongPlan) -> dict[str, Any]:
    """Return parts and changes of layout of a plan that has several layouts; null where the plan is illegal."""
    if isinstance(plan, ShortPlan) or len(plan.layouts) == 1:
        return {}
    try:
        resolved = resolve(plan)
    except InputError:
        return {"parts": None, "reshards": None}
    setting = resolved.setting
    program = lower(resolved.long, setting.model, setting.cluster, setting.workload, setting.stack)
    return {"parts": describe_parts(program), "reshards": describe_reshards(program)}


def _kind_of_file(keys: Iterable[str]) -> str:
    """Return the kind of file that has the most of these keys; a misspelled key counts like the one it is near to."""
    known = {
        "plan": {*ShortPlan.model_fields, *LongPlan.model_fields, *SERVING_KEYS},
        "cluster": {*ClusterFile.model_fields, *HABITUAL_KEYS, *IN_A_POOL},
        "stack": {field.name for field in file_fields()},
    }
    given = tuple(keys)
    return max(
        known, key=lambda kind: sum(bool(near_names(key, known[kind], alike=MISSPELLED)) for key in given)
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def describe_stack(stack: Stack) -> dict[str, object]:
    """All fields of the stack, with ``id``, the degrees of parallelism it offers and what its limits say."""
    axes = ("tp", "pp", "cp", "ep", "etp")
    facts = {name: value for name, value in asdict(stack).items() if name not in (*axes, *CHANGED_BY_PLANS)}
    lists = {name: list(value) for name, value in facts.items() if isinstance(value, tuple)}
    return {
        "id": stack.id,
        **facts,
        **lists,
        **file_rows(stack),
        "axes": {name: getattr(stack, name) for name in axes},
        "limits": [limit.reason for limit in STACK_LIMITS.get(stack.name, ())],
    }
