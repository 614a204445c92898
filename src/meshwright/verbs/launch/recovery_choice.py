"""Choose how a launched run recovers from failures: the policy, how often it saves, and whether in the background.

It is the best policy of ``economy/recovery_policies.py`` that a launcher allows. Checkpoints are saved in the
background where the copies of all ranks of a node have room on its host. Where nobody has said how often nodes fail, a
run saves every ``USUAL_INTERVAL_S``. What the user asks for stays, and the rest is chosen for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from meshwright.cost.constants import constant_on
from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_pause import host_rate, most_rank_bytes
from meshwright.economy.goodput import checkpoint_bytes, failure_model
from meshwright.economy.recovery_policies import PolicyShare, recovery_policies, whole_copies
from meshwright.errors import InputError
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.units import format_seconds
from meshwright.verbs.launch.launch_request import LaunchRequest
from meshwright.verbs.predict.predict_plan import predicted

USUAL_INTERVAL_S = 1800.0
"""Seconds between checkpoints where nobody has said how often nodes fail: half an hour is lost at most. A guess."""
NOT_LAUNCHED = ("replan", "shrink")
"""Policies that go on with fewer ranks: the jobs have a fixed number, and all ranks end when one has ended."""
EVERY, BACKGROUND, POLICY = "--checkpoint-every", "--checkpoint-async", "--on-fault"


@dataclass(frozen=True, slots=True)
class RecoveryChoice:
    """Options of ``run`` that are added to a job, and sentences on why."""

    words: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


def recovery_choice(resolved: Resolved, request: LaunchRequest) -> RecoveryChoice:
    """Return the options of recovery that a request leaves open; none where no step can be predicted."""
    if request.has(EVERY) and request.has(POLICY):
        return RecoveryChoice()
    try:
        report = predicted(resolved)
    except InputError:
        return RecoveryChoice()
    found = [*_best_policies(resolved, request, report)]
    if not found:
        return _saving(
            request,
            report,
            USUAL_INTERVAL_S,
            "the usual interval, as the rate of failures is unknown",
            in_background=False,
        )
    in_background, one = max(found, key=lambda of: of[1].worth(resolved.setting))
    saving = _saving(request, report, one.interval_s, "the best interval", in_background=in_background)
    if request.has(POLICY):
        return saving
    spares = f"{one.spare_nodes} spare node" + ("" if one.spare_nodes == 1 else "s")
    reason = (
        f"The run takes {POLICY} {one.policy}, the best policy: {one.useful_share:.2%} of the time becomes work, "
        f"predicted with {spares}" + ("; the job asks for none." if one.spare_nodes else ".")
    )
    return RecoveryChoice((*saving.words, POLICY, one.policy), (*saving.reasons, reason))


def _best_policies(
    resolved: Resolved, request: LaunchRequest, report: Report
) -> Iterator[tuple[bool, PolicyShare]]:
    """Yield the best policy for each way of saving that is possible; nothing where the rate of failures is unknown."""
    setting, copies = resolved.setting, whole_copies(resolved.long)
    every = request.given(EVERY)
    given_s = float(every) * report.step_time_s if every and float(every) > 0 else None
    for in_background in _ways_of_saving(resolved, request, report):
        assumed = Assumptions(checkpoint_async=in_background, checkpoint_every_s=given_s)
        outages = failure_model(setting, assumed)
        if outages is not None:
            outages = outages.of_plan(setting, report)
            every_policy = recovery_policies(outages, setting, assumed, report.step_time_s, copies)
            found = [one for one in every_policy if one.policy not in NOT_LAUNCHED]
            wanted = [one for one in found if one.policy == request.given(POLICY)]
            yield in_background, (wanted or found)[0]


def _ways_of_saving(resolved: Resolved, request: LaunchRequest, report: Report) -> tuple[bool, ...]:
    """Return whether checkpoints may be saved at once (False), and in the background (True)."""
    known = all(host_rate(resolved.setting, pool) is not None for pool in resolved.setting.cluster.pools)
    if request.has(BACKGROUND):
        return (True,) if known else (False,)
    return (False, True) if known and not request.has(EVERY) and _fits_hosts(resolved, report) else (False,)


def _fits_hosts(resolved: Resolved, report: Report) -> bool:
    """Return whether a node's host has room for the copies of all its ranks, next to what the plan has there."""
    setting = resolved.setting
    each = most_rank_bytes(checkpoint_bytes(setting), report)
    usable, held = constant_on(setting.cluster, "usable_host_memory"), report.memory_bytes.get("host", 0)
    return all(
        pool.node.host_memory_bytes is not None
        and held + each * pool.devices_of_host <= usable * pool.node.host_memory_bytes
        for pool in setting.cluster.pools
    )


def _saving(
    request: LaunchRequest, report: Report, interval_s: float, why: str, *, in_background: bool
) -> RecoveryChoice:
    """Return the options of saving; none where the user gave them, or the run ends before."""
    if request.has(EVERY) or not isfinite(interval_s):
        return RecoveryChoice()
    steps = max(1, round(interval_s / report.step_time_s))
    if steps >= int(request.given("--steps") or steps + 1):
        return RecoveryChoice()
    words = (EVERY, str(steps), *([BACKGROUND] if in_background and not request.has(BACKGROUND) else []))
    how = " in the background" if in_background or request.has(BACKGROUND) else ""
    step = f"{format_seconds(report.step_time_s)} of a predicted step"
    return RecoveryChoice(words, (f"The run saves every {steps} steps of {step}{how}: {why}.",))
