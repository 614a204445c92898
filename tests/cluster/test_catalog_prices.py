from statistics import median

from meshwright.cluster.catalog import device_id, device_ids
from meshwright.cluster.catalog_prices import usual_price
from meshwright.cluster.data_tables import read_table
from meshwright.cluster.failure_rates import usual_failures


def test_the_price_is_the_median_of_on_demand_rows():
    prices = [
        float(row["usd_per_device_hour"])
        for row in read_table("prices")
        if row["term"] == "on-demand" and device_id(row["accelerator"]) == "h100-sxm-80gb"
    ]
    price = usual_price("H100")
    assert price is not None
    assert price.value == median(prices) == 4.24
    assert str(len(prices)) in price.source
    assert "Lambda" in price.source
    assert price.date == "2024 to 2026-08"


def test_instance_price_is_devices_times_device_price():
    for row in read_table("prices"):
        whole = float(row["usd_per_hour_instance"])
        assert abs(whole - int(row["devices"]) * float(row["usd_per_device_hour"])) < 0.01 * whole, row


def test_no_price_is_none_and_no_failure_rate_is_none():
    assert usual_price("h800") is None
    assert usual_failures("mi300x") is None


def test_llama_3_failure_rate_follows_from_its_counts():
    rate = usual_failures("h100-sxm-80gb")
    assert rate is not None
    assert abs(rate.value - 419 / (16384 / 8 * 54) * 1000) < 0.01
    assert "Llama 3" in rate.source


def test_every_known_figure_is_positive_and_sourced():
    for name in device_ids():
        for figure in (usual_price(name), usual_failures(name)):
            assert figure is None or (figure.value > 0 and figure.source and figure.date)
