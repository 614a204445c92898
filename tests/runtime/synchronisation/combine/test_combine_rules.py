"""Rules that combine rows: what they leave out, what they return, and the references that are written out."""

import pytest
import torch

from meshwright.plans.synchronisation.combination import NAMED_RULES, OF_WHOLE_GRADIENTS, ROW_RULES, Flag
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.synchronisation.combine import (
    ELEMENT_RULES,
    WEIGHT_RULES,
    products_of,
    weighted_sum,
)
from meshwright.runtime.verify.reference_combination import combined

OPTIONS = {"median": None, "trimmed_mean": 2, "krum": 2, "flag": Flag(rank=3)}


def rows(count=7, elements=50, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shared = torch.randn(elements, generator=draw, dtype=torch.float64)
    return shared + torch.randn(count, elements, generator=draw, dtype=torch.float64)


def result(name, given, options=None):
    options = OPTIONS[name] if options is None else options
    if name in ELEMENT_RULES:
        return ELEMENT_RULES[name](options, given)
    return weighted_sum(given, WEIGHT_RULES[name](options, products_of(given)))


def written(name):
    options = {"flag": {"rank": 3}}.get(name, OPTIONS[name])
    combine = name if name in NAMED_RULES else {name: options}
    return Synchronisation.model_validate({"state": "gradient", "over": "dp_replicate", "combine": combine})


def test_tables_have_every_rule():
    assert {*ELEMENT_RULES, *WEIGHT_RULES} == {*ROW_RULES} == {*OPTIONS}
    assert {*WEIGHT_RULES} == {*OF_WHOLE_GRADIENTS}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", [7, 8])
def test_rules_equal_those_that_are_written_out_for_whole_gradients(name, count):
    given = rows(count)
    (expected,) = combined(written(name), [{"all": row} for row in given]).values()
    torch.testing.assert_close(result(name, given), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", OPTIONS)
def test_larger_rows_have_a_larger_result(name):
    torch.testing.assert_close(result(name, 3 * rows()), 3 * result(name, rows()), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("wrong", [1, 2])
def test_a_few_wrong_rows_move_the_mean_and_not_the_result(name, wrong):
    given, honest = rows(), rows()[: 7 - wrong].mean(0)
    given[7 - wrong :] = -1000 * honest
    found = result(name, given, Flag(rank=1) if name == "flag" else None)
    assert torch.dot(given.mean(0), honest) < 0
    assert name == "flag" or torch.dot(found, honest) > 0
    assert name == "flag" or found.norm() < 3 * honest.norm()


def test_flag_leaves_out_noise_that_no_other_row_has():
    given = rows(elements=20_000)
    given[6] = 100 * rows(1, 20_000, seed=1)[0]
    honest = given[:6].mean(0)
    found = result("flag", given, Flag(rank=1))
    assert (found - honest).norm() < 0.2 * (given.mean(0) - honest).norm()


def test_nothing_cut_and_full_rank_are_the_mean():
    given = rows()
    torch.testing.assert_close(result("trimmed_mean", given, 0), given.mean(0))
    torch.testing.assert_close(result("flag", given, Flag(rank=7)), given.mean(0), rtol=1e-10, atol=1e-10)


def test_of_normalised_rows_flag_withstands_long_ones_and_flipped_ones():
    given = rows(elements=2000)
    honest = given[:6].mean(0)
    for wrong in (-10 * given[6], 100 * rows(1, 2000, seed=1)[0]):
        given[6] = wrong
        raw, alike = (result("flag", given, Flag(rank=4, average=name)) for name in ("raw", "normalised"))
        assert torch.cosine_similarity(raw, honest, 0) < 0.2
        assert torch.cosine_similarity(alike, honest, 0) > 0.7
        assert alike.norm() < 2 * honest.norm()


def test_the_mean_of_normalised_rows_equals_the_written_one():
    combine = {"flag": {"rank": 3, "average": "normalised"}}
    said = Synchronisation.model_validate({"state": "gradient", "over": "dp_replicate", "combine": combine})
    (expected,) = combined(said, [{"all": row} for row in rows()]).values()
    found = result("flag", rows(), Flag(rank=3, average="normalised"))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_krum_returns_the_row_amid_the_others_even_if_one_is_not_finite():
    given = rows()
    given[0] = torch.inf
    found = result("krum", given)
    assert any(torch.equal(found, row) for row in given[1:])


def test_flag_takes_equal_rows_and_zeros():
    equal = rows(1).expand(7, -1)
    torch.testing.assert_close(result("flag", equal), equal[0], rtol=1e-10, atol=1e-10)
    assert result("flag", torch.zeros(7, 5, dtype=torch.float64)).isfinite().all()


def test_products_of_many_elements_are_summed_in_parts():
    given = torch.randn(3, (1 << 16) + 5)
    torch.testing.assert_close(products_of(given), given.double() @ given.double().T, rtol=1e-4, atol=1.0)
