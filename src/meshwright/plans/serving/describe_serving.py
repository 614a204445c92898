"""Describe a serving plan as plain data: every default, the mesh of experts, devices of pools and idle ones."""

from meshwright.plans.describe import given_paths, value_paths
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_file import PhaseLayoutsSpec, PoolSpec, ReplicaLayoutSpec, ServingFile
from meshwright.plans.serving.serving_plan import Pool


def describe_serving(resolved: ResolvedServing, read: ServingFile) -> dict[str, object]:
    """Return a legal plan with every default, the keys that ``read`` gives, and what follows from them."""
    plan = resolved.plan
    data = filled_in(read, resolved).to_data()
    given = given_paths(read, "")
    return {
        "form": "serving",
        "plan": data,
        "given": given,
        "defaults": [path for path in value_paths(data, "") if path not in given],
        "devices": plan.devices,
        "idle_devices": resolved.idle_devices,
        "mean_input_tokens": plan.workload.lengths.mean_input,
        "mean_output_tokens": plan.workload.lengths.mean_output,
        "pools": {name: _described(pool) for name, pool in plan.pools.items()},
        "warnings": [problem.to_json() for problem in resolved.warnings],
    }


def filled_in(read: ServingFile, resolved: ResolvedServing) -> ServingFile:
    """Return the file with every layout and its mesh of experts written out."""
    pools = {name: _full(spec, resolved.plan.pools[name]) for name, spec in read.pools.items()}
    return read.model_copy(update={"pools": pools})


def _full(spec: PoolSpec, pool: Pool) -> PoolSpec:
    found = {phase: _degrees(layout) for phase, layout in pool.layouts.items()}
    if spec.layouts is None:
        return spec.model_copy(update={"layout": next(iter(found.values()))})
    return spec.model_copy(
        update={"layouts": PhaseLayoutsSpec(prefill=found["prefill"], decode=found["decode"])}
    )


def _degrees(layout: ReplicaLayout) -> ReplicaLayoutSpec:
    return ReplicaLayoutSpec(
        attention_dp=layout.attention_dp,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
    )


def _described(pool: Pool) -> dict[str, object]:
    return {
        "does": pool.does,
        "replicas": pool.replicas,
        "devices_per_replica": pool.devices_of_replica,
        "devices": pool.devices,
        "layouts": {phase: _degrees(layout).to_data() for phase, layout in pool.layouts.items()},
    }
