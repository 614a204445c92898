"""Constants of the cost model by name: what depends on them, and settings in which they are changed.

Names: ``hbm_efficiency`` (a constant of everything), ``a100:gemm_efficiency`` (of a kernel family),
``llm-foundry/elementwise_factor`` (a number of a stack), ``oversubscription.pod`` (of a tier of the cluster, at least
1). ``*`` stands for any family or stack.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.cluster.cluster import Tier
from meshwright.cost.constants import constants, kernels
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.setting import Setting
from meshwright.program.model_states.stack_zero_semantics import effective_sharding

ANY = "*"
ATTENTION, MESSAGES, TIER = "attention_efficiency.", "p2p_", "oversubscription."
FITTED = "fitted to runs"
"""The source of a tier's fitted oversubscription."""
SHARDING_ONLY = "fsdp_communication_factor"
"""A number of a stack that only plans with sharded parameters depend on."""
EXPERTS_ONLY = ("grouped", "fused_expert", "expert_host_s")
"""Beginnings of the names that only models with experts depend on."""


def kernel_family(setting: Setting) -> str:
    """Return the family of kernel constants that a setting's device uses."""
    return kernels(setting.cluster.pool.device.id).family


def with_values(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """Return the setting with changed constants; those of other kernel families and stacks change nothing.

    Values are floats or, except those of tiers, arrays with a value for each row of the plans to price.
    """
    calibration, numbers, tiers = {}, {}, setting.cluster.tiers
    for name, value in values.items():
        owner, sign, field = parts_of_name(name)
        if not _is_own(owner, sign, setting):
            continue
        if sign == "/":
            numbers[field] = value
        elif field.startswith(TIER):
            tiers = tuple(
                with_oversubscription(t, value) if t.name == field[len(TIER) :] else t for t in tiers
            )
        else:
            calibration[field] = value
    merged = dict(setting.cluster.calibration) | calibration
    cluster = replace(setting.cluster, calibration=tuple(merged.items()), tiers=tiers)
    return replace(setting, cluster=cluster, stack=replace(setting.stack, **numbers))


def with_oversubscription(tier: Tier, value: float) -> Tier:
    """Return the tier with a fitted oversubscription, of at least 1; a tier that keeps its value keeps its source."""
    value = max(1.0, value)
    return tier if value == tier.oversubscription else replace(tier, oversubscription=value, source=FITTED)


def value_in(setting: Setting, name: str) -> float:
    """Return the value of a constant in a setting: the cluster's own where its calibration has one."""
    _, sign, field = parts_of_name(name)
    calibration = dict(setting.cluster.calibration)
    if field in calibration:
        return calibration[field]
    if field.startswith(TIER):
        return next(t.oversubscription for t in setting.cluster.tiers if t.name == field[len(TIER) :])
    if sign == "/":
        return float(getattr(setting.stack, field))
    if not sign:
        return constants()[field]
    found = kernels(setting.cluster.pool.device.id)
    kind = field.removeprefix(ATTENTION)
    return float(getattr(found, field)) if kind == field else found.attention_efficiency[kind]


def is_of_tier(name: str) -> bool:
    """Return true if a constant is a number of a tier of the cluster."""
    return parts_of_name(name)[2].startswith(TIER)


def is_calibrated(setting: Setting, name: str) -> bool:
    """Return true if the cluster's calibration has its own value of a constant."""
    return parts_of_name(name)[2] in dict(setting.cluster.calibration)


def matters(name: str, setting: Setting, plans: PlanArrays) -> bool:
    """Return true if a constant can change the step time of any of the plans in a setting."""
    owner, sign, field = parts_of_name(name)
    if not _is_own(owner, sign, setting):
        return False
    if field.startswith(EXPERTS_ONLY) and setting.model.architecture.moe is None:
        return False
    if field == SHARDING_ONLY:
        codes = set(plans.sharding.tolist())
        return "zero3" in {effective_sharding(SHARDINGS[code], setting.stack) for code in codes}
    if field.startswith(ATTENTION):
        return field.removeprefix(ATTENTION) in ("flash", setting.stack.attention)
    if field.startswith(TIER):
        cluster = setting.cluster
        return any(field == TIER + t.name and t.devices < cluster.devices for t in cluster.tiers)
    if field.startswith(MESSAGES):
        return bool((plans.pp > 1).any())
    if field.endswith("_speed_up"):
        return field.startswith(setting.workload.precision)
    return True


def parts_of_name(name: str) -> tuple[str, str, str]:
    """Return the owner of a constant, the sign that follows it, and the constant's own name."""
    for sign in "/:":
        if sign in name:
            return name.partition(sign)
    return "", "", name


def _is_own(owner: str, sign: str, setting: Setting) -> bool:
    return owner in ("", ANY) or owner == (setting.stack.name if sign == "/" else kernel_family(setting))
