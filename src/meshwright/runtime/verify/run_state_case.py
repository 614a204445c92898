"""Verify the rounding of states: run a case with states in the plan's types, and compare it with one process.

The ranks compute in fp64, so that only the states round. Two things are compared. What ranks add to their gradients is,
summed without rounding, the gradient that autograd finds under the parameters that the passes saw. And what one process
makes of these additions, with the plan's order and rounding, is what the ranks hold after the last step.

Gradients are clipped in every step. A narrow gradient that is not scaled gives moments such as 0.9·m + 0.1·g that lie
exactly half-way between two values of their type, where the last bit of fp64 decides how they are rounded.
"""

from dataclasses import replace

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.precision import ROUNDED, precision_of
from meshwright.runtime.verify.case_result import Outcome, StateOutcome
from meshwright.runtime.verify.recorded_states import StateRecord, record_states
from meshwright.runtime.verify.reference_steps import reference_gradients, stored_tensors
from meshwright.runtime.verify.run_case import LIMIT_S, WAIT_S, gathered, run_case_with_clipping
from meshwright.runtime.verify.state_reference import StateReference
from meshwright.runtime.verify.tensor_errors import Error, joined, number_error, tensor_error, worst
from meshwright.runtime.verify.verify_case import VerifyCase

CLIPPED_TO = 0.5
"""The largest limit of the norm, as a part of the least norm of the steps with wide states."""


def run_case_and_states(trial: VerifyCase, report: ProgressCallback) -> Outcome:
    """Run a case with wide states, and again with those of its plan if it writes element types.

    Plans whose steps overlap are run with wide states only: a step that is undone would be recorded twice.
    """
    outcome = run_case_with_clipping(trial, report)
    program = trial.program
    if (
        not program.changed_types
        or program.steps_overlap
        or program.stack.optimizer.forward_only
        or outcome.failure
    ):
        return outcome
    limit = CLIPPED_TO * min(outcome.norms)
    clip = limit if trial.options.clip is None else min(trial.options.clip, limit)
    clipped = replace(trial, options=replace(trial.options, clip=clip))
    return replace(outcome, states=run_state_case(clipped, report))


def run_state_case(trial: VerifyCase, report: ProgressCallback) -> StateOutcome:
    """Run a case whose plan writes element types, and compare the rounded states."""

    def work(place: Place, store: dist.Store, report: ProgressCallback) -> StateOutcome | None:
        job = Job(trial.program, trial.model, ROUNDED, trial.options, WAIT_S, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            everyone = gathered(record_states(trial, rank, report), place)
            return None if place.rank else _judged(trial, everyone)

    try:
        outcome = run_locally(work, trial.program.parts.ranks, LIMIT_S, report)
    except RunError as error:
        return StateOutcome(failure=str(error))
    assert isinstance(outcome, StateOutcome)
    return outcome


def _judged(trial: VerifyCase, everyone: list[StateRecord]) -> StateOutcome:
    precision = precision_of(ROUNDED, trial.program.changed_types)
    tensors = trial.tensors()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    reference = StateReference(trial.program, everyone, precision, trial.options, shapes)
    reference.load(tensors)
    stored = stored_tensors(trial, tensors)  # frozen ones stay as they are
    losses, gradients = [], []
    for step, batch in enumerate(trial.batches()):
        seen, _ = joined(piece for record in everyone for piece in record.parameters[step])
        if not seen:
            return StateOutcome(failure=f"step {step + 1} begins with parameters that are not finite")
        loss, expected = reference_gradients(trial, {**stored, **seen}, batch)
        losses += [number_error(record.results[step].loss, loss, "loss") for record in everyone]
        added = reference.whole(reference.gradients(step, wide=True))
        gradients.append(tensor_error(added, expected))
        reference.step(reference.gradients(step))
    return StateOutcome(loss=worst(losses), gradient=worst(gradients), state=_state_error(reference))


def _state_error(reference: StateReference) -> Error:
    """Return the largest error of a state, in units of the last place of its type."""
    errors = [Error(0.0, "")]
    for (rank, unit, number), expected in reference.states.items():
        record = reference.records[rank].units[unit]
        for name in expected:
            apart = (record.states[number][name] - expected[name]).abs() / record.spacings[number][name]
            value = float(apart.max()) if len(apart) else 0.0
            of = f"{name} of {record.spans[number].name}"
            errors.append(Error(value if value == value else torch.inf, of))
    return worst(errors)
