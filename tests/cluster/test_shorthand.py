import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.catalog import device_ids, node_device, node_names
from meshwright.cluster.load import load_cluster
from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError


@pytest.mark.parametrize(
    "text",
    [
        "h100-sxm-80gb x 64",
        "h100-sxm-80gbx64",
        "h100-sxm-80gb×64",
        " H100 x64 ",
        "H100-SXM5-80GB  ×  64",
        "64xH100",
        "64 x h100",
        "64 H100 SXM",
        "64×h100_80gb",
    ],
)
def test_spellings_of_one_cluster(text):
    cluster = load_cluster(text)
    assert cluster.name == "h100-sxm-80gb x 64"
    assert cluster.devices == 64
    assert cluster.pool.device.id == "h100-sxm-80gb"
    assert cluster.pool.node.name == "dgx-h100"


@pytest.mark.parametrize("text", ["mi300xx8", "mi300x x 8", "mi300x x8", "mi300x×8", "8xmi300x", "8 mi300x"])
def test_a_device_whose_name_ends_in_x(text):
    assert load_cluster(text).name == "mi300x x 8"


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(device_ids()), count=st.integers(1, 10**6))
def test_every_device_and_count_has_a_shorthand_that_is_its_name(name, count):
    cluster = load_cluster(f"{name} x {count}")
    assert (cluster.pool.device.id, cluster.devices) == (name, count)
    assert load_cluster(cluster.name) == cluster
    price = cluster.pool.usd_per_device_hour
    assert cluster.usd_per_hour == (None if price is None else count * price.value)


@pytest.mark.parametrize("name", node_names())
def test_every_named_node(name):
    cluster = load_cluster(f"{node_device(name)} x 16 @ {name}")
    assert cluster.pool.node.name == name
    assert load_cluster(cluster.name) == cluster


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("h1000 x 64", "cluster.device", "h100-sxm-80gb"),
        ("8xV100", "cluster.device", "did you mean v100-sxm2-32gb x 8 or v100-sxm2-16gb x 8?"),
        ("8 x 4090", "cluster.device", "did you mean rtx-4090 x 8?"),
        ("4090 x 8", "cluster.device", "did you mean rtx-4090 x 8?"),
        ("8 x dwarfs", "cluster.device", "one of a10, "),
        ("8 dwarfs", "cluster", "DEVICE x COUNT"),
        ("0xH100", "cluster.count", "from 1 to 1000000"),
        ("8 x h100 @ dgx-a100", "cluster.node", "carries a100-sxm-80gb"),
        ("h100 x 0", "cluster.count", "from 1 to 1000000"),
        ("h100 x -3", "cluster.count", "from 1 to 1000000"),
        ("h100 x 1000001", "cluster.count", "from 1 to 1000000"),
        ("h100 x 6.5", "cluster.count", "from 1 to 1000000"),
        ("h100 x " + "9" * 5000, "cluster.count", "from 1 to 1000000"),
        ("h100 x 8 @ dgx-b2000", "cluster.node", "dgx-b200"),
        ("h100 x 8 @ ", "cluster.node", "no node"),
        ("h100 x 8 @ dgx-a100", "cluster.node", "carries a100-sxm-80gb"),
        ("h100 x many", "cluster", "DEVICE x COUNT"),
        ("h100", "cluster", "write h100-sxm-80gb x 8"),
        ("", "cluster", "DEVICE x COUNT"),
    ],
)
def test_what_is_wrong_is_said(text, field, says):
    with pytest.raises(InputError) as caught:
        load_cluster(text)
    problem = caught.value.problems[0]
    assert problem.field == field
    assert says in str(problem)
    assert problem.suggestion


def test_all_problems_at_once():
    with pytest.raises(InputError) as caught:
        load_cluster("h101 x 0 @ nowhere")
    assert {problem.field for problem in caught.value.problems} == {
        "cluster.device",
        "cluster.count",
        "cluster.node",
    }


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="h10amix× @-.,e+9\t", max_size=24))
def test_any_text_is_a_cluster_or_a_refusal(text):
    try:
        cluster = parse_shorthand(text)
    except InputError as refusal:
        if not refusal.problems:
            raise
        cluster = None
    assert cluster is None or cluster.devices >= 1
