"""Constants: every row has a unit and an origin, every one is used, stand-ins say that they are stand-ins."""

import csv
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from meshwright.cluster.catalog import device_ids
from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import GENERIC, RELATIVES, calibrated, constants, kernels, on_links
from meshwright.cost.operators.kernel_and_collective_times import LOW_PRECISIONS, hardware_times_for
from meshwright.cost.serving.hardware_times import serving_constants

DATA = files("meshwright.cost") / "data"
PACKAGE = Path(str(files("meshwright")))
IDENTIFIED = {"good", "fair", "weak", "guess", "per cluster"}


def rows(name):
    return list(csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines()))


def test_every_constant_has_a_unit_an_origin_and_says_how_well_it_is_known():
    names = [row["name"] for row in rows("constants.csv")]
    assert len(names) == len(set(names))
    for row in rows("constants.csv"):
        assert set(row) == {"name", "value", "unit", "range", "meaning", "origin", "identified"}
        assert all(row.values()), row
        assert row["identified"] in IDENTIFIED, row
        assert float(row["value"]) > 0


def test_every_constant_is_read_somewhere_and_none_is_read_that_is_not_there():
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    words = set(re.findall(r"\b[a-z][a-z0-9_]+\b", source))
    composed = {f"norm_{kind}{way}_bytes" for kind in ("", "eager_") for way in ("forward", "backward")}
    composed |= {f"{precision}_speed_up" for precision in LOW_PRECISIONS}
    known = {*constants(), *serving_constants()}
    assert known <= words | composed
    assert set(re.findall(r'(?:\bc|constants(?:\(\))?)\["([a-z0-9_]+)"\]', source)) <= known


def test_every_kernel_row_is_complete_and_says_where_it_comes_from():
    for row in rows("kernels.csv"):
        assert all(row.values()), row["device"]
        assert len(row["origin"]) > 20
        units = ("efficiency", "norm", "power", "us", "gb_s", "mb")
        assert all(name.endswith(units) for name in row if name not in ("device", "measured", "origin"))


@pytest.mark.parametrize("family", [row["device"] for row in rows("kernels.csv")])
def test_kernels_are_physical(family):
    found = kernels(family)
    assert found.family == family
    assert 0 < found.gemm_efficiency < 1
    assert 0 < found.gemm_launch_s < 1e-4
    assert all(0 < e < 1 for e in found.attention_efficiency.values())
    for curve in (found.all_reduce, found.all_gather):
        assert 0 < curve.latency_s < 1e-3
        assert 1e9 < curve.bandwidth_bytes_per_s < 2e12
        assert 0 <= curve.saturation_power < 1


def test_slower_links_have_lower_plateaus_and_faster_ones_the_measured():
    found = kernels("h100-sxm-80gb")
    measured = found.measured_scaleup_bytes_per_s
    for share, plateau in ((0.5, 0.5), (1.0, 1.0), (2.0, 1.0)):
        on = on_links(found, share * measured)
        assert on.measured_scaleup_bytes_per_s == share * measured
        assert on.all_gather == replace(
            found.all_gather, bandwidth_bytes_per_s=plateau * found.all_gather.bandwidth_bytes_per_s
        )


def test_a_calibration_moves_one_curve_and_is_relative_to_the_links():
    found = on_links(kernels("h100-sxm-80gb"), 1e11)
    numbers = {"all_reduce.latency_s": 1e-3, "all_reduce.efficiency": 0.5, "all_reduce.saturation_bytes": 7.0}
    made = calibrated(found, numbers)
    expected = {"latency_s": 1e-3, "bandwidth_bytes_per_s": 5e10, "saturation_bytes": 7.0}
    assert made.all_reduce == replace(found.all_reduce, **expected)
    assert made.all_gather == found.all_gather


@pytest.mark.parametrize(
    ("device", "family", "measured"),
    [
        ("h100-sxm-80gb", "h100", True),
        ("a100-pcie-40gb", "a100", True),
        ("gb200", "gb200", True),
        ("b200", "b200", True),
        ("h800-sxm-80gb", "h100", False),
        ("gh200-96gb", "h200", False),
        ("trainium-2", GENERIC, False),
        ("mi300x", "mi300x", False),
        ("tpu-v5p", GENERIC, False),
        ("a10", GENERIC, False),
        ("h1000", GENERIC, False),
    ],
)
def test_a_device_takes_its_own_family_a_relative_or_the_generic_row(device, family, measured):
    found = kernels(device)
    assert (found.family, found.measured) == (family, measured)
    assert found.family in {row["device"] for row in rows("kernels.csv")}
    assert set(RELATIVES.values()) <= {row["device"] for row in rows("kernels.csv")}


def test_every_device_of_the_catalogue_can_be_priced():
    for device in device_ids():
        pool = load_cluster(f"{device} x 8").pool
        form = hardware_times_for(pool, "bf16")
        assert form.gemm(4096, 4096, 4096) > 2 * 4096**3 / form.peak_16bit_flops
        assert form.collective("all-reduce", 1e6, 8, min(8, form.domain)) > 0
