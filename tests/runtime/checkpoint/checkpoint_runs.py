"""Runs that are saved and restored, on forked ranks: losses, and every value that a rank holds between steps."""

import torch
import torch.distributed as dist
from local_plans import batch, micro_batches, small
from tiny_models import tiny

from meshwright.runtime.batch.label_counts import labels_by_replica
from meshwright.runtime.checkpoint import restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.shard_files import stretches
from meshwright.runtime.executor.interpreter import finish_validation
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors

SMALLEST = tiny("llama", num_hidden_layers=1)
OPTIONS = StepOptions(lr=1e-2)
FACTS = {"seed": 7, "data": ["a.txt"], "best": 0.1}


def on_ranks(case, work, precision="fp64", options=OPTIONS, with_store=False):
    """What ``work(rank, steps)`` returns on each rank of a new run; ``steps(numbers)`` takes steps.

    ``with_store``: the ranks' store is the third argument.
    """
    tensors = random_tensors(case.model, 0)
    job = Job(case.program, case.model, precision, options, 60.0, accelerated=False)

    def whole_work(place, store, tell):
        with rank_of(job, place, store, tensors) as rank:
            everyone = [None] * place.ranks
            arguments = rank, lambda numbers: taken(case, rank, numbers), *([store] if with_store else [])
            dist.all_gather_object(everyone, work(*arguments))
            return everyone

    return run_locally(whole_work, case.program.parts.ranks, 60, lambda what, part: None)


def taken(case, rank, numbers):
    """Steps of these numbers, whose batches depend on the number alone: (loss, norm) of each."""
    found = []
    rank.interpreter.states.after_norm = lambda result: found.append((result.loss.hex(), result.norm.hex()))
    for number in numbers:
        tokens, labels = batch(case.model, case.global_batch, number)
        parts = micro_batches(case.program, rank.place.rank, tokens, labels)
        rank.interpreter.step(parts, 1 / number, labels_by_replica(case.program, labels))
    finish_validation(rank.interpreter)
    return found


def held(rank):
    """Every bit of a rank's parameters and moments, and the number of steps."""
    values = {s.name: s.values.contiguous().view(torch.uint8).numpy().tobytes() for s in stretches(rank)}
    return rank.interpreter.states.optimizer.step, values


def run_on(case, folder, precision="fp64", save=True):
    """Six steps, saved after three: (results, what is held) of each rank."""

    def work(rank, steps):
        results = steps(range(1, 4))
        if save:
            save_checkpoint(folder, rank, FACTS)
        return results + steps(range(4, 7)), held(rank)

    return on_ranks(case, work, precision)


def resumed(case, path, precision="fp64"):
    """The last three steps of a run, by new processes from a checkpoint."""

    def work(rank, steps):
        facts = restore_checkpoint(path, rank)
        return steps(range(4, 7)), held(rank), facts

    return on_ranks(case, work, precision)


def saved(folder, case=None, numbers=(1,)):
    """A checkpoint after these steps."""

    def work(rank, steps):
        steps(numbers)
        return save_checkpoint(folder, rank, FACTS)

    return on_ranks(case or small(SMALLEST), work)[0]
