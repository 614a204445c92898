"""Build the plan of a run as a row of ``PlanArrays``, or list the reasons why it cannot be priced.

Defaults are those of plan files. Data parallelism is the table's, else devices/(tp·pp·cp); with sharded states
all of it is dp_shard, or ``shard_group`` of it, the rest dp_replicate (a shard group larger than dp counts the ranks of
cp too, over which states are also sharded). Without a pipeline every schedule is 1f1b; 1f1b with several virtual
stages is interleaved.

The rules are those of ``plans/rules/check_plan.py`` (a test compares the two), except what the stack can run,
which the run proves, and that the embedding and the head may have stages of their own (22 layers on 24 stages).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from meshwright.model.architecture import Architecture
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import NUMBERS, usual_codes, usual_values
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.long import Stages
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Axis, Recompute
from meshwright.plans.layers.uneven_partition import head_in_layers, redistributed_stages, written_stages
from meshwright.plans.rules.degrees import experts_need_sequences
from meshwright.plans.rules.stack_support import recomputable
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.validation.read_run_table import PlanColumns

Ints = NDArray[np.int64]

BASELINE, REDISTRIBUTED = "baseline", "redis"
VOCABULARIES = ("", BASELINE, REDISTRIBUTED, *FORMS)
"""Places of the vocabulary: at the ends, also with layers moved away until the stages have equal FLOPs, or spread."""
PLAYABLE = 100_000
"""Most passes (stages × micro-batches) of a schedule without a closed form that are simulated."""
LARGEST = 2.0**52
"""Largest count of elements of a step, so that sums of bytes stay exact in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One row of ``PlanArrays`` before it is an array."""

    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    ep: int
    etp: int
    micro_batch: int
    virtual_stages: int
    sharding: str
    schedule: str
    recompute: Recompute
    sequence_parallel: bool
    vocabulary: str
    data: int
    stage_layers: tuple[int, ...] | None
    rank_order: tuple[Axis, ...]

    @property
    def stages(self) -> int:
        """Pipeline stages that a micro-batch goes through."""
        return self.pp * self.virtual_stages // SCHEDULES[self.schedule].chains

    @property
    def choice(self) -> ScheduleChoice:
        """The schedule, with the form of the vocabulary's spread, if it is spread."""
        return ScheduleChoice(self.schedule, vocabulary=self.vocabulary if self.vocabulary in FORMS else None)


