"""Load a stack from its name, ``name@release`` or a file. Ours are ``files/NAME-RELEASE.yaml`` of the package.

The keys of a file are the fields of ``Stack``, each with the type that the field has; what a file leaves out
is the field's default, or with ``like: NAME@RELEASE`` what that stack has. A name without a release means the newest
that we have facts of.
"""

from dataclasses import MISSING, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, create_model

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.files.meshwright_file import FileKind, read_keys
from meshwright.plans.files.strict_types import Strict, one_of
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_text import read_file
from meshwright.plans.forms.short import Axis, RecomputeName, RecomputeOperator, ShardingName
from meshwright.plans.forms.spellings import stack_in_our_words
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.stack import OWN_STACK, Stack, file_fields
from meshwright.workload.adapter import FORMS as FORMS_OF_ADAPTERS
from meshwright.workload.base_types import QUANTISED
from meshwright.workload.fp8_recipe import Fp8Recipe
from meshwright.workload.optimizers import OPTIMIZERS
from meshwright.workload.optimizers.muon import SCALES

DEFAULT_STACK = "megatron-core"
LIKE = "like"
STACK = FileKind("stack", ("name", "release", "source"), form="like: megatron-core, and what differs from it")
SUFFIXES = (".yaml", ".yml")

ScheduleName: Any = Literal.__getitem__(tuple(SCHEDULES))
ContextName = Annotated[
    str, one_of(lambda: (f"{form}{inner}" for form in CONTEXT_FORMS for inner in ("", "+ulysses")))
]
StateKey = Literal["gradient", "reduce", "gather", "master", "first_moment", "second_moment"]
OptimizerName: Any = Literal.__getitem__(tuple(OPTIMIZERS))
ScaleName: Any = Literal.__getitem__(SCALES)
AdapterForm: Any = Literal.__getitem__(FORMS_OF_ADAPTERS)
QuantisedType: Any = Literal.__getitem__(tuple(QUANTISED))
FormName: Any = Literal.__getitem__(tuple(FORMS))
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}$")]
Bytes = Annotated[int, Field(ge=1, le=64)]
NARROWED: dict[str, Any] = {
    "name": Name,
    "release": Name,
    "source": Annotated[str, Field(min_length=1, max_length=2000)],
    "schedules": tuple[ScheduleName, ...],
    "vocabularies": tuple[FormName, ...],
    "schedule_knobs": tuple[Literal["memory_limit", "unit", "in_flight"], ...],
    "shardings": tuple[ShardingName, ...],
    "pipeline_shardings": tuple[ShardingName, ...],
    "reduces_each_micro_batch": tuple[Literal["none", "zero2", "zero3"], ...],
    "recomputes": tuple[Literal[RecomputeName, RecomputeOperator], ...],
    "fp8_recipes": Annotated[tuple[Fp8Recipe, ...], Field(min_length=1)],
    "rank_orders": tuple[tuple[Axis, Axis, Axis, Axis, Axis], ...],
    "selective_recompute": tuple[RecomputeOperator, ...],
    "norm_products": tuple[Literal["qkv", "ffn_up", "q_b", "kv_b"], ...],
    "contexts": tuple[ContextName, ...],
    "gradient_types": tuple[Literal["fp32", "16-bit"], ...],
    "reduce_types": tuple[Literal["fp32", "16-bit"], ...],
    "gather_types": tuple[Literal["fp32", "16-bit", "fp8"], ...],
    "master_types": tuple[Literal["fp32", "fp16", "none"], ...],
    "moment_types": tuple[Literal["fp32", "bf16", "fp16", "fp8"], ...],
    "tied_types": tuple[tuple[StateKey, ...], ...],
    "joint_types": tuple[tuple[StateKey, ...], ...],
    "narrow_shardings": tuple[ShardingName, ...],
    "optimizers": Annotated[tuple[OptimizerName, ...], Field(min_length=1)],
    "muon_shardings": tuple[ShardingName, ...],
    "muon_scale": ScaleName,
    "adapter_forms": tuple[AdapterForm, ...],
    "base_types": tuple[QuantisedType, ...],
    "joint_matrices": tuple[Literal["qkv", "ffn_up", "shared_up", "expert_up"], ...],
    "vocab_multiple": Annotated[int, Field(ge=1, le=2**20)],
    "host_s_per_layer": Annotated[float, Field(ge=0, le=1)],
    "expert_host_s": Annotated[float, Field(ge=0, le=1)],
    "elementwise_factor": Annotated[float, Field(gt=0, le=1000)],
    "fsdp_communication_factor": Annotated[float, Field(gt=0, le=1000)],
    **dict.fromkeys(
        (
            "logit_bytes",
            "parameter_bytes",
            "gradient_bytes",
            "optimizer_bytes",
            "gradient_communication_bytes",
            "parameter_wire_bytes",
        ),
        Bytes,
    ),
}


