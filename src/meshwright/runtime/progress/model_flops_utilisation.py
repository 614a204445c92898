"""Model FLOPs utilisation of a run: MFU = tokens/s · FLOP per token / (devices · dense peak of a device).

FLOPs per token are 6·N_active + 12·layers·heads·head_dim·seq_len, with no causal discount and no recomputation
(``docs/metrics.md``); the peak is the cluster device's at the workload's precision.
"""

from dataclasses import dataclass

from meshwright.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The factors that turn a token rate into MFU. ``origin`` is the peak's source, or the reason why there is no MFU.

    ``planned``: the devices are those of the plan.
    """

    flops_per_token: float
    peak_flops_per_s: float | None
    origin: str
    planned: bool = True

    def mfu(self, tokens_per_s: float) -> float | None:
        """Return the MFU at a token rate of all devices together; None if no peak is known."""
        if self.peak_flops_per_s is None:
            return None
        return tokens_per_s * self.flops_per_token / self.peak_flops_per_s


def utilisation(flops_per_token: float, cluster: Cluster | None, precision: str) -> Utilisation:
    """Return the utilisation factors of a run on ``cluster``; None: it runs on other devices than its plan's.

    ``precision`` is ``Workload.peak_precision``.
    """
    if cluster is None:
        why_not = "null: the peak of the devices that it runs on is not known"
        return Utilisation(flops_per_token, None, why_not, planned=False)
    peaks = [pool.device.peak_flops.get(precision) for pool in cluster.pools]
    missing = [p.device.id for p, peak in zip(cluster.pools, peaks, strict=True) if not peak]
    if missing:
        return Utilisation(
            flops_per_token, None, f"null: no {precision} peak of {', '.join(missing)} is known"
        )
    total = sum(pool.count * (peak or 0.0) for pool, peak in zip(cluster.pools, peaks, strict=True))
    sources = "; ".join(dict.fromkeys(pool.device.source for pool in cluster.pools))
    return Utilisation(flops_per_token, total, f"measured rate over the dense {precision} peak ({sources})")
