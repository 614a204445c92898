"""Results survive their text, and text that is not theirs is refused with every problem."""

import json

import pytest
from synthetic_results import collective, hosts_of, inside, product, results

from meshwright.errors import InputError
from meshwright.measurement.results import read_results

HOSTS = hosts_of(2, 2)


@pytest.fixture
def whole():
    groups = inside(HOSTS)
    times = [collective(group, 0.001 + 0.1 / 3, "all-to-all", 4096) for group in groups]
    return results(HOSTS, [product([0.1, 1 / 3, 2.0, 7.0])], groups, times)


def changed(whole, path, value):
    """The text with one value in another's place."""
    data = json.loads(whole.to_text())
    inner = data
    *sections, key = path
    for section in sections:
        inner = inner[section]
    inner[key] = value
    return json.dumps(data)


def test_text_and_back_is_the_same(whole):
    assert read_results(whole.to_text()) == whole


def test_the_origin_says_when_and_with_what(whole):
    assert whole.origin == "measured 2026-11-21 with torch 2.13.0, backend nccl"
    assert (whole.machine.ranks, whole.machine.nodes, whole.machine.devices_per_node) == (4, 2, 2)
    assert whole.kernels[0].name == "matmul bf16 1024×1024×1024"
    assert whole.in_scope("node") == whole.collectives
    assert whole.in_scope("rail") == ()


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("kernels", 0, "seconds"), [1.0], "kernels.0.seconds"),
        (("kernels", 0, "seconds"), [1.0, 1.0, 0.0, 1.0], "kernels.0.seconds"),
        (("kernels", 0, "spread_s"), [], "kernels.0.spread_s"),
        (("kernels", 0, "kind"), "sorting", "kernels.0.kind"),
        (("kernels", 0, "shape"), [1024, 1024], "kernels.0.shape"),
        (("kernels", 0, "shape"), [1024, 0, 1024], "kernels.0"),
        (("kernels", 0, "flops"), 0.0, "kernels.0"),
        (("kernels", 0, "kernel"), "flash", "kernels.0.kernel"),
        (("kernels", 0, "kernel"), "magic", "kernels.0.kernel"),
        (("kernels", 0, "dtype"), "int4", "kernels.0.dtype"),
        (("machine", "memory_bytes"), [0] * 4, "machine.memory_bytes"),
        (("machine", "device_names"), ["one"], "machine.device_names"),
        (("machine", "hosts"), [], "machine.hosts"),
        (("machine", "memory_bytes"), ["much"] * 4, "machine.memory_bytes.0"),
        (("collectives", 1, "group"), "nowhere", "collectives.1.group"),
        (("collectives", 0, "seconds"), -1.0, "collectives.0"),
        (("collectives", 0, "bytes"), 2**70, "collectives.0"),
        (("collectives", 0, "local"), -1, "collectives.0"),
        (("groups", 0, "ranks"), [0, 4], "groups.0.ranks"),
        (("groups", 0, "ranks"), [], "groups.0.ranks"),
        (("measurement",), 2, "measurement"),
        (("surplus",), 1, "surplus"),
    ],
)
def test_what_is_wrong_is_named(whole, path, value, field):
    with pytest.raises(InputError) as error:
        read_results(changed(whole, path, value))
    assert field in {problem.field for problem in error.value.problems}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", "{", "[" * 100_000, '{"machine": NaN}', '{"took_s": 1e999}', "\x00", "null", '"text"'],
)
def test_what_is_no_result_is_refused(text):
    with pytest.raises(InputError):
        read_results(text)


def test_all_problems_come_at_once(whole):
    data = json.loads(whole.to_text())
    data["kernels"][0]["seconds"], data["collectives"][0]["group"] = [1.0], "nowhere"
    with pytest.raises(InputError) as error:
        read_results(json.dumps(data))
    assert len(error.value.problems) == 2
