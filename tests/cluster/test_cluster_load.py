import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.catalog import device, device_ids, node_names, usual_node
from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.file_units import GBIT, scaled, unscaled
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError
from meshwright.units import GIB, GIGA, TERA

WRITTEN_OUT = """\
name: two generations
pools:
  - name: new
    count: 12
    device: {id: n1, peak_tflops: {bf16: 1200.5, fp8: 2401}, memory_gib: 160, memory_gbyte_per_s: 6000.3,
             scaleup_gbyte_per_s_per_device: 700.1, power_w: unknown}
    node: {name: mine, devices: 4, scaleup_domain: 16, nic_count: 4, nic_gbit_per_s_per_node: 1600.7}
    usd_per_device_hour: 3
  - {name: old, count: 3, device: {like: a100-sxm-80gb, power_w: 330}, usd_per_device_hour: unknown,
     node: {like: dgx-a100, nic_gbit_per_s_per_node: 800}}
tiers: [{name: pod, devices: 128, oversubscription: 4.5}]
failures_per_1000_node_days: {value: 2.5, source: our log, date: 2026-01}
"""


def test_a_written_out_file():
    cluster = load_cluster(WRITTEN_OUT)
    new, old = cluster.pools
    assert cluster.devices == 15
    assert new.device.peak_flops == {"bf16": 1200.5 * TERA, "fp8": 2401 * TERA}
    assert new.device.memory_bytes == 160 * GIB
    assert new.node.scaleup_domain == 16
    assert new.node.nic_bytes_per_s == 1600.7e9 / 8
    assert new.node.scaleup_bytes_per_s == new.device.scaleup_bytes_per_s == 700.1 * GIGA
    assert new.usd_per_device_hour is not None
    assert new.usd_per_device_hour.value == 3
    assert old.usd_per_device_hour is None
    assert cluster.usd_per_hour is None
    assert old.device == dataclasses.replace(device("a100-sxm-80gb"), power_w=330.0)
    assert old.node == dataclasses.replace(usual_node("a100-sxm-80gb"), nic_bytes_per_s=1e11)
    assert cluster.tiers[0].oversubscription == 4.5
    assert cluster.failures_per_1000_node_days is not None
    assert cluster.failures_per_1000_node_days.date == "2026-01"


def test_what_a_file_leaves_out_is_the_usual():
    cluster = load_cluster("pools:\n  - {count: 64, device: h100-sxm-80gb}\n")
    assert cluster.pools == load_cluster("h100-sxm-80gb x 64").pools
    usual = load_cluster("h100-sxm-80gb x 64").failures_per_1000_node_days
    assert cluster.failures_per_1000_node_days == usual is not None


def test_unknown_says_that_nobody_knows():
    text = "pools:\n  - {count: 64, device: h100, usd_per_device_hour: unknown}\n"
    cluster = load_cluster(f"{text}failures_per_1000_node_days: unknown\n")
    assert cluster.pool.usd_per_device_hour is None
    assert cluster.failures_per_1000_node_days is None
    assert load_cluster(dump_cluster(cluster)) == cluster


def test_a_key_without_a_value_is_refused_with_what_to_write():
    text = "pools:\n  - {count: , device: {like: h100, power_w: }}\nfailures_per_1000_node_days:\nlinkz: []\n"
    with pytest.raises(InputError) as caught:
        load_cluster(text)
    found = {problem.field: problem.suggestion for problem in caught.value.problems}
    suggestions = {field: text.partition("; a complete file: ")[0] for field, text in found.items()}
    assert suggestions == {
        "pools.0.count": "add `count: 64`",
        "pools.0.device.power_w": "write `power_w: unknown`, or take the key out",
        "failures_per_1000_node_days": "write `failures_per_1000_node_days: unknown`, or take the key out",
        "linkz": "did you mean links?",
    }


def test_devices_of_two_kinds_share_no_failure_rate():
    two = "pools:\n  - {count: 8, device: h100, name: a}\n  - {count: 8, device: a100, name: b}\n"
    assert load_cluster(two).failures_per_1000_node_days is None


def test_a_changed_link_reaches_the_node():
    link = "scaleup_gbyte_per_s_per_device"
    cut = load_cluster(f"pools:\n  - {{count: 8, device: {{like: h100, {link}: 200}}}}\n")
    assert cut.pool.node.scaleup_bytes_per_s == 200 * GIGA
    device, node = f"{{like: h100, {link}: 200}}", f"{{like: dgx-h100, {link}: 450}}"
    kept = load_cluster(f"pools:\n  - {{count: 8, device: {device}, node: {node}}}\n")
    assert kept.pool.node.scaleup_bytes_per_s == 450 * GIGA
    assert load_cluster(dump_cluster(kept)) == kept


