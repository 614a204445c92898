"""Rules on adapters against model, layout and stack; those on the key alone are in ``workload/adapter.py``.

A matrix is quantised before it is cut, so that no cut may split a block of its elements: neither tp, which cuts inputs
of row-parallel matrices, nor the shards of a unit that is gathered, whose elements follow one another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.model.adapter_targets import model_targets, unknown_targets
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import ExpertLowRank, LowRank, Operator, Parameter
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShardingName
from meshwright.plans.rules.rule_input import Rule, RuleInput, largest_divisor
from meshwright.schedules.choice import validates_afterwards
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import stays_on_devices
from meshwright.workload.adapter import FIELD, HD_PISSA, Adapter
from meshwright.workload.base_types import QUANTISED
from meshwright.workload.optimizer_choice import Optimizer


@dataclass(frozen=True, slots=True)
class Cuts:
    """Degrees that cut matrices and adapters: ``shard`` and ``expert_shard`` of a gathered unit, ``replicas`` of data.

    ``sharding`` is the plan's name, ``gathered`` whether parameters are cut.
    """

    tp: int
    etp: int
    shard: int
    expert_shard: int
    replicas: int
    sharding: ShardingName
    gathered: bool


def model_problems(adapter: Adapter, model: ModelGraph) -> Iterator[Problem]:
    """Yield targets that the model does not have, and a rank or a form that its matrices do not take."""
    for name in unknown_targets(model, adapter.targets or ()):
        rule = f"{model.name} has no such matrix"
        yield Problem(f"{FIELD}.targets", name, rule, "of " + ", ".join(model_targets(model)))
    products = list(_products(model, adapter))
    smallest = min(
        (min(op.inputs, matrix.outputs) for op in products for matrix in op.matrices), default=None
    )
    if smallest is not None and adapter.rank > smallest:
        rule = f"the smallest of the target matrices has {smallest} rows or columns"
        yield Problem(f"{FIELD}.rank", adapter.rank, rule, f"rank: {smallest} or less")
    if adapter.of_each_replica and any(isinstance(op, ExpertLowRank) for op in products):
        rule = f"{HD_PISSA} trains on the sequences of one rank, and experts get those of others"
        yield Problem(f"{FIELD}.targets", _shown(adapter), rule, "targets: [q, k, v, o]")
    for _, parameter in _quantised(model, adapter):
        block = QUANTISED[str(parameter.storage)].block
        if parameter.shape[-1] % block:
            rule = f"rows of {parameter.name} have {parameter.shape[-1]} elements, no multiple of a block of {block}"
            yield Problem(f"{FIELD}.base", adapter.base, rule, "base: int8")


def stack_problems(adapter: Adapter, stack: Stack, optimizer: Optimizer) -> Iterator[Problem]:
    """Yield a base or a form that the stack does not have."""
    if adapter.quantised and adapter.base not in stack.base_types:
        held = ", ".join(("16 bits", *stack.base_types))
        rule = f"{stack.id} holds frozen matrices in {held}"
        yield Problem(f"{FIELD}.base", adapter.base, rule, "leave it out, or stack: accelerate")
    if adapter.of_each_replica and adapter.form not in stack.adapter_forms:
        rule = f"{stack.id} does not train {adapter.form}"
        yield Problem(f"{FIELD}.form", adapter.form, rule, "form: lora, or stack: meshwright")
    elif adapter.form not in stack.adapter_forms:
        rule = f"{stack.id} has no adapters of its own: a prediction, for which no file can be written"
        yield Problem(FIELD, adapter.form, rule, "stack: megatron-bridge or accelerate", "warning")
    if adapter.of_each_replica and optimizer.name != "adamw":
        rule = f"{HD_PISSA} steps AdamW on each rank"
        yield Problem("workload.optimizer", str(optimizer), rule, "optimizer: adamw")


def cut_problems(adapter: Adapter, model: ModelGraph, cuts: Cuts) -> Iterator[Problem]:
    """Yield cuts that split a block of a quantised matrix, and degrees that the adapters do not run under."""
    products = list(_products(model, adapter))
    if cuts.etp > 1 and any(isinstance(op, ExpertLowRank) for op in products):
        rule = "adapters of experts are whole on every rank of etp"
        yield Problem("layout.etp", cuts.etp, rule, "etp: 1, or targets: [q, k, v, o]")
    if adapter.quantised:
        yield from _split_blocks(adapter, model, cuts)
    if not adapter.of_each_replica:
        return
    if cuts.sharding in ("zero1", "zero2"):
        rule = f"{HD_PISSA} has states of its own on each rank, which {cuts.sharding} cannot cut"
        yield Problem("sharding", cuts.sharding, rule, "sharding: none or zero3")
    rows = min((min(op.inputs, matrix.outputs) for op in products for matrix in op.matrices), default=0)
    if rows and cuts.replicas * adapter.rank > rows >= adapter.rank:
        rule = (
            f"{cuts.replicas} data-parallel ranks take rank·{cuts.replicas} = {cuts.replicas * adapter.rank} triplets"
            f", the smallest target has {rows}"
        )
        yield Problem(f"{FIELD}.rank", adapter.rank, rule, f"rank: {max(1, rows // cuts.replicas)} or less")


def _split_blocks(adapter: Adapter, model: ModelGraph, cuts: Cuts) -> Iterator[Problem]:
    """Yield the first matrix whose inputs tp splits inside of a block, and the first unit whose shards do."""
    size = QUANTISED[str(adapter.base)].block
    if size == 1:
        return
    for op, parameter in _quantised(model, adapter):
        axis = "etp" if op.place == "expert" else "tp"
        degree, inputs = getattr(cuts, axis), parameter.shape[-1]
        if parameter.tp_dim == len(parameter.shape) - 1 and inputs % size == 0 and inputs % (degree * size):
            rule = f"cuts the {inputs} inputs of {parameter.name} inside of a block of {size} elements"
            yield Problem(
                f"layout.{axis}", degree, rule, f"{axis}: {largest_divisor(inputs // size, degree)}"
            )
            break
    if not cuts.gathered:
        return
    for block in with_adapters(model, adapter).blocks:
        for expert, shard in ((False, cuts.shard), (True, cuts.expert_shard)):
            elements = _local_elements(block, cuts, expert=expert)
            if elements % (shard * size):
                rule = (
                    f"cuts the {elements} elements of a layer's frozen matrices inside of a block of {size}"
                )
                yield Problem("layout.dp_shard", shard, rule, "sharding: none, or base: int8")
                return


def _local_elements(block: Block, cuts: Cuts, *, expert: bool) -> int:
    """Return the elements of a block's quantised matrices on a rank of tp or etp; those of all its experts."""
    degree = cuts.etp if expert else cuts.tp
    return sum(
        parameter.elements // (degree if parameter.tp_dim is not None else 1)
        for op in block.operators
        if (op.place == "expert") is expert
        for parameter in op.parameters
        if parameter.storage in QUANTISED
    )


