"""Constants of the cost model by name: what depends on them, and settings in which they are changed.

Names: ``hbm_efficiency`` (a constant of everything), ``a100:gemm_efficiency`` (of a kernel family),
``llm-foundry/elementwise_factor`` (a number of a stack), ``oversubscription.pod`` (of a tier of the cluster, at least
1). ``*`` stands for any family or stack.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.cluster.cluster import Tier
from meshwright.cost.constants import (
    JITTER,
    RECIPE,
    constants,
    kernel_constant,
    kernels,
    on_links,
    recipe_costs,
    step_jitter_on,
)
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.setting import Setting
from meshwright.program.model_states.stack_zero_semantics import effective_sharding

ANY = "*"
ATTENTION, MESSAGES, TIER = "attention_efficiency.", "p2p_", "oversubscription."
HOST = "host_s_per_layer"
"""A number of a stack that a cluster's calibration may have, too."""
FITTED = "fitted to runs"
"""The source of a tier's fitted oversubscription."""
SHARDING_ONLY = "fsdp_communication_factor"
"""A number of a stack that only plans with sharded parameters depend on."""
EXPERTS_ONLY = ("grouped", "fused_expert", "expert_host_s")
"""Beginnings of the names that only models with experts depend on."""


def kernel_family(setting: Setting) -> str:
    """Return the family of kernel constants that a setting's device uses."""
    return kernels(setting.cluster.pool.device.id).family


def with_values(setting: Setting, values: Mapping[str, Any], source: str = FITTED) -> Setting:
    """Return the setting with changed constants; those of other kernel families and stacks change nothing.

    Of several values of a constant that with the narrowest owner counts. Values are floats or, except those of tiers,
    arrays with a value for each row of the plans to price. A stack that keeps its numbers is the same object.
    ``source`` is that of oversubscriptions.
    """
    calibration, numbers = dict(setting.cluster.calibration), dict[str, Any]()
    tiers = setting.cluster.tiers
    for name, value in sorted(values.items(), key=lambda one: narrowness(one[0])):
        owner, sign, field = parts_of_name(name)
        if not _is_own(owner, sign, setting):
            continue
        if sign == "/":
            numbers[field] = value
            calibration.pop(field, None)
        elif field.startswith(TIER):
            tiers = tuple(
                with_oversubscription(t, value, source) if t.name == field[len(TIER) :] else t for t in tiers
            )
        else:
            calibration[field] = value
    cluster = replace(setting.cluster, calibration=tuple(calibration.items()), tiers=tiers)
    changed = any(getattr(setting.stack, field) is not value for field, value in numbers.items())
    stack = replace(setting.stack, **numbers) if changed else setting.stack
    return replace(setting, cluster=cluster, stack=stack)


def with_oversubscription(tier: Tier, value: float, source: str = FITTED) -> Tier:
    """Return the tier with an oversubscription of at least 1; a tier that keeps its value keeps its source."""
    value = max(1.0, value)
    return tier if value == tier.oversubscription else replace(tier, oversubscription=value, source=source)


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
    if field == HOST:
        return setting.stack.host_s_per_layer
    if field == JITTER:
        return step_jitter_on(setting.cluster)
    if field.startswith(RECIPE):
        recipe, _, key = field.removeprefix(RECIPE).partition(".")
        return float(getattr(recipe_costs()[recipe], key))
    if not sign and field in constants():
        return constants()[field]
    pool = setting.cluster.pool
    return kernel_constant(on_links(kernels(pool.device.id), pool.node.scaleup_bytes_per_s), field)


def is_of_tier(name: str) -> bool:
    """Return true if a constant is a number of a tier of the cluster."""
    return parts_of_name(name)[2].startswith(TIER)


def is_known(setting: Setting, name: str) -> bool:
    """Return true if the cluster's calibration has its own value of a constant, or the user gave one."""
    field = parts_of_name(name)[2]
    given = setting.given.values if setting.given else ()
    return field in dict(setting.cluster.calibration) or any(
        field == parts_of_name(one)[2] for one, _ in given
    )


def is_used(name: str, setting: Setting) -> bool:
    """Return true if a constant is of the setting's own device, stack or tiers."""
    owner, sign, field = parts_of_name(name)
    if field.startswith(TIER):
        return any(field == TIER + tier.name for tier in setting.cluster.tiers)
    return _is_own(owner, sign, setting)


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


def narrowness(name: str) -> int:
    """Return how narrow the owner of a name is: nobody, any, or one family or stack."""
    owner, sign, _ = parts_of_name(name)
    return 0 if not sign else 1 if owner == ANY else 2


def _is_own(owner: str, sign: str, setting: Setting) -> bool:
    return owner in ("", ANY) or owner == (setting.stack.name if sign == "/" else kernel_family(setting))
