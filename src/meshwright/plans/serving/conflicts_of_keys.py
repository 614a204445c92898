"""Keys of a serving plan that contradict each other, found before its values are read."""

from collections.abc import Iterator, Mapping

from meshwright.errors import Problem

Data = Mapping[str, object]
FIXED = ("input_tokens", "output_tokens")


def contradictions(data: Data) -> Iterator[Problem]:
    """Yield the keys that say the same twice, whatever their values are."""
    yield from _workload(_mapping(data.get("workload")))
    for name, pool in _mapping(data.get("pools")).items():
        yield from _pool(f"pools.{name}", _mapping(pool))


def missing_lengths(data: Data) -> Mapping[str, str]:
    """Return the keys that a workload without a histogram needs, each with an example."""
    if not isinstance(data.get("workload"), Mapping) or "lengths" in _mapping(data["workload"]):
        return {}
    return {f"workload.{key}": f"{key}: 1000" for key in FIXED}


def _workload(workload: Data) -> Iterator[Problem]:
    for key in FIXED:
        if key in workload and "lengths" in workload:
            rule = "`lengths` has the tokens of every share of the requests: a workload has one of both"
            yield Problem(f"workload.{key}", workload[key], rule, "take it out, or take `lengths` out")
    if "concurrency" in workload and "rate_per_s" in workload:
        rule = "`concurrency` is a closed loop of requests, `rate_per_s` arrivals: a workload has one of both"
        hint = "take it out, or take `concurrency` out"
        yield Problem("workload.rate_per_s", workload["rate_per_s"], rule, hint)


def _pool(field: str, pool: Data) -> Iterator[Problem]:
    if "layouts" not in pool:
        return
    if "layout" in pool:
        rule = "`layouts` has the layout of each phase: a pool has one of both"
        yield Problem(f"{field}.layout", pool["layout"], rule, "take it out, or take `layouts` out")
    if pool.get("does") in ("prefill", "decode"):
        rule = f"a pool that does {pool['does']} has one phase, and one layout"
        yield Problem(f"{field}.layouts", pool["layouts"], rule, "layout, or does: serve")


def _mapping(value: object) -> Data:
    return value if isinstance(value, Mapping) else {}