def test_a_path_and_its_text_are_the_same_cluster(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(WRITTEN_OUT, encoding="utf-8")
    assert load_cluster(path) == load_cluster(str(path)) == load_cluster(WRITTEN_OUT)


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-9, 1e12), st.sampled_from([GIGA, TERA, GBIT]))
def test_unscaled_is_the_exact_inverse_of_scaled(value, scale):
    assert scaled(unscaled(scaled(value, scale), scale), scale) == scaled(value, scale)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=20)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,20}", fullmatch=True)
POWERS = st.just("unknown") | st.floats(1, 1e5)


def device_files():
    written = st.fixed_dictionaries(
        {
            "id": NAMES,
            "peak_tflops": st.dictionaries(st.sampled_from(["bf16", "fp8"]), st.floats(0.1, 9e4), min_size=1),
            "memory_gib": st.floats(1, 4096),
            "memory_gbyte_per_s": st.floats(10, 1e5),
            "scaleup_gbyte_per_s_per_device": st.floats(1, 4999),
        },
        optional={"vendor": WORDS, "year": st.integers(0, 9999), "power_w": POWERS, "notes": WORDS},
    )
    changed = st.fixed_dictionaries(
        {"like": st.sampled_from(device_ids())},
        optional={"power_w": POWERS, "memory_gib": st.floats(1, 4096)},
    )
    return st.sampled_from(device_ids()) | changed | written


def node_files():
    rates = {"scaleup_gbyte_per_s_per_device": st.floats(1, 4999), "power_w": POWERS, "fabric": WORDS}
    rates |= {"host_gbyte_per_s_per_device": st.floats(1, 4999), "host_memory_gib": st.floats(1, 1e5)}
    rates |= {"host_memory_gbyte_per_s": st.floats(1, 19999), "host_memory_source": WORDS}
    written = st.integers(1, 64).flatmap(
        lambda devices: st.fixed_dictionaries(
            {
                "name": NAMES,
                "devices": st.just(devices),
                "nic_gbit_per_s_per_node": st.floats(0.1, 20000),
            },
            optional={"scaleup_domain": st.integers(1, 9).map(lambda hosts: hosts * devices), **rates},
        )
    )
    changed = st.fixed_dictionaries({"like": st.sampled_from(node_names())}, optional=rates)
    return st.sampled_from(node_names()) | changed | written


FIGURES = st.just("unknown") | st.fixed_dictionaries(
    {"value": st.floats(0, 1e6)}, optional={"source": WORDS, "date": WORDS}
)
POOLS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "count": st.integers(1, 10**6), "device": device_files(), "node": node_files()},
        optional={"usd_per_device_hour": FIGURES},
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda pool: pool["name"],
)
FILES = st.fixed_dictionaries(
    {"pools": POOLS},
    optional={
        "name": WORDS,
        "failures_per_1000_node_days": FIGURES,
        "tiers": st.lists(
            st.fixed_dictionaries(
                {"name": NAMES, "devices": st.integers(1, 9), "oversubscription": st.floats(1, 99)}
            ),
            max_size=2,
        ),
    },
)


@settings(deadline=None, max_examples=36)
@given(FILES)
def test_dump_and_load_are_inverse(data):
    cluster = load_cluster(as_yaml(data))
    text = dump_cluster(cluster)
    assert load_cluster(text) == cluster
    assert dump_cluster(load_cluster(text)) == text


@pytest.mark.parametrize("name", device_ids())
def test_dump_and_load_are_inverse_for_the_shorthand(name):
    cluster = load_cluster(f"{name} x 24")
    assert load_cluster(dump_cluster(cluster)) == cluster


def loaded_or_refused(text):
    """The cluster, or None after a refusal that says why; anything else is an error."""
    try:
        return load_cluster(text)
    except InputError as refusal:
        if not refusal.problems:
            raise
        return None


