"""A trial on forked ranks of this host, judged against plain PyTorch.

Ranks hand what they computed to rank 0, which computes the reference and compares: the parent touches no tensor, so
that it can fork again.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.runtime.communicator import Traffic
from meshwright.runtime.interpreter import settle
from meshwright.runtime.launch.environment import Place
from meshwright.runtime.launch.local import Tell, run_locally
from meshwright.runtime.pieces import Piece, pieces_of
from meshwright.runtime.rank import Job, Rank, rank_of
from meshwright.runtime.speculation import StepResult
from meshwright.runtime.unit import Unit
from meshwright.runtime.verify.compare import Error, joined, number_error, tensor_error, worst
from meshwright.runtime.verify.outcome import Outcome
from meshwright.runtime.verify.reference import Steps, reference_steps
from meshwright.runtime.verify.routed import routed_differences
from meshwright.runtime.verify.traffic import differing_traffic
from meshwright.runtime.verify.trial import Trial, micro_batches

WAIT_S = 120.0
"""How long an operation waits for its partners."""
LIMIT_S = 600.0
"""How long a trial may take."""
JUST_BELOW = 0.999
"""Of a norm."""
MOST_NAMED = 8
"""Differing exchanges that are told."""
Fault = Callable[[], None]


def no_fault() -> None:
    """Nothing is wrong."""


@dataclass
class Record:
    """What a rank computed: per step its result, its pieces of the reduced gradients, and its exchanges."""

    pipeline_rank: int
    results: list[StepResult] = field(default_factory=list)
    gradients: list[list[Piece]] = field(default_factory=list)
    traffic: list[list[Traffic]] = field(default_factory=list)
    parameters: list[Piece] = field(default_factory=list)


def tried(trial: Trial, tell: Tell, fault: Fault = no_fault) -> Outcome:
    """Run a trial. ``fault`` is called in every rank before it begins: what it breaks should be seen."""

    def work(place: Place, store: dist.Store, tell: Tell) -> Outcome | None:
        fault()
        job = Job(trial.program, trial.model, "fp64", trial.options, WAIT_S, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            everyone = _everyones(_recorded(trial, rank, tell), place)
            return None if place.rank else _judged(trial, everyone, reference_steps(trial))

    try:
        outcome = run_locally(work, trial.program.grid.ranks, LIMIT_S, tell)
    except RunError as error:
        return Outcome(failure=str(error))
    assert isinstance(outcome, Outcome)
    return outcome


def tried_both_ways(trial: Trial, tell: Tell) -> Outcome:
    """Run a trial; where steps overlap once more, with a limit of the norm that the first step is just above.

    Most ranks know from the sums so far that the usual limit, which is low, is passed: they wait. Of the higher one
    they hear too late, and have to undo their step.
    """
    first = tried(trial, tell)
    if not (trial.program.steps_overlap and first.equal):
        return first
    options = replace(trial.options, clip=JUST_BELOW * first.norms[0])
    again = tried(replace(trial, options=options), tell)
    return again if again.worst.value > first.worst.value or not again.equal else first


def _recorded(trial: Trial, rank: Rank, tell: Tell) -> Record:
    """Run all steps."""
    record, units = Record(rank.plan.pipeline_rank), rank.plan.all_units
    states = rank.interpreter.states
    states.before_step = lambda: record.gradients.append(_pieces(units, _reduced))
    states.after_norm = record.results.append
    for step, batch in enumerate(trial.batches()):
        before = len(rank.communicator.log)
        rank.interpreter.step(micro_batches(trial, batch, rank.place.rank))
        record.traffic.append(rank.communicator.log[before:])
        if rank.place.rank == 0:
            tell(f"step {step + 1}", 0.0)
    settle(rank.interpreter)
    buffers = rank.plan.buffers.items()
    whole = [Piece(name, size := tuple(buffer.shape), size, (), 0, buffer) for name, buffer in buffers]
    record.parameters = _pieces(units, lambda unit: unit.owned) + whole
    return record


def _pieces(units: Sequence[Unit], buffer: Callable[[Unit], torch.Tensor]) -> list[Piece]:
    return [piece for unit in units for piece in pieces_of(unit, buffer(unit))]


def _reduced(unit: Unit) -> torch.Tensor:
    assert unit.reduced is not None
    return unit.reduced


def _everyones(record: Record, place: Place) -> list[Record]:
    """The records of all ranks, on rank 0."""
    out = io.BytesIO()
    torch.save(record, out)
    found: list[bytes] | None = [b""] * place.ranks if place.rank == 0 else None
    dist.gather_object(out.getvalue(), found)
    return [torch.load(io.BytesIO(data), weights_only=False) for data in found or ()]


def _judged(trial: Trial, everyone: Sequence[Record], expected: Steps) -> Outcome:
    differing: dict[str, None] = {}

    def error(pieces: Sequence[Sequence[Piece]], wanted: dict[str, torch.Tensor]) -> Error:
        tensors, copies = joined(piece for of_rank in pieces for piece in of_rank)
        differing.update(dict.fromkeys(copies))
        return tensor_error(tensors, wanted) if tensors else Error(float("inf"), copies[0])

    gradients = [
        error([record.gradients[step] for record in everyone], dict(wanted))
        for step, wanted in enumerate(expected.gradients)
    ]
    parameters = error([record.parameters for record in everyone], dict(expected.parameters))
    results = [(step, result) for record in everyone for step, result in enumerate(record.results)]
    return Outcome(
        loss=worst(number_error(r.loss, expected.losses[step], "loss") for step, r in results),
        gradient=worst(gradients),
        norm=worst(number_error(r.norm, expected.norms[step], "gradient norm") for step, r in results),
        parameter=parameters,
        traffic=tuple(islice(_traffic(trial, everyone, expected), MOST_NAMED)),
        copies=tuple(differing),
        norms=expected.norms,
    )


def _traffic(trial: Trial, everyone: Sequence[Record], expected: Steps) -> Iterator[str]:
    """Where ranks exchanged something else; behind a step that was clipped, one that overlaps it begins anew."""
    limit = trial.options.clip
    clipped = [False, *(limit is not None and norm > limit for norm in expected.norms)]
    for rank, record in enumerate(everyone):
        for step, log in enumerate(record.traffic):
            anew = trial.program.steps_overlap and clipped[step]
            for difference in differing_traffic(trial.program, record.pipeline_rank, log, anew=anew):
                yield f"rank {rank}, step {step + 1}: {difference}"
    if trial.program.steps_overlap and any(clipped):
        return
    steps = zip(*(record.traffic for record in everyone), strict=True)
    for step, (logs, chosen) in enumerate(zip(steps, expected.chosen, strict=True)):
        for difference in routed_differences(trial.program, logs, chosen):
            yield f"step {step + 1}: {difference}"
