"""Problems of a serving plan that its prediction shows: no memory for it, overload, missed limits on latency."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.result import ServingReport
from meshwright.units import format_bytes


def serving_problems(report: ServingReport, resolved: ResolvedServing) -> Iterator[Problem]:
    """Yield an error where weights and one request have no room, and a warning for each limit that is missed."""
    if not report.fits:
        memory = report.memory_bytes
        rule = (
            f"does not fit: pool {memory['worst_pool']} has {format_bytes(memory['parameters'])} of weights on a "
            f"device of {format_bytes(memory['capacity'])}, and no room for a request"
        )
        yield Problem("memory_bytes.total", memory["total"], rule, "more tp, pp or ep, or narrower weights")
        return
    workload, serving = resolved.plan.workload, report.serving
    if serving["limited_by"] == "capacity":
        most = serving["requests_per_s"]
        rule = f"is more than the pools compute, {most:.4g} requests per second: requests wait ever longer"
        yield Problem("workload.rate_per_s", workload.rate_per_s, rule, f"rate_per_s: {most:.3g}", "warning")
    limits = workload.objectives
    for key, limit in (("ttft", limits.ttft_ms), ("tpot", limits.tpot_ms)):
        mean = 1e3 * serving[f"{key}_s"]
        if limit is not None and mean > limit:
            rule = f"is missed: {mean:.4g} ms in the mean (predicted)"
            hint = f"{key}_ms: {mean:.3g}, a lighter load, or more devices"
            yield Problem(f"workload.objectives.{key}_ms", limit, rule, hint, "warning")
