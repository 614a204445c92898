"""Plans that send centroids of similar tokens to experts, each with something else, and faults of their exchange."""

from dataclasses import dataclass, replace

import torch
from covering_plans import Proven
from injected_fault import Fault

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.kernels.moe import token_buckets
from meshwright.runtime.kernels.token_dispatch.bucketed import BucketedDispatch
from meshwright.runtime.kernels.token_dispatch.per_expert import PerExpertDispatch
from meshwright.runtime.verify.verify_case import VerifyCase


def entry(state="expert_token", over="ep", **keys):
    return Synchronisation.model_validate({"state": state, "over": over} | keys)


USUAL = entry(compress={"lsh": {}})
COARSE = entry(compress={"lsh": {"hashes": 3, "width": 4}})
"""Most buckets hold several tokens, which differ."""
FINE = entry(compress={"lsh": {"hashes": 24}})
"""Only equal tokens share a bucket."""
BUCKETED = Proven("mixtral", dp_shard=2, ep=2, sharding="zero1", synchronise=(USUAL,))
FEW = replace(BUCKETED, synchronise=(COARSE,))
EIGHT = (("num_local_experts", 8),)
DILOCO = entry("parameter", "dp_replicate", every=2, outer={"nesterov": {"lr": 0.7}})
QUANTISED = entry("gradient", "dp_replicate", compress={"quantise": "int8"})
PLANS = (
    BUCKETED,
    replace(BUCKETED, micro_batch=2),
    replace(FEW, tp=2, sequence_parallel=True),
    replace(BUCKETED, dp_shard=4, ep=4, sharding="zero3", sizes=EIGHT),
    replace(FEW, dp_shard=4, ep=4, sizes=EIGHT),
    replace(FEW, dp_shard=1, tp=2, sequence_parallel=True),
    replace(FEW, tp=2, etp=2, sequence_parallel=True),
    replace(FEW, model="gpt_oss", tp=2, etp=2, sequence_parallel=True),
    replace(FEW, pp=2),
    replace(FEW, pp=2, sharding="zero2", schedule="zb-h1", micro_batches=4, layers=4),
    replace(FEW, recompute="full"),
    replace(FEW, recompute=("moe",), sharding="zero3"),
    replace(FEW, recompute=("moe_act",)),
    replace(FEW, cp=2),
    replace(FEW, model="deepseek_v3"),
    replace(FEW, model="qwen3_moe", expert_order=None),
    replace(FEW, expert_order=((5, 0, 3, 2, 4, 1),)),
    replace(FEW, documents=9),
    replace(FEW, dp_replicate=2, synchronise=(COARSE, DILOCO), steps=4),
    replace(FEW, dp_replicate=2, synchronise=(QUANTISED, COARSE)),
)


@dataclass(frozen=True)
class Unlike(VerifyCase):
    """A case whose batches are those of plans without hashing: no two tokens for one expert are alike."""

    def batches(self):
        return plain(replace(BUCKETED, steps=self.steps)).batches()


def plain(plan):
    """The case of a plan without entries."""
    return replace(plan, synchronise=()).trial()


# -- faults -------------------------------------------------------------------------------------------------------


def differences_are_forgotten():
    original = BucketedDispatch.leave

    def leave(self, tokens):
        centroids = original(self, tokens)
        rows = centroids[self.routes.buckets.of_rows]
        self.held = rows, centroids
        return centroids

    def weighed(self, come, visit):
        self.held = None
        return PerExpertDispatch.weighed(self, come[self.routes.buckets.of_rows], visit)

    BucketedDispatch.leave, BucketedDispatch.weighed = leave, weighed


def centroids_have_no_gradient():
    def arrive(self, come):
        return PerExpertDispatch.arrive(self, self._take()[0])

    BucketedDispatch.arrive = arrive


def gradients_are_averaged():
    original = BucketedDispatch.unweighed

    def unweighed(self, g, visit):
        return original(self, g, visit) / self.routes.buckets.sizes[:, None]

    BucketedDispatch.unweighed = unweighed


def signs_are_ignored():
    original = token_buckets.hash_codes

    def hash_codes(tokens, matrices, hashes):
        return original(tokens, matrices, hashes) % (matrices.shape[1] // hashes)

    token_buckets.hash_codes = hash_codes


def layers_share_their_matrices():
    original = token_buckets.projections
    token_buckets.projections = lambda hashing, seed, layer, hidden: original(hashing, seed, 0, hidden)


def first_row_stands_for_a_bucket():
    def means(self, rows, dtype):
        first = torch.cat([self.sizes.new_zeros(1), self.sizes.cumsum(0)[:-1]])
        return rows[self._order][first]

    token_buckets.TokenBuckets.means = means


BUCKET_FAULTS = (
    Fault("what tokens differ by from their centroid is lost", FEW, differences_are_forgotten, "loss"),
    Fault("centroids have no gradient", FEW, centroids_have_no_gradient, "gradients"),
    Fault("gradients of a bucket are averaged", FEW, gradients_are_averaged, "gradients"),
    Fault("opposite tokens share a bucket", FEW, signs_are_ignored, "bytes"),
    Fault("all layers hash alike", FEW, layers_share_their_matrices, "bytes"),
    Fault("a bucket's first token stands for its mean", FEW, first_row_stands_for_a_bucket, "loss"),
)
