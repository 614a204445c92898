"""Links between nodes: what a cluster file says of them, what follows, and what is wrong all at once."""

import pytest

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.describe import describe_cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError

HEAD = "pools: [{device: h100-sxm-80gb, count: 32}]\nlinks: "
HOLMES = """{groups: [{name: ib, nodes: [0, 2], nic_gbit_per_s_per_node: 3200},
  {name: roce, nodes: [1, 3], nic_gbit_per_s_per_node: 1600}], between_groups_gbit_per_s_per_node: 320}"""


def links(text):
    return load_cluster(HEAD + text + "\n").links


def problems(text):
    with pytest.raises(InputError) as caught:
        links(text)
    return {problem.field for problem in caught.value.problems}


def test_groups_reach_each_other_at_the_slower_rate():
    found = links(HOLMES)
    assert found.shares == ((1, 0.1, 1, 0.1), (0.1, 1, 0.1, 0.5), (1, 0.1, 1, 0.1), (0.1, 0.5, 0.1, 1))
    assert found.kinds == ("ib", "roce", "ib", "roce")


def test_a_matrix_in_any_unit_is_shares_of_the_cards():
    relative = "[[0, 1, 0.5, 1], [1, 0, 1, 1], [0.25, 1, 0, 1], [1, 1, 1, 0]]"
    shares = links(f"{{relative: {relative}}}").shares
    assert shares[0][2] == shares[2][0] == 0.25  # the slower direction
    gbit = "[[0, 3200, 1600, 3200], [3200, 0, 3200, 3200], [800, 3200, 0, 3200], [3200, 3200, 3200, 0]]"
    assert links(f"{{nic_gbit_per_s_per_node: {gbit}}}").shares == shares
    swept = "[[0, 40, 20, 40], [40, 0, 40, 40], [10, 40, 0, 40], [40, 40, 40, 0]]"
    assert links(f"{{sendrecv_gbyte_per_s_per_device: {swept}}}").shares == shares


def test_single_pairs_differ_from_the_rest():
    shares = links(
        "{pairs: [{nodes: [0, 3], nic_gbit_per_s_per_node: 400}, {nodes: [1, 2], relative: 0.5}]}"
    ).shares
    assert shares[0][3] == shares[3][0] == 0.125
    assert shares[2][1] == 0.5
    assert shares[0][1] == 1


def test_a_sweep_is_held_against_its_fastest_pair():
    pairs = [
        f"{{nodes: [{i}, {j}], sendrecv_gbyte_per_s_per_device: {10 * (i + j)}}}"
        for i in range(4)
        for j in range(4)
        if i != j
    ]
    shares = links(f"{{pairs: [{', '.join(pairs)}]}}").shares
    assert shares[2][3] == 1
    assert shares[0][1] == pytest.approx(10 / 50)


@pytest.mark.parametrize("text", [HOLMES, "{pairs: [{nodes: [0, 1], relative: 0.3}], source: a guess}"])
def test_dump_and_load_are_inverse(text):
    cluster = load_cluster(HEAD + text + "\n")
    assert load_cluster(dump_cluster(cluster)) == cluster


def test_describe_has_rates_of_whole_nodes():
    found = describe_cluster(load_cluster(HEAD + HOLMES + "\n"))["links"]
    assert found["slowest_gbit_per_s_per_node"] == pytest.approx(320)
    assert found["fastest_gbit_per_s_per_node"] == pytest.approx(3200)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("{source: nobody}", {"links"}),
        ("{relative: [[0, 1], [1, 0]]}", {"links.relative"}),
        (
            "{relative: [[0, 1, 2, 1], [1, 0, 1, 0], [1, 1, 0, 1], [1, 1, 1, 0]]}",
            {"links.relative.0.2", "links.relative.1.3"},
        ),
        (
            "{groups: [{name: a, nodes: [0, 1, 9], nic_gbit_per_s_per_node: 6400},"
            " {name: b, nodes: [1], nic_gbit_per_s_per_node: 100}]}",
            {
                "links.groups.0.nodes",
                "links.groups.0.nic_gbit_per_s_per_node",
                "links.between_groups_gbit_per_s_per_node",
                "links.groups",
            },
        ),
        (
            "{pairs: [{nodes: [0, 0], relative: 0.5}, {nodes: [0, 8], relative: 0.5}, {nodes: [0, 1]},"
            " {nodes: [2, 3], sendrecv_gbyte_per_s_per_device: 3}]}",
            {
                "links.pairs.0.nodes",
                "links.pairs.1.nodes",
                "links.pairs.2",
                "links.pairs.3.sendrecv_gbyte_per_s_per_device",
            },
        ),
        ("{pairs: [{nodes: [0, 1], sendrecv_gbyte_per_s_per_device: 3}]}", {"links.pairs"}),
        (
            "{between_groups_gbit_per_s_per_node: 3, kinds: [a]}",
            {"links", "links.kinds", "links.between_groups_gbit_per_s_per_node"},
        ),
    ],
)
def test_all_that_is_wrong_is_told_at_once(text, fields):
    assert problems(text) == fields


@pytest.mark.parametrize(
    "pools",
    [
        "[{device: h100-sxm-80gb, count: 8}]",
        "[{device: h100-sxm-80gb, count: 12}]",
        "[{device: h100-sxm-80gb, count: 16, name: a}, {device: a100-sxm-80gb, count: 16, name: b}]",
    ],
)
def test_links_want_one_pool_of_full_nodes(pools):
    with pytest.raises(InputError, match="links"):
        load_cluster(f"pools: {pools}\nlinks: {{pairs: [{{nodes: [0, 1], relative: 0.5}}]}}\n")