def stack_names() -> tuple[str, ...]:
    """Every stack that we have facts of, without its release."""
    return tuple(sorted({name for name, _ in _packaged()}))


def load_stack(name_or_path: str | Path = DEFAULT_STACK) -> Stack:
    """``name``, ``name@release`` or the path of a stack file. Raises InputError with every problem."""
    name_or_path = stack_in_our_words(name_or_path)
    path = Path(name_or_path)
    if isinstance(name_or_path, Path) or path.suffix in SUFFIXES or "/" in name_or_path:
        return parse_stack(read_file(path, "stack", "check the path, or name a stack"), str(path))
    name, _, release = name_or_path.strip().partition("@")
    return _packaged_stack(*_find(name.strip(), release.strip(), name_or_path))


def own_stack(other: Stack) -> Stack:
    """Meshwright's own stack, which lets copies of tokens travel as another one does."""
    return replace(load_stack(OWN_STACK), deduplicates_exchange=other.deduplicates_exchange)


def parse_stack(text: str, where: str = "stack") -> Stack:
    """Parse the text of a stack file. Raise InputError with every problem."""
    problems: list[Problem] = []
    spec = validated(_file_type(), _keys(text, where, problems), others=problems)
    return Stack(**{field.name: getattr(spec, field.name) for field in file_fields()})


def load_stack_until(name: str, release: str) -> Stack:
    """Return the newest release of a known stack that is no newer than ``release``, else the oldest."""
    releases = sorted((known for stack, known in _packaged() if stack == name), key=_order)
    before = [known for known in releases if _order(known) <= _order(release)]
    return _packaged_stack(name, before[-1] if before else releases[0])


def _keys(text: str, where: str, problems: list[Problem]) -> dict[str, Any]:
    """Return the keys of a stack file, with those of the packaged stack that it is like. Raises InputError.

    Keys without a value are added to ``problems``.
    """
    keys = read_keys(text, where, STACK, problems)
    if LIKE not in keys:
        return keys
    like = keys.pop(LIKE)
    if not isinstance(like, str):
        raise InputError(Problem(LIKE, like, "must name a stack", f"like: {load_stack().id}"))
    name, _, release = stack_in_our_words(like).strip().partition("@")
    entry = files("meshwright.stack").joinpath("files", _packaged()[_find(name, release, like)])
    return _keys(entry.read_text(encoding="utf-8"), like, problems) | keys


def _find(name: str, release: str, given: str) -> tuple[str, str]:
    releases = sorted(known for stack, known in _packaged() if stack == name.lower())
    if not releases:
        rule = "no stack of this name is known; `generic` stands for any other"
        raise InputError(Problem("stack", given, rule, nearest(name, stack_names())))
    if release and release not in releases:
        rule = f"no facts about this release of {name}"
        raise InputError(Problem("stack", given, rule, nearest(release, releases)))
    return name.lower(), release or max(releases, key=_order)


def _order(release: str) -> tuple[tuple[int, str], ...]:
    """Releases by number where they are numbers: 0.9 before 0.19."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in release.split("."))


@cache
def _packaged() -> dict[tuple[str, str], str]:
    """(name, release) → file name. The release is what stands behind the last hyphen."""
    names = [entry.name for entry in files("meshwright.stack").joinpath("files").iterdir()]
    stems = {name.removesuffix(".yaml"): name for name in names if name.endswith(".yaml")}
    return {(stem.rpartition("-")[0], stem.rpartition("-")[2]): name for stem, name in stems.items()}


@cache
def _packaged_stack(name: str, release: str) -> Stack:
    entry = files("meshwright.stack").joinpath("files", _packaged()[name, release])
    return parse_stack(entry.read_text(encoding="utf-8"), f"{name}@{release}")


@cache
def _file_type() -> type[Strict]:
    """Return the strict type of a stack file, derived from the fields of ``Stack``."""
    hints = get_type_hints(Stack)
    keys: dict[str, Any] = {
        field.name: (
            NARROWED.get(field.name, hints[field.name]),
            ... if field.default is MISSING else field.default,
        )
        for field in file_fields()
    }
    return create_model("StackFile", __base__=Strict, **keys)
