"""Compare what ranks hold after a step in bf16, and after each F and I, with the ledger of their Program.

Ranks hold a few bytes less or more than the ledger says. Matrices that are dealt to ranks, and parameters that a cut
parts, are not equal on all of them: the largest or the mean counts. Stored bases are padded to whole elements. Scales
of moments are counted for every parameter of a unit, also where a rank has none of it. Under zero3 the ledger has the
16-bit shard of trained parameters, which a rank makes of its master copy for each gather.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import mean

import torch

from meshwright.program.model_states.state_elements import bytes_per_element
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.state.on_host.offloaded_unit import OffloadedUnit
from meshwright.runtime.verify.run_case import gathered
from meshwright.runtime.verify.verify_case import micro_batches

SCALE_BYTES = 4
PADDING = 4
"""Most bytes by which the stored base of a unit is padded where it is cut."""


@dataclass
class Held:
    """Bytes of a rank's states by place and kind, and of what it keeps after each F and I: (kind, stage, bytes)."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    passes: list[tuple[str, int, int]] = field(default_factory=list)
    frozen_units: int = 0


def ledger_differences(trial) -> list[str]:
    """Return what ranks hold otherwise than the ledger says."""
    program, by_stage = trial.program, defaultdict(list)
    for number, found in enumerate(held(trial)):
        by_stage[program.parts.pipeline_rank(number)].append(found)
    return [
        f"pipeline rank {rank}: {text}"
        for rank, found in by_stage.items()
        for text in (*different_states(program, rank, found), *different_passes(program, found))
    ]


def held(trial) -> list[Held]:
    """Take a step in bf16 and return what each rank holds."""

    def work(place, store, report):
        job = Job(trial.program, trial.model, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            found = Held()
            rank.interpreter.hear = listener(rank.interpreter, found)
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            found.states = states_of(rank)
            found.frozen_units = sum(isinstance(unit, FrozenUnit) for unit in rank.plan.all_units)
            out = io.BytesIO()
            torch.save(gathered(found, place), out)
            return out.getvalue()

    ranks = trial.program.parts.ranks
    return torch.load(io.BytesIO(run_locally(work, ranks, 120, lambda what, part: None)), weights_only=False)


def listener(interpreter, found):
    """Return what records the bytes that passes keep."""

    def hear(action, word):
        run = interpreter.running.get((action.stage, action.micro_batch))
        if word == "end" and action.kind in ("F", "I") and run:
            found.passes.append((action.kind, action.stage, run.live_bytes()))

    return hear


def states_of(rank) -> Counter[tuple[str, str]]:
    """Return the bytes of a rank's parameters, optimizer states, their scales, and the frozen base."""
    found = Counter()
    for name, parts in rank.interpreter.states.optimizer.parts.items():
        place = "host" if name.endswith(", host") else "device"
        for state in (state for part in parts for state in part.states.values()):
            found[place, "optimizer"] += state.values.nbytes
            found["any", "scales"] += state.scales.nbytes
    for unit in rank.plan.all_units:
        if isinstance(unit, FrozenUnit):
            found["device", "base"] += unit.owned.nbytes
        else:
            found += (
                divided(unit) if isinstance(unit, OffloadedUnit) else undivided(unit, rank.plan.precision)
            )
    return found


def undivided(unit, precision) -> Counter[tuple[str, str]]:
    """Return the bytes of the parameters of a unit, and of its master copy if that is other memory."""
    own, size = unit.owned, unit.owned.nbytes
    if unit.whole is None:
        if own.dtype == precision.compute:
            return Counter({("device", "parameter"): size})
        for_gathers = len(own) * precision.compute.itemsize
        return Counter({("device", "optimizer"): size, ("device", "parameter"): for_gathers})
    whole = unit.whole.untyped_storage()
    apart = whole.data_ptr() != own.untyped_storage().data_ptr()
    return Counter({("device", "parameter"): whole.nbytes(), ("device", "optimizer"): size * apart})


def divided(unit) -> Counter[tuple[str, str]]:
    """Return the bytes of a unit whose states are divided between device and host.

    A gather before the passes takes the place of a shard of parameters that are whole in them.
    """
    found, home = Counter(), unit.home.values
    replaced = unit.layout.parts > 1 and not unit.hosting.keeps_shard
    for place in ("device", "host"):
        found[place, "optimizer"] = unit.master.side(place == "host").nbytes
        found[place, "parameter"] = 0 if replaced else home.side(place == "host").nbytes
    if replaced:
        found["device", "parameter"] = unit.whole.untyped_storage().nbytes()
    return found


def counted(program, pipeline_rank: int) -> Counter[tuple[str, str]]:
    """Return the ledger's bytes of the same states."""
    mine = {part.index for part in program.sections_of(pipeline_rank)}
    rows = [entry for entry in program.states if entry.stage in mine]
    base = sum(entry.total_bytes for entry in rows if entry.name.endswith(".base"))
    scales = SCALE_BYTES * sum(entry.repeat * entry.scales for entry in rows)
    found = Counter({("device", "base"): base, ("any", "scales"): scales})
    for kind, others in (("parameter", base), ("optimizer", scales)):
        on_host = bytes_per_element(kind, program.stack) * program.elements_on_host(pipeline_rank, kind)
        found["host", kind] = on_host
        found["device", kind] = program.held_bytes(pipeline_rank, kind) - others - on_host
    return found


def different_states(program, pipeline_rank: int, ranks: list[Held]) -> Iterator[str]:
    """Yield differences of states among the ranks of a pipeline rank."""
    for key, size in counted(program, pipeline_rank).items():
        found = [rank.states[key] for rank in ranks]
        if key == ("device", "base"):
            same = all(
                0 <= have - size <= PADDING * rank.frozen_units
                for have, rank in zip(found, ranks, strict=True)
            )
        elif key == ("any", "scales"):
            same = max(found) <= size
        else:
            same = size in (max(found), mean(found))
        if not same:
            yield f"{' '.join(key)}: {found} bytes, {size} in the ledger"


def different_passes(program, ranks: list[Held]) -> Iterator[str]:
    """Yield differences of what passes keep.

    Experts are chosen more often on some ranks, so that the mean counts; of ranks with unlike numbers of sequences the
    one that keeps most.
    """
    of_ledger = max if any(part.batch_share for part in program.parts) else mean
    after = {"F": program.activation_bytes, "I": program.weight_gradient_bytes}
    if program.stack.optimizer.forward_only:
        after["F"] = [0] * len(program.stages)
    for passes in zip(*(rank.passes for rank in ranks), strict=True):
        (kind, stage), sizes = passes[0][:2], [size for *_, size in passes]
        if of_ledger(sizes) != after[kind][stage]:
            yield f"{kind} of stage {stage}: {sizes} bytes, {after[kind][stage]} in the ledger"
