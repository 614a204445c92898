"""Clusters on offer: names, counts up to a most, price lists, and everything wrong at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.cluster_offers import counts, offers
from meshwright.errors import InputError


@given(most=st.integers(1, 300), node=st.sampled_from([1, 2, 4, 8, 16]))
def test_counts(most, node):
    found = counts(most, node)
    assert sorted(set(found)) == list(found)
    assert all(count <= most and (count % node == 0 or node % count == 0) for count in found)
    assert set(found) <= set(counts(most + 1, node))
    assert set(range(node, most + 1, node)) <= set(found)


@pytest.mark.parametrize("text", ["h100-sxm-80gb x <=24", "h100-sxm-80gb x<= 24", " H100 × ≤24 "])
def test_up_to_a_most(text):
    found = offers([text])
    assert [offer.cluster.devices for offer in found] == [1, 2, 4, 8, 16, 24]
    assert {offer.cluster.pool.device.id for offer in found} == {"h100-sxm-80gb"}


def test_a_named_node_stays():
    found = offers(["h100-sxm-80gb x <=16 @ aws-p5.48xlarge"])
    assert {offer.cluster.pool.node.name for offer in found} == {"aws-p5.48xlarge"}
    assert found[-1].on == "h100-sxm-80gb x 16 @ aws-p5.48xlarge"


def test_a_plan_file_has_the_device_first():
    (offer,) = offers(["64xH100"])
    assert (offer.on, offer.cluster.devices) == ("h100-sxm-80gb x 64", 64)
    (offer,) = offers(["H100 x 64"])
    assert offer.on == "H100 x 64"


def test_each_cluster_is_on_offer_once():
    found = offers(["h100-sxm-80gb x 16", "h100-sxm-80gb x <=16", "a100-sxm-80gb x 8"])
    assert [offer.on for offer in found].count("h100-sxm-80gb x 16") == 1
    assert len(found) == 6


def test_a_price_list(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text(
        "on, usd_per_device_hour, max_devices\n"
        "h100-sxm-80gb x 16, 2.10,\n"
        "a100-sxm-80gb, 1.20, 8\n"
        "h100-sxm-80gb x 16, 1.90,\n",
        encoding="utf-8",
    )
    found = offers([str(file), "h100-sxm-80gb x 16"])
    priced = [(offer.on, offer.cluster.pool.usd_per_device_hour.value) for offer in found]
    assert priced[0] == ("h100-sxm-80gb x 16", 2.10)
    assert priced[1:5] == [(f"a100-sxm-80gb x {count}", 1.20) for count in (1, 2, 4, 8)]
    assert priced[5] == ("h100-sxm-80gb x 16", 1.90)
    assert len(priced) == 7
    assert found[0].cluster.pool.usd_per_device_hour.source == str(file)


def test_everything_wrong_is_said_at_once():
    with pytest.raises(InputError) as caught:
        offers(["h1000 x <=8", "h100 x <=many", "h100 x <=16 @ dgx-b2000", "h100 x 0", "h100", "none.csv"])
    assert [problem.field for problem in caught.value.problems] == [
        "cluster.device",
        "cluster.count",
        "cluster.node",
        "cluster.count",
        "cluster",
        "cluster",
    ]


def test_too_many_and_none():
    with pytest.raises(InputError, match="more than 4096"):
        offers(["h100-sxm-80gb x <=100000"])
    with pytest.raises(InputError, match="none is named"):
        offers([])
