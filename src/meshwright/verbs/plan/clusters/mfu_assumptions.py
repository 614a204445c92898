"""Scale the steps of a device family so that its recommended plan has the assumed MFU (``--assume mfu=0.38``)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.report_with_assumptions import slowdown_to
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster


def at_assumed_mfu(
    contenders: Sequence[CandidateCluster], best: Iterable[RankedCluster]
) -> tuple[CandidateCluster, ...]:
    """Return the clusters with the slowdown of their families.

    ``best`` has the best cluster of each family at predicted speed. Raises InputError for one without an MFU.
    """
    reports = {one.family: one.report for one in best}

    def slowed(one: CandidateCluster) -> CandidateCluster:
        mfu, report = one.course.terms.assumed.mfu, reports.get(one.family)
        if mfu is None or report is None:
            return one
        return replace(one, course=replace(one.course, slowdown=slowdown_to(report, mfu)))

    return tuple(map(slowed, contenders))