def run_plan(chosen: PlanColumns, devices: int) -> RunPlan:
    """Return the plan of a run, legal or not."""
    tp, pp, cp = chosen.tp or 1, chosen.pp or 1, chosen.cp or 1
    data = chosen.dp or max(1, devices // (tp * pp * cp))
    sharding = chosen.sharding or "none"
    group = min(chosen.shard_group or data, data * cp)
    shard = 1 if sharding == "none" else group if group <= data else max(1, group // cp)
    name, vocabulary = "1f1b", chosen.vocab_parallel or ""
    if chosen.schedule:
        name, vocabulary = chosen.schedule.name, chosen.schedule.vocabulary or vocabulary
    virtual = _stages_per_rank(name, chosen.virtual_stages)
    if pp == 1:
        name, virtual, vocabulary = "1f1b", 1, ""
    elif name == "1f1b" and virtual > 1:
        name = "interleaved-1f1b"
    return RunPlan(
        pp=pp,
        dp_replicate=max(1, data // shard),
        dp_shard=shard,
        cp=cp,
        tp=tp,
        ep=chosen.ep or 1,
        etp=chosen.etp or 1,
        micro_batch=chosen.micro_batch or 1,
        virtual_stages=virtual,
        sharding=sharding,
        schedule=name,
        recompute=chosen.recompute or "none",
        sequence_parallel=tp > 1 and chosen.sequence_parallel is not False,
        vocabulary=vocabulary,
        data=data,
        stage_layers=chosen.stage_layers,
        rank_order=chosen.rank_order or DEFAULT_RANK_ORDER,
    )


def _stages_per_rank(name: str, given: int | None) -> int:
    """Return a rank's stages: the row's, or the schedule's fixed number. With two chains sources count one."""
    kind = SCHEDULES.get(name)
    fixed = kind.fixed_chunks if kind else None
    if kind is None or fixed is None:
        return given or 1
    return fixed if given is None or given * kind.chains == fixed else given


def faults(plan: RunPlan, setting: Setting) -> Iterator[str]:
    """Yield the reasons why a plan is illegal or not priced; none for a good one."""
    yield from _degree_faults(plan, setting)
    yield from _batch_faults(plan, setting)
    yield from _schedule_faults(plan, setting)
    yield from _stage_faults(plan, setting.model.architecture.layers)
    yield from _expert_faults(plan, setting.model.architecture)
    if not isinstance(plan.recompute, str):
        have = recomputable(setting.model.architecture)
        yield from (f"the model has no {name} to recompute" for name in plan.recompute if name not in have)
    if _largest(plan, setting) > LARGEST:
        yield "sizes are beyond what can be priced"


def _degree_faults(plan: RunPlan, setting: Setting) -> Iterator[str]:
    arch, devices = setting.model.architecture, setting.cluster.devices
    degrees = (plan.pp, plan.data, plan.cp, plan.tp)
    if prod(degrees) != devices:
        yield f"pp·dp·cp·tp = {'·'.join(map(str, degrees))} = {prod(degrees)} ≠ {devices} devices"
    elif plan.dp_replicate * plan.dp_shard != plan.data:
        yield f"dp % shard group = {plan.data} % {plan.dp_shard} = {plan.data % plan.dp_shard} ≠ 0"
    widths = {"heads": arch.heads, "hidden": arch.hidden, "ffn": arch.intermediate}
    widths |= {} if arch.latent else {"kv_heads": arch.kv_heads}
    widths |= {"shared experts' ffn": arch.moe.shared_intermediate} if arch.moe else {}
    for name, width in widths.items():
        if width % plan.tp:
            yield f"{name} % tp = {width} % {plan.tp} = {width % plan.tp} ≠ 0"
    if plan.stages > arch.layers + 2:
        yield f"{plan.stages} stages > {arch.layers} layers, embedding and head"


def _batch_faults(plan: RunPlan, setting: Setting) -> Iterator[str]:
    seq_len, batch = setting.workload.seq_len, setting.workload.global_batch
    if plan.cp > 1 and seq_len % (2 * plan.cp):
        yield f"seq_len % (2·cp) = {seq_len} % {2 * plan.cp} = {seq_len % (2 * plan.cp)} ≠ 0"
    cut = plan.cp * plan.tp
    if plan.sequence_parallel and seq_len % cut:
        yield f"seq_len % (cp·tp) = {seq_len} % {cut} = {seq_len % cut} ≠ 0"
    at_once = plan.dp_replicate * plan.dp_shard * plan.micro_batch
    if batch % at_once:
        yield f"global_batch % (dp·micro_batch) = {batch} % {at_once} = {batch % at_once} ≠ 0"


def _schedule_faults(plan: RunPlan, setting: Setting) -> Iterator[str]:
    if plan.vocabulary not in VOCABULARIES:
        yield f"{plan.vocabulary} is no place of the vocabulary that we know"
    elif plan.vocabulary in FORMS and plan.stages > setting.model.architecture.layers:
        yield f"{plan.stages} stages > {setting.model.architecture.layers} layers, and no stage has the vocabulary"
    kind, form = SCHEDULES[plan.schedule], FORMS.get(plan.vocabulary)
    if form and form.only not in (None, plan.schedule):
        yield f"{plan.vocabulary} is laid out for {form.only}, not for {plan.schedule}"
    if kind.chains > 1 and form:
        yield f"{plan.schedule} with the vocabulary {plan.vocabulary} is not priced"
    if plan.pp % kind.rank_multiple:
        yield f"{plan.schedule} needs pp % {kind.rank_multiple} = {plan.pp % kind.rank_multiple}, must be 0"
    if kind.fixed_chunks and plan.virtual_stages != kind.fixed_chunks:
        yield f"{plan.schedule} has {kind.fixed_chunks} stages per rank, and virtual_stages = {plan.virtual_stages}"
    elif kind.chunked and plan.virtual_stages == 1:
        yield f"{plan.schedule} needs virtual_stages > 1"
    if not kind.chunked and plan.virtual_stages > 1:
        yield f"{plan.schedule} has one stage per pipeline rank, and virtual_stages = {plan.virtual_stages}"
    count = setting.workload.global_batch // (plan.dp_replicate * plan.dp_shard * plan.micro_batch)
    if (kind.split or form) and plan.stages * count > PLAYABLE:
        yield f"{plan.schedule} of {plan.stages} stages and {count} micro-batches is too long to be played"
    multiple = kind.micro_batch_multiple(plan.pp)
    if count % multiple:
        yield f"{plan.schedule} needs micro-batches % pp = {count} % {multiple} = {count % multiple}, must be 0"


def _stage_faults(plan: RunPlan, layers: int) -> Iterator[str]:
    """Yield the problems of listed stages; only the first and the last may hold no layer."""
    held = plan.stage_layers
    if held is None:
        return
    if len(held) != plan.stages:
        yield f"stage_layers has {len(held)} stages, pp·virtual_stages = {plan.stages}"
    if sum(held) != layers:
        yield f"stage_layers holds {sum(held)} layers, the model has {layers}"
    if 0 in held[1:-1]:
        yield "stage_layers has a stage with nothing in it"
    if plan.vocabulary not in ("", BASELINE):
        yield f"stage_layers with the vocabulary {plan.vocabulary} is not priced"


def _expert_faults(plan: RunPlan, arch: Architecture) -> Iterator[str]:
    mesh, moe = plan.ep * plan.etp, arch.moe
    ranks = plan.dp_replicate * plan.dp_shard * plan.cp * plan.tp
    if moe is None:
        if mesh > 1:
            yield f"the model has no experts, so ep·etp = {plan.ep}·{plan.etp} must be 1"
        return
    if plan.tp > 1 and not plan.sequence_parallel:
        yield experts_need_sequences(plan.tp)
    if moe.experts % plan.ep:
        yield f"experts % ep = {moe.experts} % {plan.ep} = {moe.experts % plan.ep} ≠ 0"
    if moe.intermediate % plan.etp:
        yield f"experts' ffn % etp = {moe.intermediate} % {plan.etp} = {moe.intermediate % plan.etp} ≠ 0"
    if ranks % mesh:
        yield f"dp·cp·tp % (ep·etp) = {ranks} % {mesh} = {ranks % mesh} ≠ 0"


def _largest(plan: RunPlan, setting: Setting) -> float:
    """Return an upper bound of the elements and attention scores that one rank may hold, and of parameters."""
    arch, seq_len = setting.model.architecture, setting.workload.seq_len
    tokens = float(plan.micro_batch) * seq_len
    experts = arch.moe.experts * arch.moe.intermediate if arch.moe else 0
    active = arch.moe.experts_per_token * arch.moe.intermediate if arch.moe else 0
    heads = arch.heads * (arch.head_dim + arch.v_head_dim)
    width = arch.hidden + arch.intermediate + heads + active
    held = tokens * (arch.layers * width + arch.vocab)
    scores = tokens * seq_len * arch.heads * arch.layers
    parameters = float(arch.hidden) * (arch.layers * (arch.intermediate + heads + experts) + arch.vocab)
    return max(held, scores, parameters) * 64


def plan_arrays(plans: Sequence[RunPlan], setting: Setting) -> Iterator[tuple[Ints, PlanArrays]]:
    """Yield arrays of plans of one setting, with the plans' numbers.

    Plans with different stages or rank orders are in different arrays.
    """
    same: dict[tuple[Stages, tuple[Axis, ...]], list[int]] = {}
    for number, plan in enumerate(plans):
        same.setdefault((_stages(plan, setting), plan.rank_order), []).append(number)
    for (stages, order), numbers in same.items():
        arrays = _uniform_arrays([plans[number] for number in numbers])
        arrays = replace(arrays.with_choice("order", order), stages=stages)
        yield np.array(numbers, dtype=np.int64), arrays


def _stages(plan: RunPlan, setting: Setting) -> Stages:
    """Return the layers of each stage."""
    if plan.stage_layers is not None:
        return written_stages(plan.stage_layers)
    if plan.vocabulary != REDISTRIBUTED:
        return "balanced"
    head = head_in_layers(setting.model, setting.workload.seq_len)
    return redistributed_stages(setting.model.architecture.layers, plan.stages, head)


def _uniform_arrays(plans: Sequence[RunPlan]) -> PlanArrays:
    schedules = tuple(dict.fromkeys(plan.choice for plan in plans))
    recomputes = tuple(dict.fromkeys(plan.recompute for plan in plans))
    codes: dict[str, Callable[[RunPlan], int]] = {
        "sharding": lambda plan: SHARDINGS.index(plan.sharding),
        "schedule": lambda plan: schedules.index(plan.choice),
        "recompute": lambda plan: recomputes.index(plan.recompute),
        "sequence_parallel": lambda plan: int(plan.sequence_parallel),
    }
    columns = usual_codes(len(plans))
    for name in (*NUMBERS, *codes):
        values_of_runs = [codes[name](plan) if name in codes else getattr(plan, name) for plan in plans]
        columns[name] = np.array(values_of_runs, dtype=np.bool_ if name == "sequence_parallel" else np.int64)
    values = usual_values() | {"schedule": schedules, "recompute": recomputes}
    return PlanArrays(columns=columns, values=values)
