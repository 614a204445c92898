"""Texts of workers that prefill and decode."""

import pytest

from meshwright.validation.serving.disaggregated_workers import Side, disaggregated


def test_numbers_and_degrees_are_read():
    text = "2 workers x tp1 pp1 adp8 moetp8 ep1 bs1|1 workers x tp4 pp2 adp2 moetp1 ep8 bs64"
    pools = disaggregated(text)
    assert pools.prefill == Side(workers=2, tp=1, pp=1, attention_dp=8, etp=8, ep=1, batch=1)
    assert pools.decode == Side(workers=1, tp=4, pp=2, attention_dp=2, etp=1, ep=8, batch=64)
    assert pools.decode.devices == 16


def test_empty_numbers_are_none():
    pools = disaggregated(" workers x tp8 pp1 adp1 moetp1 ep8 bs| workers x tp32 pp1 adp1 moetp4 ep8 bs")
    assert pools.prefill == Side(workers=None, tp=8, pp=1, attention_dp=1, etp=1, ep=8, batch=None)
    assert pools.decode.tp == 32


def test_the_short_form_has_workers_and_perhaps_tp():
    pools = disaggregated("3 prefill workers x TP2|1 decode worker")
    assert pools.prefill == Side(workers=3, tp=2, pp=1, attention_dp=1, etp=None, ep=None, batch=None)
    assert pools.decode == Side(workers=1, tp=1, pp=1, attention_dp=1, etp=None, ep=None, batch=None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prefill EP32 DP32 (4 nodes x 8)|decode EP72 DP72 (9 nodes x 8)", "on each side"),
        ("1 decode worker|1 prefill worker", "on each side"),
        ("1 prefill worker", "prefill|decode"),
        ("1 workers x tp8 zz3|1 workers x tp8", "unknown degrees: zz"),
        ("0 workers x tp8|1 workers x tp8", "from 1 to"),
        ("1 workers x tp0|1 workers x tp8", "from 1 to"),
        ("1 workers x tp8|99999 workers x tp8", "from 1 to"),
    ],
)
def test_other_texts_are_refused(text, reason):
    with pytest.raises(ValueError, match=reason.replace("|", r"\|")):
        disaggregated(text)
