"""Resolve the element types of model states for a stack, and apply them to its counts of bytes.

A stack file counts bytes of its usual states. What a plan writes changes these counts, so that all that reads them
(ledger, collectives, closed forms, simulation) follows. Moments in fp16 and fp8 have one fp32 scale for each parameter,
or the piece of it that a rank owns, as in Transformer Engine's FusedAdam.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from meshwright.schedules.forward_only_lists import SCHEDULES
from meshwright.stack.stack import Stack
from meshwright.workload.adapter import Adapter
from meshwright.workload.optimizer_choice import ADAMW, Optimizer

HALF = "16-bit"
"""The type of the working parameters; a stack file writes it for bf16 or fp16, whichever the precision has."""
BYTES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "none": 0}
SCALED = ("fp16", "fp8")
SCALE_BYTES = 4
REMAINDER_BYTES = 2
"""Bytes of an fp32 master copy whose upper half is the bf16 parameter (Megatron's ``store_param_remainders``)."""
MOMENTS = ("first_moment", "second_moment")
OPTIMIZER_STATES = ("master", *MOMENTS)
KEYS = ("gradient", "reduce", "gather", *OPTIMIZER_STATES)


COUNTS = (
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "gradient_communication_bytes",
    "parameter_wire_bytes",
    "optimizer_traffic_bytes",
    "scaled_moments",
    "optimizer",
    "matrix_optimizer_bytes",
    "matrix_traffic_bytes",
    "shardings",
    "pipeline_shardings",
    *("schedules", "schedule_knobs", "written_lists", "vocabularies", "step_validations"),
    *("gathers", "pipeline_gathers", "recomputes", "offloads_activations", "state_offloads", "rank_orders"),
    "base",
)
"""Facts of a stack that follow from the types of its states, or from its optimizer."""


def half_of(precision: str) -> str:
    """Return the 16-bit type of a precision."""
    return "fp16" if precision == "fp16" else "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTypes:
    """An element type for each key of ``dtypes``."""

    gradient: str
    reduce: str
    gather: str
    master: str
    first_moment: str
    second_moment: str

    def to_data(self) -> dict[str, str]:
        """Return the types by key."""
        return {key: getattr(self, key) for key in KEYS}


def usual_types(stack: Stack, precision: str) -> StateTypes:
    """Return the types of a plan that writes none."""
    stack, half = stack.base or stack, half_of(precision)
    return StateTypes(
        gradient=half if stack.gradient_bytes == BYTES[half] else "fp32",
        reduce=half if stack.gradient_communication_bytes == BYTES[half] else "fp32",
        gather=half,
        master="fp32" if master_is_parameter(stack) or stack.optimizer_bytes > 2 * BYTES["fp32"] else "none",
        first_moment="fp32",
        second_moment="fp32",
    )


def master_is_parameter(stack: Stack) -> bool:
    """Return true if the parameter itself is the fp32 copy, as in FSDP."""
    return stack.parameter_bytes == BYTES["fp32"]


def stays_on_devices(adapter: Adapter | None, stack: Stack, name: str) -> str | None:
    """Return why ``optimizer`` or ``parameters`` do not leave the devices with these adapters; None if they may."""
    if adapter is None:
        return None
    if adapter.of_each_replica:
        return f"{adapter.form} steps on the devices"
    if name == "parameters" and (adapter.quantised or master_is_parameter(stack.base or stack)):
        return "frozen parameters with a type of their own stay on the devices"
    return None


def allowed_types(stack: Stack, precision: str) -> dict[str, tuple[str, ...]]:
    """Return the types that a plan may write for each key, the usual one first."""
    usual, half = usual_types(stack, precision), half_of(precision)
    more = {
        "gradient": stack.gradient_types,
        "reduce": stack.reduce_types,
        "gather": stack.gather_types,
        "master": stack.master_types,
        **dict.fromkeys(("first_moment", "second_moment"), stack.moment_types),
    }
    return {
        key: tuple(
            dict.fromkeys((getattr(usual, key), *(half if name == HALF else name for name in more[key])))
        )
        for key in KEYS
    }


def types_of(stack: Stack, precision: str, written: Mapping[str, str]) -> StateTypes:
    """Return the types of a plan; a key without a value follows a written one that the stack ties to it."""
    types = {**usual_types(stack, precision).to_data(), **written}
    for tied in stack.tied_types:
        changed = [types[key] for key in tied if key in written]
        types |= {key: _follow(key, changed[0]) for key in tied if changed and key not in written}
    return StateTypes(**types)


def split_joints(
    stack: Stack, precision: str, types: StateTypes
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield each joint group of keys that is changed in part, and its keys with usual types."""
    usual = usual_types(stack, precision)
    for joint in stack.joint_types:
        rest = [key for key in joint if getattr(types, key) == getattr(usual, key)]
        if 0 < len(rest) < len(joint):
            yield joint, rest


def changed_types(
    stack: Stack, precision: str, written: Mapping[str, str], optimizer: Optimizer = ADAMW
) -> dict[str, str]:
    """Return the types of a plan that are not the stack's usual ones, by key of ``dtypes``."""
    usual = usual_types(stack, precision)
    if optimizer.forward_only:
        written = {"master": FORWARD_ONLY_MASTER, **written}
    types = types_of(stack, precision, written).to_data()
    return {key: value for key, value in types.items() if value != getattr(usual, key)}


def _follow(key: str, other: str) -> str:
    """Return the type of a key that is tied to one of this type: a master copy is then the parameter itself."""
    if key == "master":
        return "none" if BYTES[other] < BYTES["fp32"] else "fp32"
    return half_of(other) if other == "none" else other


def is_narrow(stack: Stack, precision: str, types: StateTypes) -> bool:
    """Return true if the optimizer's own states have other types than the stack's."""
    usual = usual_types(stack, precision)
    return any(getattr(types, key) != getattr(usual, key) for key in OPTIMIZER_STATES)


def with_types(
    stack: Stack, precision: str, written: Mapping[str, str], optimizer: Optimizer = ADAMW
) -> Stack:
    """Return the stack with the counts of an optimizer and the types that a plan writes; other facts stay as they are.

    The stack may have the counts of others already: they are replaced.
    """
    base = stack.base or stack
    usual, types = usual_types(base, precision), types_of(base, precision, written)
    if optimizer.forward_only:
        return _without_gradients(
            stack, base, usual, types, optimizer, written.get("master", FORWARD_ONLY_MASTER)
        )
    if types == usual and optimizer == ADAMW:
        return (
            stack if stack.base is None else replace(stack, **{name: getattr(base, name) for name in COUNTS})
        )
    parameter, master = base.parameter_bytes, BYTES[types.master] - BYTES[usual.master]
    if master_is_parameter(base):
        parameter, master = base.parameter_bytes - (BYTES["fp32"] - 2) * (types.master == "none"), 0
    elif types.master == "fp32" and _keeps_remainder(base, precision, types):
        master = REMAINDER_BYTES - BYTES["fp32"]
    moments = _moment_bytes(types, optimizer.others.own_moments)
    of_matrices = _moment_bytes(types, optimizer.own_moments)
    gradient = BYTES[types.gradient] - BYTES[usual.gradient]
    # A step reads and writes its states, and reads gradients.
    traffic = 2 * (parameter - base.parameter_bytes + master) + gradient
    narrow = base.narrow_shardings if is_narrow(base, precision, types) else ()
    shardings = set(narrow or base.shardings)
    if optimizer.kind.of_matrices:
        shardings &= set(base.muon_shardings)
    return replace(
        stack,
        parameter_bytes=parameter,
        gradient_bytes=base.gradient_bytes + gradient,
        optimizer_bytes=max(0, base.optimizer_bytes + master + moments),
        gradient_communication_bytes=base.gradient_communication_bytes
        + BYTES[types.reduce]
        - BYTES[usual.reduce],
        parameter_wire_bytes=base.parameter_wire_bytes + BYTES[types.gather] - BYTES[usual.gather],
        optimizer_traffic_bytes=traffic + 2 * moments,
        scaled_moments=sum(getattr(types, key) in SCALED for key in optimizer.others.own_moments),
        optimizer=optimizer,
        matrix_optimizer_bytes=max(0, base.optimizer_bytes + master + of_matrices),
        matrix_traffic_bytes=traffic + 2 * of_matrices,
        shardings=tuple(name for name in base.shardings if name in shardings),
        pipeline_shardings=tuple(name for name in base.pipeline_shardings if name in shardings),
        base=base,
    )


FORWARD_ONLY_SHARDINGS = ("none", "zero3")
"""Shardings where there are parameters alone: nothing else is there to be cut."""


FORWARD_ONLY_MASTER = "none"
"""The usual type of a master copy where there are parameters alone."""
FORWARD_ONLY_GATHER: Final = "per-layer"
"""When sharded parameters are gathered for passes that keep nothing."""


def _some(names: tuple[str, ...], kept: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in kept)


def _without_gradients(
    stack: Stack, base: Stack, usual: StateTypes, types: StateTypes, optimizer: Optimizer, master: str
) -> Stack:
    """Return the stack with the counts of parameters alone, and of a master copy that a plan writes.

    Of its choices those are left that have a meaning without backward passes.
    """
    return replace(
        stack,
        parameter_bytes=base.parameter_bytes,
        gradient_bytes=0,
        optimizer_bytes=BYTES[master],
        gradient_communication_bytes=0,
        parameter_wire_bytes=base.parameter_wire_bytes + BYTES[types.gather] - BYTES[usual.gather],
        optimizer_traffic_bytes=0,
        scaled_moments=0,
        optimizer=optimizer,
        matrix_optimizer_bytes=0,
        matrix_traffic_bytes=0,
        shardings=_some(base.shardings, FORWARD_ONLY_SHARDINGS),
        pipeline_shardings=_some(base.pipeline_shardings, FORWARD_ONLY_SHARDINGS),
        schedules=_some(base.schedules, SCHEDULES),
        schedule_knobs=(),
        written_lists=False,
        vocabularies=(),
        step_validations=("before",),
        gathers=(FORWARD_ONLY_GATHER,),
        pipeline_gathers=(FORWARD_ONLY_GATHER,),
        recomputes=("none",),
        offloads_activations=False,
        state_offloads=tuple(way for way in base.state_offloads if way.optimizer == "none"),
        rank_orders=() if optimizer.splits_perturbations else base.rank_orders,
        base=base,
    )


def _moment_bytes(types: StateTypes, kept: Collection[str]) -> int:
    """Return the bytes per element of the moments that are kept, less those of AdamW's in fp32."""
    return sum((BYTES[getattr(types, key)] if key in kept else 0) - BYTES["fp32"] for key in MOMENTS)


def _keeps_remainder(stack: Stack, precision: str, types: StateTypes) -> bool:
    return (
        stack.keeps_master_remainder and half_of(precision) == "bf16" and is_narrow(stack, precision, types)
    )