def as_yaml(data):
    """JSON is YAML; a line break tells text from a path."""
    return json.dumps(data, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("pools: []\n", "pools", "must"),
        ("name: x\npool: []\n", "pool", "pools"),
        ("pools: [{count: 8, device: h1000}]\n", "pools.0.device", "h100"),
        ("pools: [{count: 8, device: h100, node: dgx}]\n", "pools.0.node", "dgx-h100"),
        ("pools: [{count: 0, device: h100}]\n", "pools.0.count", "at least 1"),
        ("pools: [{count: '8', device: h100}]\n", "pools.0.count", "whole number"),
        ("pools: [{count: 8, device: 7}]\n", "pools.0.device", "mapping"),
        ("pools: [{count: 8, device: {id: x}}]\n", "pools.0.device.memory_gib", "like"),
        (
            "pools: [{count: 8, device: {like: h100, memory_gib: 81559}}]\n",
            "pools.0.device.memory_gib",
            "79.65",
        ),
        (
            "pools: [{count: 8, device: {like: h100, memory_gib: -1}}]\n",
            "pools.0.device.memory_gib",
            "more than 0",
        ),
        (
            "pools: [{count: 8, device: {like: h100, memory_gbyte_per_s: 3.35}}]\n",
            "pools.0.device.memory_gbyte_per_s",
            "3350",
        ),
        (
            "pools: [{count: 8, device: h100, node: {like: dgx-h100, LINK: 7200}}]\n",
            "pools.0.node.scaleup_gbyte_per_s_per_device",
            "per device",
        ),
        (
            "pools: [{count: 8, device: h100, node: {like: dgx-h100, LINK: 0.45}}]\n",
            "pools.0.node.scaleup_gbyte_per_s_per_device",
            "per device",
        ),
        (
            "pools: [{count: 8, device: h100, node: {like: dgx-h100, nic_gbit_per_s_per_node: 25600}}]\n",
            "pools.0.node.nic_gbit_per_s_per_node",
            "3200",
        ),
        (
            "pools: [{count: 8, device: h100, node: {like: dgx-h100, scaleup_domain: 5}}]\n",
            "pools.0.node.scaleup_domain",
            "divide",
        ),
        ("pools: [{count: 8, device: h100}, {count: 8, device: h100}]\n", "pools", "two pools"),
        (
            "pools: [{count: 8, device: h100, usd_per_device_hour: .inf}]\n",
            "cluster: pools.0.usd_per_device_hour",
            "finite",
        ),
        ("pools: [\n", "cluster", "YAML"),
        ("- a\n", "cluster", "mapping"),
        ("\n", "cluster", "empty"),
    ],
)
def test_what_is_wrong_is_said(text, field, says):
    with pytest.raises(InputError) as caught:
        load_cluster(text.replace("LINK", "scaleup_gbyte_per_s_per_device"))
    problem = next(problem for problem in caught.value.problems if problem.field == field)
    assert says in str(problem)


def test_all_problems_at_once():
    with pytest.raises(InputError) as caught:
        load_cluster("pools: [{count: 8, device: h1}, {count: 4, device: {memory_gib: 80}, node: nowhere}]\n")
    fields = {problem.field for problem in caught.value.problems}
    assert {"pools.0.device", "pools.1.device.id", "pools.1.device.peak_tflops", "pools.1.node"} <= fields


def test_files_that_cannot_be_read(tmp_path):
    for name, content in (
        ("empty.yaml", b""),
        ("binary.yaml", bytes(range(256))),
        ("huge.yaml", b"a" * 2**21),
    ):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.yaml").mkdir()
    for name in ("empty.yaml", "binary.yaml", "huge.yaml", "folder.yaml", "absent.yaml", "nul\0.yaml"):
        with pytest.raises(InputError) as caught:
            load_cluster(tmp_path / name)
        assert caught.value.problems


@settings(deadline=None, max_examples=90)
@given(st.data())
def test_a_damaged_file_is_a_cluster_or_a_refusal(data):
    text = WRITTEN_OUT
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.text("0-9.e:{}[],&*! \n'\"~abn", max_size=6)) + text[end:]
    cluster = loaded_or_refused(text)
    assert cluster is None or load_cluster(dump_cluster(cluster)) == cluster


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(file=FILES, junk=JUNK, data=st.data())
def test_a_wrong_value_anywhere_is_a_cluster_or_a_refusal(file, junk, data):
    target = data.draw(st.sampled_from([file, file["pools"][0]]))
    nested = [target[key] for key in ("device", "node") if isinstance(target.get(key), dict)]
    target = data.draw(st.sampled_from([target, *nested]))
    target[data.draw(st.sampled_from(sorted(target)))] = junk
    cluster = loaded_or_refused(as_yaml(file))
    assert cluster is None or load_cluster(dump_cluster(cluster)) == cluster
