"""Systems that are equal by definition train equal models, on equal data and without clipping."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from island_plans import CUTS, gradients, parameters

from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.verify.compare_models import models_apart

EQUAL = 1e-12
SGD = "sgd"
OUTER_SGD = {"sgd": {"lr": 1.0}}
NESTEROV = {"nesterov": {"lr": 0.7, "momentum": 0.9}}
MOMENTUM = {"momentum": {"lr": 1.0, "momentum": 0.5}}
ALL_STATES = tuple(
    {"state": state, "over": "dp_replicate"} for state in ("parameter", "first_moment", "second_moment")
)


def case(*entries, steps=4, cut="replicas", **changes):
    """A small plan with these entries."""
    read = tuple(map(Synchronisation.model_validate, entries))
    return replace(CUTS[cut], synchronise=read, steps=steps, **changes).trial()


def apart(first, second):
    return models_apart(first, second, lambda what, part: None).value


def mean(codec=None, **keys):
    return parameters(every=2, compress=codec, **keys)


IDENTITIES = {
    "DiLoCo in every step, of SGD, is data parallelism": lambda: (
        case(parameters(outer=OUTER_SGD), optimizer=SGD),
        case(optimizer=SGD),
    ),
    "DiLoCo of sharded states too": lambda: (
        case(parameters(outer=OUTER_SGD), optimizer=SGD, cut="zero3"),
        case(optimizer=SGD, cut="zero3"),
    ),
    "two loose axes too": lambda: (
        case(parameters(), parameters(over="dp_shard"), optimizer=SGD, cut="two loose axes"),
        case(optimizer=SGD, dp_replicate=4, layers=2, micro_batches=1),
    ),
    "Streaming DiLoCo of one fragment is DiLoCo": lambda: (
        case(parameters(every=2, fragments=1, delay=0, merge=1.0, outer=NESTEROV)),
        case(parameters(every=2, outer=NESTEROV)),
    ),
    "eager updates of one island are DiLoCo": lambda: (
        case(parameters(every=2, delay=2, own="fresh", outer=NESTEROV), dp_replicate=1),
        case(parameters(every=2, outer=NESTEROV), dp_replicate=1),
    ),
    "CO2 without delay and penalty is SlowMo": lambda: (
        case(parameters(every=2, delay=0, outer={"momentum": {**MOMENTUM["momentum"], "staleness": False}})),
        case(parameters(every=2, outer=MOMENTUM)),
    ),
    "a rule that never lengthens a round is its base": lambda: (
        replace(
            case(parameters(every={"qsr": {"base": 2, "alpha": 1e-9}})),
            rates=LearningRates(lambda step: 0.01 / step, 4),
        ),
        case(parameters(every=2)),
    ),
    "DES-LOC with equal periods is local Adam": lambda: (
        case(*({**entry, "every": 2} for entry in ALL_STATES)),
        case(parameters(every=2), {"state": "optimizer", "over": "dp_replicate", "every": 2}),
    ),
    "factors of full rank are the mean": lambda: (case(mean({"low_rank": 1000})), case(mean())),
    "all cosines are the mean": lambda: (
        case(mean({"dct": {"chunk": 16, "keep": 16}})),
        case(mean()),
    ),
    "a sketch without collision is the mean": lambda: (case(mean({"sketch": {"width": 1}})), case(mean())),
    "gradients with all cosines are exact": lambda: (
        case(gradients({"dct": {"chunk": 16, "keep": 16}})),
        case(),
    ),
    "a trimmed mean of which nothing is cut is exact": lambda: (
        case(gradients(None, combine={"trimmed_mean": 0}), dp_replicate=3),
        case(dp_replicate=3),
    ),
    "Flag at full rank is exact": lambda: (
        case(gradients(None, combine={"flag": {"rank": 3}}), dp_replicate=3, cut="tp"),
        case(dp_replicate=3, cut="tp"),
    ),
    "gradients in a sketch without collision are exact": lambda: (
        case(gradients({"sketch": {"width": 1}})),
        case(),
    ),
}
DIFFERENT = {
    "equal weights of unequally masked labels": lambda: (
        case(parameters(outer=OUTER_SGD, weigh="equal"), optimizer=SGD),
        case(optimizer=SGD),
    ),
    "two steps between exchanges": lambda: (
        case(parameters(every=2, outer=OUTER_SGD), optimizer=SGD),
        case(optimizer=SGD),
    ),
    "a delay": lambda: (
        case(parameters(every=2, delay=1, outer=NESTEROV)),
        case(parameters(every=2, outer=NESTEROV)),
    ),
    "eager updates of two islands": lambda: (
        case(parameters(every=2, delay=2, own="fresh", outer=NESTEROV)),
        case(parameters(every=2, outer=NESTEROV)),
    ),
    "a rule that lengthens rounds": lambda: (
        replace(
            case(parameters(every={"qsr": {"base": 2, "alpha": 0.05}}), steps=8),
            rates=LearningRates(lambda step: 0.01 / step, 8),
        ),
        case(parameters(every=2), steps=8),
    ),
    "medians": lambda: (case(gradients(None, combine="median"), dp_replicate=3), case(dp_replicate=3)),
    "factors of low rank": lambda: (case(mean({"low_rank": 1})), case(mean())),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_systems_are_equal(name):
    assert apart(*IDENTITIES[name]()) <= EQUAL


@pytest.mark.parametrize("name", DIFFERENT)
def test_systems_differ(name):
    assert apart(*DIFFERENT[name]()) > 1e-6
