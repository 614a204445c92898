"""What a stack makes of a sharding: which states it cuts, when it gathers parameters, when it reduces gradients.

A name means what ``synchronise.py`` tabulates. Two facts of a stack change it. Where the sharding is PyTorch's FSDP,
zero2 is FSDP that does not reshard after the forward pass: it cuts parameters too, gathers them once in a micro-batch,
or once a step under a pipeline, and is zero3 in all but the name (``zero2_cuts_parameters``; torch 2.13,
``fully_shard``, ``reshard_after_forward``). And where no pipeline runs, a stack may reduce the gradients of every
micro-batch as they come (``reduces_each_micro_batch``), which FSDP with ``gather: per-layer`` always does. With
``gather: per-unit`` gradients follow their parameters: they are reduced once a unit too (``runs.py`` says why).
"""

from typing import NamedTuple

from meshwright.plan.short import ShardingName
from meshwright.stack.stack import Stack


class Moments(NamedTuple):
    """When parameters are gathered ("never" where they are not cut), and when gradients are reduced."""

    gather: str
    reduce: str


def cut_as(sharding: ShardingName, stack: Stack) -> ShardingName:
    """The name of what a stack cuts when it is told ``sharding``."""
    return "zero3" if sharding == "zero2" and stack.zero2_cuts_parameters else sharding


def moments(sharding: ShardingName, gather: str, stack: Stack, *, pipeline: bool) -> Moments:
    """When a stack exchanges states. ``gather`` is the plan's, for parameters that the plan itself cuts."""
    if cut_as(sharding, stack) != "zero3":
        gather = "never"
    elif sharding != "zero3":
        gather = "per-step" if pipeline else "per-micro-batch"
    if gather == "per-unit":
        return Moments(gather, "per-unit")
    each = gather == "per-layer" or (not pipeline and sharding in stack.reduces_each_micro_batch)
    return Moments(gather, "per-micro-batch" if each else "per-step")
