"""Plans whose copies of tokens travel in every form, with what else meets them; and faults on the way."""

from dataclasses import replace

from covering_plans import Proven
from injected_fault import Fault

from meshwright.runtime.kernels.token_dispatch import deduplicated
from meshwright.runtime.kernels.token_dispatch.deduplicated import DeduplicatedDispatch, Here
from meshwright.runtime.kernels.token_dispatch.row_copies import NOWHERE, RowCopies

EIGHT = (("num_local_experts", 8),)
NODES = Proven("deepseek_v3", dp_shard=4, ep=4, sharding="zero1", once=True, node=2)
"""Eight experts, two on a rank, three of which a token chooses."""
BY_FORM = {
    "flat": replace(NODES, once=False),
    "once-per-rank": replace(NODES, node=8),
    "hierarchical": NODES,
}
BALANCE = (("aux_loss_alpha", 0.5), ("bias_update_speed", 0.05))
CROSSED = (
    Proven(
        "qwen2_moe",
        pp=2,
        dp_replicate=2,
        ep=2,
        schedule="zb-h1",
        recompute=("moe", "layernorm", "shared_experts"),
        micro_batches=4,
        layers=4,
        once=True,
    ),
    Proven(
        "gpt_oss",
        dp_shard=4,
        tp=2,
        ep=4,
        etp=2,
        sharding="zero3",
        gather="per-layer",
        sequence_parallel=True,
        recompute="full",
        sizes=EIGHT,
        once=True,
        node=4,
    ),
    Proven("deepseek_v3", tp=4, ep=4, sequence_parallel=True, sizes=BALANCE, once=True, node=2),
    Proven("mixtral", dp_shard=4, tp=2, ep=8, sequence_parallel=True, sizes=EIGHT, once=True, node=2),
    Proven(
        "glm4_moe",
        pp=2,
        dp_replicate=4,
        ep=4,
        schedule="dualpipe",
        micro_batches=4,
        layers=4,
        once=True,
        node=2,
    ),
    Proven("qwen3_moe", cp=2, dp_replicate=2, ep=2, recompute=("moe",), once=True, node=1),
    Proven(
        "mixtral",
        pp=2,
        dp_shard=4,
        ep=4,
        sharding="zero1",
        schedule="zb-h1",
        step_validation="after",
        micro_batches=4,
        sizes=EIGHT,
        once=True,
        node=2,
    ),
    Proven(
        "deepseek_v2",
        dp_shard=2,
        dp_replicate=4,
        ep=8,
        sharding="zero2",
        recompute=("moe_act",),
        once=True,
        node=4,
    ),
)
"""Split passes, sets that run again, folding, etp, groups and corrections, losses, two chains, steps taken back."""


def _handing_on(change):
    """Change how parts are found inside of a node."""
    original = Here.parts

    def parts(self, size, of):
        found = original(self, size, of)
        return change(found) if self.span[0] or self.span[1] == of else found

    Here.parts = parts


def forwarded_twice():
    original = deduplicated.row_copies

    def spread(parts):
        if not (parts == NOWHERE).any():
            return original(parts)
        (kept,) = (parts != NOWHERE).flatten().nonzero(as_tuple=True)
        return RowCopies(kept[parts.flatten()[kept].argsort(stable=True)], parts.shape)

    deduplicated.row_copies = spread


def sent_where_it_has_no_expert():
    _handing_on(lambda parts: parts.masked_fill(parts == NOWHERE, 0))


def lost():
    original = DeduplicatedDispatch.out

    def out(self, item, sent):
        rows = yield from original(self, item, sent)
        rows[self.own.rows == 0] = 0
        return rows

    DeduplicatedDispatch.out = out


def not_handed_on():
    def without_first(parts):
        parts = parts.clone()
        parts[0] = NOWHERE
        return parts

    _handing_on(without_first)


def weights_of_others():
    original = deduplicated.exchange_router_counts

    def exchanged(communicator, numbers, axes, splits=None):
        found = original(communicator, numbers, axes, splits)
        return found.roll(1, 1) if numbers.is_floating_point() and splits else found

    deduplicated.exchange_router_counts = exchanged


def gradients_of_weights_stay():
    original = DeduplicatedDispatch.arrive

    def arrive(self, come):
        self.of_weights = self.of_weights * 0
        return original(self, come)

    DeduplicatedDispatch.arrive = arrive


TRAVEL_FAULTS = (
    Fault(
        "a token is forwarded twice inside a node", NODES, forwarded_twice, "named error", "size of tensor"
    ),
    Fault(
        "a token is sent to a rank that has none of its experts", NODES, sent_where_it_has_no_expert, "bytes"
    ),
    Fault("a token is lost on the way", NODES, lost),
    Fault("a token is not handed on inside a node", NODES, not_handed_on, "named error", "out of bounds"),
    Fault("results are weighed as other experts'", NODES, weights_of_others),
    Fault("gradients of weights do not come back", NODES, gradients_of_weights_stay),
)
