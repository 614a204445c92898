"""The setting of a run: model, cluster, workload and stack that its columns describe.

The cluster is the device's usual node with the columns in place of its numbers; without a figure for the NICs each
device keeps its usual share of them. A cluster that is known better stands in its place for runs on its device, and of
the columns only their number counts. The stack is the one that is named, else ``generic``; columns about kernels and
overlap replace its facts. A plain ``flash`` means the stack's own kernel of that kind, ``flash2`` the older one.

Ignored: ``compile``, ``tp_overlap``, ``fp8_recipe`` and the stack's release. Full fine-tuning is priced as
pre-training, ``lora`` with adapters of the usual rank (``model/adapters.py``).
"""

from dataclasses import replace
from typing import Any

from meshwright.cluster.catalog import device, usual_node
from meshwright.cluster.graph import Cluster, Node, Pool
from meshwright.cluster.shorthand import usual_cluster
from meshwright.errors import InputError, Problem
from meshwright.model.blocks import build_graph
from meshwright.plan.setting import Setting
from meshwright.stack.load import load_stack, stack_names
from meshwright.stack.stack import Stack
from meshwright.units import BytesPerSecondPerNode, gbit_per_s_to_bytes_per_s
from meshwright.validation.models import architecture
from meshwright.validation.rows import DISPATCHERS, Given
from meshwright.workload.workload import SUPPORTED_PRECISIONS, SUPPORTED_TASKS, Workload

ANY_STACK = "generic"
GATHERED_LOGIT_BYTES = 16
"""bf16 logits and their gradient, and in fp32 the gathered logits, their logarithmic softmax, the gradient."""


def setting_of(given: Given, known: Cluster | None = None) -> Setting:
    """The setting of a run, on the ``known`` cluster if that has its device.

    Raises InputError with what is wrong or not priced.
    """
    _check(given)
    stack = _stack(given)
    workload = Workload(
        task=given.task or "pretrain",  # type: ignore[arg-type]
        seq_len=given.seq_len,
        global_batch=given.global_batch,
        precision=given.precision or "bf16",  # type: ignore[arg-type]
    )
    cluster = (_known_cluster(given, known) if known else None) or _cluster(given)
    peaks = cluster.pool.device.peak_flops
    if workload.peak_precision not in peaks:
        rule = f"{given.device} has no such matrix units"
        raise InputError(Problem("precision", given.precision, rule))
    return Setting.of(build_graph(architecture(given, stack)), cluster, workload, stack)


def _check(given: Given) -> None:
    """Tasks and precisions that are known and not priced."""
    problems = []
    if given.task not in (None, *SUPPORTED_TASKS):
        problems.append(Problem("task", given.task, f"{given.task} is not priced yet"))
    if given.precision not in (None, *SUPPORTED_PRECISIONS):
        problems.append(Problem("precision", given.precision, f"{given.precision} is not priced yet"))
    if problems:
        raise InputError(problems)


def _known_cluster(given: Given, known: Cluster) -> Cluster | None:
    """As many devices of the known cluster as the run had; None where they are of another kind."""
    pool = next((pool for pool in known.pools if pool.device.id == given.device), None)
    return of_size(known, pool, given.devices) if pool else None


def of_size(cluster: Cluster, pool: Pool, count: int) -> Cluster:
    """The cluster with so many devices of one of its pools alone."""
    return replace(cluster, pools=(replace(pool, count=count),))


def _cluster(given: Given) -> Cluster:
    node = usual_node(given.device)
    devices = given.devices_per_node or node.devices
    domain = devices if node.scaleup_domain == node.devices else node.scaleup_domain
    nic = node.nic_bytes_per_s_per_device * devices
    if given.node_nic_gbit_per_s is not None:
        nic = gbit_per_s_to_bytes_per_s(given.node_nic_gbit_per_s)
    changed: Node = replace(
        node,
        devices=devices,
        scaleup_domain=given.scaleup_domain or domain,
        nic_bytes_per_s=BytesPerSecondPerNode(nic),
    )
    cluster = usual_cluster(device(given.device), given.devices)
    return replace(cluster, pools=(replace(cluster.pool, node=changed),))


def _stack(given: Given) -> Stack:
    name = (given.stack or "").partition("@")[0]
    stack = load_stack(name if name in stack_names() else ANY_STACK)
    facts: dict[str, Any] = {}
    if given.attention is not None:
        facts |= _attention(given.attention, stack)
    if given.fused_norm is not None:
        facts["fused_norm"] = given.fused_norm
    if given.loss_logits == "gathered-fp32":
        facts |= {"loss_vocab_parallel": False, "logit_bytes": max(stack.logit_bytes, GATHERED_LOGIT_BYTES)}
    if given.comm_overlap == "none":
        facts |= {"overlap_gradient_reduction": False, "overlap_parameter_gather": False}
    if given.expert_dispatch is not None:
        facts["deduplicates_exchange"] = DISPATCHERS[given.expert_dispatch]
    if given.expert_overlap is not None:
        facts["overlap_expert_exchange"] = given.expert_overlap
    if given.synchronous_norm:
        facts["validates_step_afterwards"] = False
    return replace(stack, **facts)


def _attention(kernel: str, stack: Stack) -> dict[str, Any]:
    if kernel == "flash" and stack.attention == "flash3":
        return {}
    softmax = kernel != "eager"
    return {"attention": "flash" if kernel == "flash2" else kernel, "fused_softmax": softmax}
