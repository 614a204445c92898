"""Tokens and assumptions as people write them."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.assumptions import Assumptions, parse_assumptions
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
    for field in fields(Assumptions):
        value = getattr(parse_assumptions([f"{field.name}=3"]), field.name)
        assert value == 3
