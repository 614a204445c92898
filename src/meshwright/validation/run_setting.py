"""Build the setting of a run from its columns: model, cluster, workload and stack.

The cluster is the device's usual node with the columns in place of its numbers; without a figure for the NICs each
device keeps its usual share of them. A known cluster replaces it for runs on its device; then only the number of
devices is read from the columns. The stack is the one that is named, else ``generic``; columns about kernels and
overlap replace its facts. A plain ``flash`` means the stack's own kernel of that kind, ``flash2`` the older one.
Of the stack's releases it is the newest known one that is no newer than the run's. Ignored: ``compile`` and
``tp_overlap``. Full fine-tuning is priced as
pre-training, ``lora`` with adapters of the usual rank (``model/transforms/lora_adapters.py``).
"""

from dataclasses import replace
from typing import Any

from meshwright.cluster.catalog import device, usual_node
from meshwright.cluster.cluster import Cluster, Node, Pool
from meshwright.cluster.shorthand import usual_cluster
from meshwright.errors import InputError, Problem
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.spellings import stack_in_our_words
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack, load_stack_until, stack_names
from meshwright.stack.stack import Stack
from meshwright.units import BytesPerSecondPerNode, gbit_per_s_to_bytes_per_s
from meshwright.validation.read_run_table import DISPATCHERS, SettingColumns
from meshwright.validation.run_model import architecture
from meshwright.workload.workload import SUPPORTED_PRECISIONS, SUPPORTED_TASKS, Workload

ANY_STACK = "generic"
GATHERED_LOGIT_BYTES = 16
"""Bytes of bf16 logits and their gradient, and in fp32 the gathered logits, their log-softmax, the gradient."""


def setting_of(given: SettingColumns, base: Cluster | None = None) -> Setting:
    """Return the setting of a run, on the ``base`` cluster if that has its device.

    Raises InputError with everything that is wrong or not priced.
    """
    _check(given)
    stack = _stack(given)
    workload = Workload(
        task=given.task or "pretrain",  # type: ignore[arg-type]
        seq_len=given.seq_len,
        global_batch=given.global_batch,
        precision=given.precision or "bf16",  # type: ignore[arg-type]
        fp8_recipe=given.fp8_recipe if given.precision == "fp8" else None,  # type: ignore[arg-type]
    )
    cluster = (_sized(given, base) if base else None) or _cluster(given)
    peaks = cluster.pool.device.peak_flops
    if workload.peak_precision not in peaks:
        rule = f"{given.device} has no such matrix units"
        raise InputError(Problem("precision", given.precision, rule))
    return Setting.of(build_graph(architecture(given, stack)), cluster, workload, stack)


def _check(given: SettingColumns) -> None:
    """Refuse tasks and precisions that are known and not priced."""
    problems = []
    if given.task not in (None, *SUPPORTED_TASKS):
        problems.append(Problem("task", given.task, f"{given.task} is not priced yet"))
    if given.precision not in (None, *SUPPORTED_PRECISIONS):
        problems.append(Problem("precision", given.precision, f"{given.precision} is not priced yet"))
    if problems:
        raise InputError(problems)


def _sized(given: SettingColumns, base: Cluster) -> Cluster | None:
    """Return the known cluster with the run's number of devices; None if its devices are of another kind."""
    pool = next((pool for pool in base.pools if pool.device.id == given.device), None)
    return of_size(base, pool, given.devices) if pool else None


def of_size(cluster: Cluster, pool: Pool, count: int) -> Cluster:
    """Return the cluster with so many devices of one of its pools alone."""
    return replace(cluster, pools=(replace(pool, count=count),))


def _cluster(given: SettingColumns) -> Cluster:
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


def _stack(given: SettingColumns) -> Stack:
    name, _, named = stack_in_our_words(given.stack or "").partition("@")
    release = given.release or named
    known = name if name in stack_names() else ANY_STACK
    stack = load_stack_until(known, release) if release and known == name else load_stack(known)
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
        facts["device_recipes"] = tuple(
            recipe.model_copy(update={"overlaps_exchange": given.expert_overlap})
            for recipe in stack.device_recipes
        )
    if given.synchronous_norm:
        facts["validates_step_afterwards"] = False
    return replace(stack, **facts)


def _attention(kernel: str, stack: Stack) -> dict[str, Any]:
    if kernel == "flash" and stack.attention == "flash3":
        return {}
    softmax = kernel != "eager"
    return {"attention": "flash" if kernel == "flash2" else kernel, "fused_softmax": softmax}
