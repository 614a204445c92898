"""Answer a planning question on one cluster or on several: the best plan by an objective, and what no answer beats."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from meshwright.cluster.graph import Cluster
from meshwright.cluster.shorthand import SOURCE
from meshwright.economy.course import Course
from meshwright.economy.limits import Limits
from meshwright.economy.objectives import OBJECTIVES, Objective, objective
from meshwright.economy.offers import Offer, offers
from meshwright.economy.standing import Standing, front, ranked
from meshwright.economy.terms import Terms, parse_terms
from meshwright.economy.weighed import weighed
from meshwright.errors import InputError, Problem, attempted
from meshwright.plan.setting import Setting
from meshwright.verbs.contending import Contender, standings
from meshwright.verbs.declining import declined
from meshwright.verbs.planning import PlanAnswer, Question, answer, checked
from meshwright.verbs.proposing import Proposal
from meshwright.verbs.searching import Progress, Scope


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked beside the question: on which clusters, by which objective, within what, on which terms."""

    on: tuple[str, ...]
    objective: str = "throughput"
    limits: Limits = field(default_factory=Limits)
    tokens: str | int | None = None
    assume: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sought:
    """A wish and a question with nothing wrong in them; a setting and a scope for each offer."""

    terms: Terms
    aim: Objective
    offers: tuple[Offer, ...]
    settled: tuple[tuple[Setting, Scope], ...]


@dataclass(frozen=True, slots=True)
class Choice(PlanAnswer):
    """The plans, the best of each cluster where there are several; counts are those of the first one's cluster.

    ``standings`` has every cluster on offer in order; ``front`` those that none beats in time, money and energy, which
    are of the training if ``tokens`` are told, else of a step. ``search_time_s`` is that of all of them.
    """

    wish: Wish = field(default_factory=lambda: Wish(()))
    tokens: int | None = None
    standings: tuple[Standing, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return PlanAnswer.to_json(self) | {
            "objective": self.wish.objective,
            "budget_usd": self.wish.limits.budget_usd,
            "deadline_days": self.wish.limits.deadline_days,
            "per": "step" if self.tokens is None else "training",
            "clusters": [standing.to_json() for standing in self.standings],
            "pareto": [standing.to_json() for standing in front(self.standings)],
        }


def choose(question: Question, wish: Wish, tell: Progress | None = None) -> Choice:
    """Search. Raises InputError for a wrong question, and InfeasibleError where nothing fits or keeps to the limits."""
    began = time.perf_counter()
    sought = _checked(question, wish)
    contenders = tuple(
        Contender(offer, _on(question, offer).header, Course.of(setting, sought.terms), scope)
        for offer, (setting, scope) in zip(sought.offers, sought.settled, strict=True)
    )
    if len(contenders) == 1:
        (only,) = contenders
        first = answer(_on(question, only.offer), only.course.setting, tell)
        all_found, proposals = [_standing(only, first)], _weighed(first, only.course)
        _best(all_found, sought.aim, wish.limits, only)
    else:
        all_found = standings(contenders, sought.aim, tell)
        shown = _best(all_found, sought.aim, wish.limits, contenders[-1])[: question.top]
        answers = [answer(replace(_on(question, s.offer), top=1), s.course.setting, tell) for s in shown]
        first = answers[0]
        proposals = tuple(_weighed(a, s.course)[0] for a, s in zip(answers, shown, strict=True))
    counts = {field.name: getattr(first, field.name) for field in fields(first)}
    if len(contenders) > 1:
        counts["search_time_s"] = time.perf_counter() - began
    return Choice(
        **counts | {"proposals": proposals},
        wish=wish,
        tokens=sought.terms.tokens,
        standings=tuple(all_found),
    )


def _on(question: Question, offer: Offer) -> Question:
    return replace(question, header=question.header.model_copy(update={"cluster": offer.on}))


def _best(found: Sequence[Standing], aim: Objective, limits: Limits, largest: Contender) -> list[Standing]:
    """Those that keep to the limits, the best by the objective first. Raises InfeasibleError where there is none."""
    kept = ranked(found, aim, limits)
    if not kept:
        raise declined(found, aim, limits, largest)
    return kept


def _standing(only: Contender, found: PlanAnswer) -> Standing:
    best = found.proposals[0]
    return Standing(only.offer, only.course, "searched", best.report.step_time_s, best.plan)


def _weighed(found: PlanAnswer, course: Course) -> tuple[Proposal, ...]:
    return tuple(replace(one, report=weighed(one.report, course)) for one in found.proposals)


def _checked(question: Question, wish: Wish) -> Sought:
    """Raises InputError with all that is wrong."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(wish.tokens, wish.assume), problems)
    aim = attempted(lambda: objective(wish.objective), problems)
    problems += wish.limits.problems(terms)
    offered = attempted(lambda: offers(wish.on), problems)
    settled = _settled(question, offered, terms or Terms(), problems)
    if offered is not None and terms is not None:
        clusters = [terms.assumed.on(offer.cluster) for offer in offered]
        problems += _unknown(aim, wish, clusters)
        problems += _of_one_cluster(question) if len(offered) > 1 else ()
    if problems or terms is None or aim is None or offered is None or settled is None:
        raise InputError(list(dict.fromkeys(problems)))
    return Sought(terms, aim, offered, settled)


def _settled(
    question: Question, offered: tuple[Offer, ...] | None, terms: Terms, problems: list[Problem]
) -> tuple[tuple[Setting, Scope], ...] | None:
    """A setting and a scope for each offer; only the last of each kind of node is checked, counts differ in nothing."""
    if offered is None:
        of_question: list[Problem] = []
        attempted(lambda: checked(question, None), of_question)
        problems += [problem for problem in of_question if not problem.field.startswith("cluster")]
        return None
    last = {_kind(offer): offer for offer in offered}
    found = {
        kind: attempted(lambda offer=offer: checked(_on(question, offer), None), problems)  # type: ignore[misc]
        for kind, offer in last.items()
    }
    if problems:
        return None
    settled = []
    for offer in offered:
        pair = found[_kind(offer)]
        assert pair is not None, "what is wrong is a problem"
        setting, scope = pair
        settled.append((replace(setting, cluster=terms.assumed.on(offer.cluster)), scope))
    return tuple(settled)


def _kind(offer: Offer) -> tuple[object, ...]:
    """What clusters in one line have in common that differ in nothing but how many devices; any other is alone."""
    if offer.cluster.source != SOURCE:
        return (offer.on,)
    return (offer.cluster.pool.device.id, offer.cluster.pool.node.name)


def _unknown(aim: Objective | None, wish: Wish, clusters: Sequence[Cluster]) -> Iterator[Problem]:
    """What is asked for and known of no cluster."""
    asked: list[tuple[str, object, Objective]] = []
    if aim is not None:
        asked.append(("objective", wish.objective, aim))
    if wish.limits.budget_usd is not None:
        asked.append(("budget", wish.limits.budget_usd, OBJECTIVES["cost"]))
    for name, value, needed in asked:
        if not any(map(needed.known, clusters)):
            names = ", ".join(dict.fromkeys(pool.device.id for one in clusters for pool in one.pools))
            yield Problem(name, value, f"no {needed.needs} is known of {names}", f"--assume {needed.say}")


def _of_one_cluster(question: Question) -> Iterator[Problem]:
    """What is only searched on one cluster."""
    rule = "is for one cluster of a known size"
    hint = "without it first, then with it on the cluster of the best plan"
    if question.stages != "balanced":
        yield Problem("stages", question.stages, rule, hint)
    if question.solving is not None:
        yield Problem("solve", question.solving.seconds, rule, hint)
