"""Keys of old job files that change time or memory but that neither torchtitan 0.3.0 nor a plan can express."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from meshwright.frameworks.importing.imported_file import UnmappedOption
from meshwright.frameworks.torchtitan.importing.release_keys import Given


class Loss(NamedTuple):
    """A reason that holds for each value of a key but its default, the ``usual`` one."""

    usual: object
    why: str


LOSSES: Mapping[str, Loss] = {
    "fault_tolerance.enable": Loss(False, "replicas that come and go are not priced"),
    "fault_tolerance.semi_sync_method": Loss(
        "", "replicas that synchronise seldom are priced as in each step"
    ),
    "job.custom_config_module": Loss("", "options of a module of one's own are not read"),
    "optimizer.early_step_in_backward": Loss(
        False, "gradients freed during the backward pass are not priced: less memory than predicted"
    ),
    "optimizer.name": Loss("AdamW", "priced as AdamW: the states of another optimizer may differ"),
    "parallelism.context_parallel_rotate_method": Loss(
        "allgather", "today's torchtitan gathers keys and values once, and that is priced"
    ),
    "parallelism.disable_loss_parallel": Loss(
        False, "priced with a loss over tp's part of the vocabulary: less memory than needed"
    ),
    "parallelism.expert_parallel_comm_backend": Loss("standard", "priced as all-to-all of NCCL"),
    "parallelism.expert_tensor_parallel_degree": Loss(
        1, "today's torchtitan keeps experts whole where expert_parallel_degree > 1, and that is priced"
    ),
    "parallelism.pipeline_parallel_expert_parallel_overlap": Loss(
        True, "the overlap of expert exchanges under DualPipeV is priced as today's torchtitan has it"
    ),
    "quantize.grouped_mm.float8.fqns": Loss(
        [], "products of experts are priced in the precision of the rest"
    ),
    "quantize.grouped_mm.mx.fqns": Loss([], "products of experts are priced in the precision of the rest"),
}
SAME = {"Adam": "AdamW"}
"""Values that cost the same as the usual one."""


def lost_options(values: Mapping[str, Given]) -> Iterator[UnmappedOption]:
    """Yield the keys with another value than the usual one."""
    for name, (usual, why) in LOSSES.items():
        given = values.get(name)
        if given is not None and SAME.get(str(given.value), given.value) != usual:
            yield UnmappedOption(given.key, given.text[:80], why)
