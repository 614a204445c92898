"""Faults of context parallelism: a block that is not the one meant, a wrong order, a part that is lost."""

from dataclasses import replace

import torch
from fault import Fault
from proof_plans import Proven

from meshwright.plan.context import Context
from meshwright.runtime.kernels.context import heads, ring
from meshwright.runtime.kernels.context.forms import Part
from meshwright.runtime.kernels.context.gathered import Gathered
from meshwright.runtime.kernels.context.tiled import Partial
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.rounds import Round

RING = Proven("llama", cp=4, micro_batches=1, layers=2)
ULYSSES = replace(RING, cp=2, context="ulysses")
BOTH = replace(RING, context=Context(form="ring", ulysses=2))


def off_by_one_block():
    original = Part.of

    def of(self, place):
        mine = place % self.ranks == self.setting.ring_place
        return original(self, place if mine else place + 1)

    Part.of = of


def other_way_round():
    original = Round.pass_on
    Round.pass_on = lambda self, tensor, *args, distance=1: original(self, tensor, *args, distance=-distance)


def own_part_lost():
    original = ring.round_trip

    def round_trip(around, held, contribute):
        def others(place, tensor):
            part = contribute(place, tensor)
            return torch.zeros_like(part) if place == around.place else part

        return original(around, held, others)

    ring.round_trip = round_trip


def statistics_not_used():
    original = Partial.add

    def add(self, place, q, out, statistic):
        original(self, place, q, out, torch.zeros_like(statistic))

    Partial.add = add


def positions_begin_again_on_every_rank():
    original = Setting.positions.func
    Setting.positions = property(lambda self: torch.arange(len(original(self))))


def heads_of_another_rank():
    original = heads._heads_together
    heads._heads_together = lambda x: original(x.flip(0))


def gathered_in_the_order_of_ranks():
    Gathered._sorted = lambda self, whole: whole


def results_return_to_a_neighbour():
    original = Round.pass_on

    def pass_on(self, tensor, *args, distance=1):
        return original(self, tensor, *args, distance=distance if distance == 1 else -1)

    Round.pass_on = pass_on


CONTEXT_FAULTS = (
    Fault("a ring is off by one block", RING, off_by_one_block),
    Fault("keys go round the other way", RING, other_way_round),
    Fault("gradients of a rank's own keys are lost", RING, own_part_lost),
    Fault("parts of a softmax are added without their statistics", RING, statistics_not_used),
    Fault("positions begin again on every rank of cp", RING, positions_begin_again_on_every_rank),
    Fault("heads come back in another order", ULYSSES, heads_of_another_rank),
    Fault("heads come back in another order inside of a ring", BOTH, heads_of_another_rank),
    Fault(
        "gathered keys stay in the order of ranks",
        replace(RING, context="all-gather"),
        gathered_in_the_order_of_ranks,
    ),
    Fault(
        "results go back to the wrong rank",
        replace(RING, context="token-ring"),
        results_return_to_a_neighbour,
    ),
    Fault("scores are written down off by one block", replace(RING, context="rsa"), off_by_one_block),
)