def _products(model: ModelGraph, adapter: Adapter) -> Iterator[LowRank]:
    return (
        op
        for block in with_adapters(model, adapter).blocks
        for op in block.operators
        if isinstance(op, LowRank)
    )


def _quantised(model: ModelGraph, adapter: Adapter) -> Iterator[tuple[Operator, Parameter]]:
    return (
        (op, parameter)
        for block in with_adapters(model, adapter).blocks
        for op in block.operators
        for parameter in op.parameters
        if parameter.storage in QUANTISED
    )


def _shown(adapter: Adapter) -> str:
    return "all" if adapter.targets is None else "[" + ", ".join(adapter.targets) + "]"


def adapters_of_model(case: RuleInput) -> Iterator[Problem]:
    """Refuse adapters that the model's matrices do not take."""
    spec = case.plan.workload.adapter
    if spec is not None:
        yield from model_problems(spec.adapter, case.model)


def adapters_under_layout(case: RuleInput) -> Iterator[Problem]:
    """Refuse cuts that split blocks of the base, and layouts that adapters do not run under."""
    workload, grid = case.workload, case.grid
    adapter = None if workload is None else workload.adapter
    if adapter is None or any(True for _ in model_problems(adapter, case.model)):
        return
    experts = case.layout.experts
    sharding = case.plan.sharding
    cuts = Cuts(
        tp=grid.tp,
        etp=experts.etp if experts else 1,
        shard=grid.dp_shard * grid.cp,
        expert_shard=experts.edp_shard if experts else 1,
        replicas=grid.dp_replicate * grid.dp_shard,
        sharding=sharding,
        gathered=case.stack.cuts_parameters(sharding),
    )
    yield from cut_problems(adapter, case.model, cuts)
    yield from _passes_and_hosts(adapter, case.plan, case)


def _passes_and_hosts(adapter: Adapter, plan: LongPlan, case: RuleInput) -> Iterator[Problem]:
    for name, share in (
        ("optimizer", plan.host_shares.optimizer),
        ("parameters", plan.host_shares.parameters),
    ):
        stays = stays_on_devices(adapter, case.stack, name) if share else None
        if stays:
            yield Problem(f"offload.{name}", share, stays, f"offload.{name}: none")
    if not adapter.of_each_replica:
        return
    if plan.pipeline.chains > 1:
        rule = f"{HD_PISSA} holds the layers of a rank once"
        yield Problem("pipeline.schedule", plan.choice.name, rule, "schedule: 1f1b")
    if validates_afterwards(plan.choice, case.stack.validates_step_afterwards, case.pp):
        rule = f"{HD_PISSA} changes the base in each step, which is not undone"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")


def adapters_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse a form of adapters or a type of the base that the stack does not have."""
    spec, optimizer = case.plan.workload.adapter, case.plan.workload.optimizer_in_full
    if spec is not None:
        yield from stack_problems(spec.adapter, case.stack, optimizer)


ADAPTER_RULES: tuple[Rule, ...] = (adapters_of_model, adapters_under_layout)
