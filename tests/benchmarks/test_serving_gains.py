"""Gains of published serving systems: the page has what the command computes, and bounds that hold by construction."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gains():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import serving_gains
    finally:
        sys.path.remove(str(BENCHMARKS))
    return serving_gains


def test_page_has_the_computed_rows(gains):
    written = gains.PAGE.read_text(encoding="utf-8").splitlines()
    made = [line for line in gains.page().splitlines() if line.startswith("|")]
    assert len(made) > 60
    assert [line for line in written if line.startswith("|")] == made


def test_padding_saves_at_most_its_own_share(gains):
    found = [gains.energon_reduction(2, batch, 128) for batch in (1, 8, 64)]
    assert 0 < found[0] < found[1] < found[2] < 0.5


def test_replicas_shorten_busy_seconds_but_no_request(gains):
    found = gains.best_plan_gain("llama-3.1-70b", "h100-sxm-80gb x 8", "chat")
    assert found.latency == pytest.approx(1)
    assert found.busy_plan.startswith("replicas")
    assert 1 < found.busy < 4


def test_turns_of_phases_gain_more_over_slower_links(gains):
    slow, fast = (
        gains.phase_layout_gain("llama-2-70b", cluster, "arxiv-summarization")
        for cluster in ("8 A10", "8 A100 40 GB SXM")
    )
    assert slow.gain > fast.gain
    assert slow.phased.name == "1× pp 8 → tp 8"
