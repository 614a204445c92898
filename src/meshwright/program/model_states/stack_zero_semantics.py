"""A stack's meaning of a sharding: the states that it cuts, and the times of gathers and reductions.

A name means what ``data_parallel_collectives.py`` tabulates. Two facts of a stack change it. Where the sharding is
PyTorch's FSDP, zero2 is FSDP that does not reshard after the forward pass: it cuts parameters too, gathers them once
in a micro-batch, or once a step under a pipeline, and is zero3 in all but the name (``zero2_cuts_parameters``; torch
2.13, ``fully_shard``, ``reshard_after_forward``). And where no pipeline runs, a stack may reduce the gradients of every
micro-batch as they come (``reduces_each_micro_batch``), which FSDP with ``gather: per-layer`` always does. With
``gather: per-unit`` gradients follow their parameters: they are reduced once a unit too
(``per_unit_gather_and_reduce.py`` says why).
"""

from typing import NamedTuple

from meshwright.plans.forms.short import ShardingName
from meshwright.stack.stack import Stack


class ExchangeTiming(NamedTuple):
    """The time of parameter gathers ("never" where they are not cut) and of gradient reductions."""

    gather: str
    reduce: str


def effective_sharding(sharding: ShardingName, stack: Stack) -> ShardingName:
    """Return the sharding that a stack carries out for the name ``sharding``."""
    return "zero3" if stack.cuts_parameters(sharding) else sharding


def exchange_timing(sharding: ShardingName, gather: str, stack: Stack, *, pipeline: bool) -> ExchangeTiming:
    """Return the timing of a stack's state exchanges. ``gather`` is the plan's, for parameters that it cuts."""
    if effective_sharding(sharding, stack) != "zero3":
        gather = "never"
    elif sharding != "zero3":
        gather = "per-step" if pipeline else "per-micro-batch"
    if gather == "per-unit":
        return ExchangeTiming(gather, "per-unit")
    each = gather == "per-layer" or (not pipeline and sharding in stack.reduces_each_micro_batch)
    return ExchangeTiming(gather, "per-micro-batch" if each else "per-step")
