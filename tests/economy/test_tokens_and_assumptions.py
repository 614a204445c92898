"""Tokens and assumptions as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.load import load_cluster
from meshwright.economy.assumptions import FLAGS, NAMES, Assumptions, parse_assumptions
from meshwright.economy.tokens_and_assumptions import parse_terms, parse_tokens
from meshwright.errors import InputError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("15T", 15 * 10**12),
        ("300B", 3 * 10**11),
        ("300b", 3 * 10**11),
        ("1.5T", 1_500_000_000_000),
        ("2.5e9", 2_500_000_000),
        ("1e12", 10**12),
        (" 20 M ", 20_000_000),
        ("500K", 500_000),
        ("1_000_000", 10**6),
        ("1,000", 1000),
        ("7", 7),
    ],
)
def test_numbers_of_tokens(text, count):
    assert parse_tokens(text) == count


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "15Q", "T", "1e99", "many", "nan", "inf", "0.1", "15TT", "2e18"]
)
def test_what_is_no_number_of_tokens(text):
    with pytest.raises(InputError, match="must be a number of tokens"):
        parse_tokens(text)


@given(st.text(max_size=12))
def test_any_text_is_tokens_or_wrong_input(text):
    try:
        assert 1 <= parse_tokens(text) <= 10**18
    except InputError as error:
        fields_named = [problem.field for problem in error.problems]
    else:
        fields_named = ["tokens"]
    assert fields_named == ["tokens"]


def test_assumptions():
    found = parse_assumptions(["restart_s = 300", "spare_nodes=2", "failures_per_1000_node_days=0"])
    assert found == Assumptions(restart_s=300.0, spare_nodes=2, failures_per_1000_node_days=0.0)
    assert parse_assumptions([]) == Assumptions()
    assert parse_assumptions(["restart_s=1", "restart_s=2"]).restart_s == 2


def test_all_that_is_wrong_is_said_at_once():
    wrong = [
        *("restart=3", "restart_s=soon", "spare_nodes=1.5", "usd_per_device_hour=0"),
        *("repair_hours=-1", "nan", "repair_hours=inf"),
    ]
    with pytest.raises(InputError) as caught:
        parse_terms("15Q", wrong)
    fields_named = [problem.field for problem in caught.value.problems]
    assert fields_named == [
        "tokens",
        "assume",
        "assume.restart_s",
        "assume.spare_nodes",
        "assume.usd_per_device_hour",
        "assume.repair_hours",
        "assume",
        "assume.repair_hours",
    ]
    assert "restart_s" in caught.value.problems[1].suggestion


def test_every_assumption_can_be_said():
    for name in NAMES:
        one = {"skip_share": "0.5"}.get(name, "true" if name in FLAGS else "1")
        assert getattr(parse_assumptions([f"{name}={one}"]), name) == (0.5 if name == "skip_share" else 1)
        of_family = parse_assumptions([f"h100:{name}={one}"]).of_device("h100-sxm-80gb")
        assert getattr(of_family, name) == (0.5 if name == "skip_share" else 1)


@pytest.mark.parametrize(
    "text", ["skip_share=1", "skip_share=-0.1", "churn_per_hour=-1", "churn_per_hour=often"]
)
def test_shares_and_rates_of_churn_have_bounds(text):
    with pytest.raises(
        InputError, match="less than 1" if text.endswith("=1") and "skip" in text else "0 or more"
    ):
        parse_assumptions([text])


def test_an_assumption_of_one_family_goes_before_that_of_all():
    found = parse_assumptions(["b200:usd_per_device_hour=2", "usd_per_device_hour=3"])
    assert found.of_device("b200").usd_per_device_hour == 2
    assert found.of_device("h100-sxm-80gb").usd_per_device_hour == 3
    assert found.on(load_cluster("b200 x 8")).pool.usd_per_device_hour.value == 2


@pytest.mark.parametrize("text", ["pue=0.9", "b200:pue=0", "kg_co2_per_kwh=-1"])
def test_numbers_out_of_range(text):
    with pytest.raises(InputError, match="or more"):
        parse_assumptions([text])


def test_a_family_that_no_cluster_has():
    terms = parse_terms("1B", ["b200:usd_per_device_hour=2", "own-chip:restart_s=1"])
    problems = list(terms.unknown_families([load_cluster("h100 x 8")]))
    assert [problem.value for problem in problems] == ["b200", "own-chip"]


def test_prices_of_another_term():
    usual, spot = load_cluster("h100 x 8"), parse_terms(price="spot").on(load_cluster("h100 x 8"))
    assert spot.pool.usd_per_device_hour.value < usual.pool.usd_per_device_hour.value
    assert "spot prices of" in spot.pool.usd_per_device_hour.source
    lowest = parse_terms(price="lowest").on(usual).pool.usd_per_device_hour
    assert lowest.value <= min(spot.pool.usd_per_device_hour.offers)
    assert not lowest.offers
    given = parse_terms(assume=["usd_per_device_hour=9"], price="spot").on(usual)
    assert given.pool.usd_per_device_hour.value == 9
    with pytest.raises(InputError, match="is no term of prices"):
        parse_terms(price="rent")
