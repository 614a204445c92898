"""Price lists: CSV with a header, every problem with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.price_list import PriceListEntry, read_price_list
from meshwright.errors import InputError


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("prices") / "prices.csv"


def problems(file, text):
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_price_list(file)
    return [(problem.field.rpartition("prices.csv")[2], problem.rule) for problem in caught.value.problems]


def test_a_list(file):
    file.write_text("usd_per_device_hour,on\n2.5,h100 x 8\n1e0,own.yaml\n", encoding="utf-8")
    assert read_price_list(file) == (PriceListEntry("h100 x 8", 2.5), PriceListEntry("own.yaml", 1.0))
    file.write_text("on,usd_per_device_hour,max_devices\nh100,2.5,64\n", encoding="utf-8")
    assert read_price_list(file) == (PriceListEntry("h100 x <=64", 2.5),)


def test_wrong_columns_come_together(file):
    found = problems(file, "on,price\nh100 x 8,2\n")
    assert [rule for _, rule in found] == [
        "is no column of a price list",
        "has no column usd_per_device_hour",
    ]


def test_all_lines_are_read(file):
    text = "on,usd_per_device_hour,max_devices\nh100,0,8\n,2,\nh100,nan,x\nh100,2,3,4\nh100\nh100 x 8,2,\n"
    found = problems(file, text)
    assert [where for where, _ in found] == [
        " line 2.usd_per_device_hour",
        " line 3.on",
        " line 4.usd_per_device_hour",
        "cluster.count",
        " line 5",
        " line 6",
    ]


def test_an_empty_list(file):
    assert [rule for _, rule in problems(file, "on,usd_per_device_hour\n")] == ["has no offer"]
    assert len(problems(file, "")) == 2


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_a_list_or_wrong_input(file, text):
    file.write_text("on,usd_per_device_hour\n" + text, encoding="utf-8")
    try:
        found = read_price_list(file)
    except InputError as error:
        found = error.problems
    assert found
