"""Shrink the numbers of rules that combine gradients, and choose how many replicas a proof of them needs.

Where a plan has more, three replicas tell a median, a trimmed mean, Krum, Flag and a code from the mean; of four a rule
still has three where one is late.
"""

from collections.abc import Iterable

from meshwright.plans.synchronisation.combination import Combination, Partners
from meshwright.plans.synchronisation.synchronisation import Synchronisation

EXACT, WITH_RULE, WITH_RULE_AND_QUORUM = 2, 3, 4
"""Replicas of a proof."""


def small_replicas(entries: Iterable[Synchronisation], axis: str, degree: int) -> int:
    """Return the degree of an axis in a proof, at most its ``degree`` in the plan."""
    needed = EXACT
    for entry in entries:
        if entry.axis == axis and entry.state == "gradient":
            rule, late = entry.combine is not None, _has_quorum(entry)
            least = WITH_RULE_AND_QUORUM if rule and late else WITH_RULE if rule or late else EXACT
            needed = max(needed, least)
    return min(needed, degree)


def with_small_numbers(entry: Synchronisation, full: int, small: int) -> Synchronisation:
    """Return an entry of an axis of ``full`` replicas for one of ``small``."""
    if small >= full:
        return entry
    changes: dict[str, object] = {}
    combined, combined_in_full = small, full
    partners = entry.partners
    if isinstance(partners, Partners) and isinstance(partners.quorum, int | float):
        combined_in_full = int(partners.quorum)
        combined = small if combined_in_full >= full else small - 1
        changes["partners"] = partners.model_copy(update={"quorum": combined})
    if isinstance(entry.combine, Combination):
        changes["combine"] = _small_rule(entry.combine, combined_in_full, combined)
    return entry.model_copy(update=changes)


def _small_rule(rule: Combination, full: int, small: int) -> Combination:
    """Return a rule that combines ``small`` gradients in place of ``full``."""
    changes: dict[str, object] = {}
    if rule.trimmed_mean is not None:
        changes["trimmed_mean"] = min(int(rule.trimmed_mean), (small - 1) // 2)
    if rule.krum is not None:
        changes["krum"] = min(int(rule.krum), max(0, (small - 3) // 2))
    if rule.flag is not None:
        whole = int(rule.flag.rank) >= full
        rank = small if whole else min(int(rule.flag.rank), max(1, small - 1))
        changes["flag"] = rule.flag.model_copy(update={"rank": rank})
    if rule.coded is not None and rule.coded.tolerate is not None:
        whole = int(rule.coded.tolerate) >= full - 1
        least = min(int(rule.coded.tolerate), max(1, small - 2))
        changes["coded"] = rule.coded.model_copy(update={"tolerate": small - 1 if whole else least})
    return rule.model_copy(update=changes)


def _has_quorum(entry: Synchronisation) -> bool:
    return isinstance(entry.partners, Partners) and entry.partners.quorum is not None
