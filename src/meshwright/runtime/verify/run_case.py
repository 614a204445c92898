"""Run a verification case on forked ranks of this host and compare it with plain PyTorch.

Ranks send their results to rank 0, which computes the reference and compares: the parent touches no tensor, so that it
can fork again.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.plans.synchronisation.synchronisation import shares_per_replica
from meshwright.program.program import Program
from meshwright.program.synchronisation.encoded_program import encodes_inside_steps
from meshwright.program.synchronisation.islands import islands
from meshwright.runtime.batch.label_counts import labels_by_replica
from meshwright.runtime.comm.communicator import Traffic
from meshwright.runtime.comm.host_link import StateCopy
from meshwright.runtime.executor.interpreter import finish_validation
from meshwright.runtime.executor.rank import Job, Rank, rank_of
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.state.anchor_parameters import anchored_model
from meshwright.runtime.state.forward_only_states import ForwardOnlyStates
from meshwright.runtime.state.post_validation import StepResult
from meshwright.runtime.state.shard_pieces import Piece, pieces_of
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.verify.case_result import Outcome, together
from meshwright.runtime.verify.expected_copies import differing_copies
from meshwright.runtime.verify.expected_traffic import between_islands, differing_traffic, inside_steps
from meshwright.runtime.verify.reference_steps import Steps, Tensors, island_steps, reference_steps
from meshwright.runtime.verify.reference_two_losses import GRADIENT, LOSSES
from meshwright.runtime.verify.routed_traffic import (
    routed_differences,
    token_exchanges,
    without_shared_buckets,
)
from meshwright.runtime.verify.tensor_errors import Error, joined, number_error, tensor_error, worst
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches

WAIT_S = 120.0
"""Seconds that an operation waits for its partners."""
LIMIT_S = 600.0
"""Seconds that a case may take."""
JUST_BELOW = 0.999
"""Factor of a norm that gives a limit just below it."""
MOST_NAMED = 8
"""Number of differing exchanges that are reported."""
Fault = Callable[[], None]
T = TypeVar("T")


def no_fault() -> None:
    """Do nothing: inject no fault."""


@dataclass
class Record:
    """Results of a rank: per step its loss and norm, its pieces of the reduced gradients, exchanges and copies.

    Parameters are those after the last step; ``anchors`` stand for the model where islands differ.
    """

    pipeline_rank: int
    results: list[StepResult] = field(default_factory=list)
    gradients: list[list[Piece]] = field(default_factory=list)
    traffic: list[list[Traffic]] = field(default_factory=list)
    copies: list[list[StateCopy]] = field(default_factory=list)
    parameters: list[Piece] = field(default_factory=list)
    anchors: list[Piece] = field(default_factory=list)


def run_case(
    trial: VerifyCase, report: ProgressCallback, fault: Fault = no_fault, *, accelerated: bool = False
) -> Outcome:
    """Run a case. ``fault`` is called in every rank before it begins, to inject an error that should be detected.

    If ``accelerated``, ranks compute on accelerators; the reference is always computed on the CPU.
    """

    def work(place: Place, store: dist.Store, report: ProgressCallback) -> Outcome | None:
        fault()
        job = Job(
            trial.program,
            trial.model,
            "fp64",
            trial.options,
            WAIT_S,
            accelerated=accelerated,
            rates=trial.rates,
        )
        with rank_of(job, place, store, trial.tensors()) as rank:
            everyone = gathered(recorded(trial, rank, report), place)
            return None if place.rank else _judged(trial, everyone)

    try:
        outcome = run_locally(work, trial.program.parts.ranks, LIMIT_S, report)
    except RunError as error:
        return Outcome(failure=str(error))
    assert isinstance(outcome, Outcome)
    return outcome


def run_case_with_clipping(trial: VerifyCase, report: ProgressCallback) -> Outcome:
    """Run a case; if steps overlap, run it again with a norm limit just below the first step's norm.

    With the usual, low limit most ranks know from partial sums that it is exceeded, and wait. With the higher one they
    learn it too late, and must undo their step.
    """
    first = run_case(trial, report)
    if not (trial.program.steps_overlap and first.equal):
        return first
    options = replace(trial.options, clip=JUST_BELOW * first.norms[0])
    again = run_case(replace(trial, options=options), report)
    return again if again.worst.value > first.worst.value or not again.equal else first


def recorded(trial: VerifyCase, rank: Rank, report: ProgressCallback) -> Record:
    """Run all steps and record the results."""
    record, units = Record(rank.plan.pipeline_rank), rank.plan.trained_units
    states = rank.interpreter.states
    states.before_step = lambda: record.gradients.append(
        _two_losses(states) if isinstance(states, ForwardOnlyStates) else _pieces(units, _reduced)
    )
    states.after_norm = record.results.append
    for step, batch in enumerate(trial.batches()):
        before, copied = len(rank.communicator.log), len(rank.plan.host.log)
        rank.interpreter.step(
            micro_batches(trial, batch, rank.place.rank, rank.communicator.device),
            labels=labels_by_replica(trial.program, batch.labels),
        )
        record.traffic.append(rank.communicator.log[before:])
        record.copies.append(rank.plan.host.log[copied:])
        if rank.place.rank == 0:
            report(f"step {step + 1}", 0.0)
    finish_validation(rank.interpreter)
    before = len(rank.communicator.log)
    states.synchroniser.settle()
    record.traffic[-1] += rank.communicator.log[before:]
    buffers = rank.plan.buffers.items()
    whole = [Piece(name, size := tuple(buffer.shape), size, (), 0, buffer.cpu()) for name, buffer in buffers]
    record.parameters = _pieces(units, lambda unit: unit.owned) + whole + _on_cpu(states.changes.pieces())
    with anchored_model(states):
        record.anchors = _pieces(units, lambda unit: unit.owned)
    return record


def _pieces(units: Sequence[Unit], buffer: Callable[[Unit], torch.Tensor]) -> list[Piece]:
    return _on_cpu(piece for unit in units for piece in pieces_of(unit, buffer(unit)))


def _on_cpu(pieces: Iterable[Piece]) -> list[Piece]:
    return [replace(piece, values=piece.values.cpu()) for piece in pieces]


def _two_losses(states: ForwardOnlyStates) -> list[Piece]:
    """Return what a step without backward passes computes, as pieces of tensors that every rank has whole."""
    found = states.found
    assert found is not None
    values = {LOSSES: [found.plus, found.minus], GRADIENT: [found.gradient]}
    return [
        Piece(name, (len(of),), (len(of),), (), 0, torch.tensor(of, dtype=torch.float64))
        for name, of in values.items()
    ]


def _reduced(unit: Unit) -> torch.Tensor:
    assert unit.reduced is not None
    return unit.reduced


def gathered(record: T, place: Place) -> list[T]:
    """Gather the records of all ranks on rank 0."""
    out = io.BytesIO()
    torch.save(record, out)
    found: list[bytes] | None = [b""] * place.ranks if place.rank == 0 else None
    dist.gather_object(out.getvalue(), found)
    return [torch.load(io.BytesIO(data), weights_only=False) for data in found or ()]


def _judged(trial: VerifyCase, everyone: Sequence[Record]) -> Outcome:
    """Compare the ranks of every island with the reference of that island."""
    program = trial.program
    logs = [record.traffic for record in everyone]
    encoded = inside_steps(program, logs, trial.steps) if encodes_inside_steps(program) else []
    if program.loose:
        of_islands = island_steps(trial)
        places = islands(program.parts[0].grid, program.loose)
    else:
        of_islands, places = [reference_steps(trial)], [tuple(range(len(everyone)))]
    judged = [
        _judged_island(trial, everyone, list(ranks), expected)
        for ranks, expected in zip(places, of_islands, strict=True)
    ]
    steps = zip(*(expected.chosen for expected in of_islands), strict=True)
    chosen = [[torch.cat(layer) for layer in zip(*of_step, strict=True)] for of_step in steps]
    exchanges = encoded + between_islands(program, logs, trial.steps, trial.rates)
    exchanges += token_exchanges(program, logs, chosen)
    outcome = together(judged, sorted(exchanges, key=lambda one: one.entry))
    return replace(outcome, from_exact=_from_exact(trial, everyone)) if program.synchronise else outcome


def model_of(program: Program, everyone: Sequence[Record]) -> Tensors:
    """Return the model after the last step; where islands differ, the anchor of the first one."""
    first = islands(program.parts[0].grid, program.loose)[0] if program.loose else range(len(everyone))
    tensors, _ = joined(piece for rank in first for piece in everyone[rank].anchors)
    return tensors


def _from_exact(trial: VerifyCase, everyone: Sequence[Record]) -> Error:
    """Return the largest difference of the model from that of exact data parallelism, in one process."""
    found = model_of(trial.program, everyone)
    program = trial.program
    once = program.micro_batches // shares_per_replica(program.synchronise)
    without = replace(program, synchronise=(), loose=(), micro_batches=once)
    exact = reference_steps(replace(trial, program=without, exact=True))
    expected = {name: tensor for name, tensor in exact.parameters.items() if name in found}
    return tensor_error(found, expected) if found else Error(float("inf"), "")


def _judged_island(
    trial: VerifyCase, everyone: Sequence[Record], ranks: Sequence[int], expected: Steps
) -> Outcome:
    island = [everyone[rank] for rank in ranks]
    differing: dict[str, None] = {}

    # one step's gradient along its noise may happen to be near zero
    least = max(expected.norms) if trial.program.stack.optimizer.forward_only else 0.0

    def error(
        pieces: Sequence[Sequence[Piece]], reference: Tensors, slack: Tensors, least: float = 0.0
    ) -> Error:
        tensors, copies = joined(piece for of_rank in pieces for piece in of_rank)
        differing.update(dict.fromkeys(copies))
        return tensor_error(tensors, reference, slack, least) if tensors else Error(float("inf"), copies[0])

    gradients = [
        error([record.gradients[step] for record in island], dict(reference), {}, least)
        for step, reference in enumerate(expected.gradients)
    ]
    parameters = error([record.parameters for record in island], dict(expected.parameters), expected.slack)
    results = [(step, result) for record in island for step, result in enumerate(record.results)]
    return Outcome(
        loss=worst(number_error(r.loss, expected.losses[step], "loss") for step, r in results),
        gradient=worst(gradients),
        norm=worst(number_error(r.norm, expected.norms[step], "gradient norm", least) for step, r in results),
        parameter=parameters,
        traffic=tuple(islice(_traffic(trial, everyone, ranks, expected), MOST_NAMED)),
        copies=tuple(differing),
        norms=expected.norms,
        magnified=_magnified(trial),
    )


def _magnified(trial: VerifyCase) -> float:
    """Return by how much a difference of two losses over 2ε magnifies their rounding; 1 with backward passes."""
    optimizer = trial.program.stack.optimizer
    return 1 / (2 * optimizer.epsilon) if optimizer.forward_only else 1.0


def _traffic(
    trial: VerifyCase, everyone: Sequence[Record], ranks: Sequence[int], expected: Steps
) -> Iterator[str]:
    """Yield differing exchanges of some ranks; after a clipped step, a step that overlaps it is restarted."""
    limit = trial.options.clip
    clipped = [False, *(limit is not None and norm > limit for norm in expected.norms)]
    for rank in ranks:
        record = everyone[rank]
        for step, log in enumerate(record.traffic):
            anew = trial.program.steps_overlap and clipped[step]
            for difference in differing_traffic(trial.program, rank, log, anew=anew):
                yield f"rank {rank}, step {step + 1}: {difference}"
        for step, copies in enumerate(record.copies):
            for difference in differing_copies(trial.program, record.pipeline_rank, copies):
                yield f"rank {rank}, step {step + 1}: {difference}"
    for step, chosen in enumerate(expected.chosen):
        for difference in without_shared_buckets(trial.program, chosen):
            yield f"step {step + 1}: {difference}"
    if trial.program.steps_overlap and any(clipped):
        return
    if trial.program.loose:
        return  # routers' choices of one island do not say what another one sends
    steps = zip(*(record.traffic for record in everyone), strict=True)
    for step, (logs, chosen) in enumerate(zip(steps, expected.chosen, strict=True)):
        for difference in routed_differences(trial.program, logs, chosen):
            yield f"step {step + 1}: {difference}"
