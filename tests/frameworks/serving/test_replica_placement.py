"""Places of replicas: no device twice, whole nodes for large replicas, large ones first."""

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st
from started_servers import plan_text, resolved

from meshwright.errors import InputError
from meshwright.frameworks.serving.replica_placement import place_replicas

_POOL = st.fixed_dictionaries(
    {
        "does": st.just("serve"),
        "replicas": st.integers(1, 4),
        "layout": st.fixed_dictionaries({"tp": st.sampled_from((1, 2, 4, 8)), "pp": st.integers(1, 4)}),
    }
)


@given(pools=st.dictionaries(st.sampled_from("abcd"), _POOL, min_size=1))
@settings(max_examples=80, deadline=None)
def test_no_device_has_two_replicas(pools):
    try:
        this = resolved(plan_text("llama-3.1-8b", pools, cluster="h100-sxm-80gb x 64"))
    except InputError:
        return
    found = place_replicas(this.plan, this.cluster.pool)
    devices = []
    for name, pool in this.plan.pools.items():
        each = min(pool.devices_of_replica, found.node_devices)
        for place in found.replicas[name]:
            assert place.first_device + each <= found.node_devices
            assert place.nodes * each == pool.devices_of_replica
            devices += [
                (node, place.first_device + device)
                for node in range(place.node, place.node + place.nodes)
                for device in range(each)
            ]
        assert (len(found.replicas[name]) < pool.replicas) == (name in found.unplaced)
    assert len(devices) == len({*devices})
    nodes = [node for node, _ in devices]
    assert max(nodes, default=-1) + 1 == found.nodes <= 8


def test_large_replicas_are_placed_first():
    pools = {
        "small": {"does": "serve", "replicas": 4, "layout": {"tp": 2}},
        "large": {"does": "serve", "replicas": 1, "layout": {"tp": 8, "pp": 2}},
    }
    found = place_replicas(
        resolved(plan_text("llama-3.1-8b", pools, cluster="h100-sxm-80gb x 24")).plan,
        resolved(plan_text("llama-3.1-8b", pools, cluster="h100-sxm-80gb x 24")).cluster.pool,
    )
    assert [(place.node, place.nodes) for place in found.replicas["large"]] == [(0, 2)]
    assert [(place.node, place.first_device) for place in chain(found.replicas["small"])] == [
        (2, 0),
        (2, 2),
        (2, 4),
        (2, 6),
    ]
