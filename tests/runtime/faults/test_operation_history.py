import time

from meshwright.runtime.faults.operation_history import KEPT, OperationHistory

KEY = ("all-reduce", "gradient", "dp_replicate")


def test_a_ring_has_the_last_operations_of_a_collective_and_no_others():
    history = OperationHistory()
    history.begin(("send to", "1"), "send F", 8.0, (0, 1), receives=False)
    for _ in range(KEPT + 3):
        history.wait(history.begin(KEY, "gradient", 4.0, (0, 1)), lambda: None)
    message, collective = history.to_json()
    assert message["operations"][0] == history.rings["send to", "1"][0].to_json()
    assert message["operations"][0]["end_s"] is None
    assert collective["collective"] == list(KEY)
    assert [one["sequence"] for one in collective["operations"]] == list(range(4, KEPT + 4))
    assert all(one["start_s"] <= one["end_s"] for one in collective["operations"])


def test_waits_add_up_but_for_operations_aside_and_the_shortest_is_kept():
    history = OperationHistory()
    for seconds, aside in ((0.02, False), (0.01, False), (0.001, True)):
        operation = history.begin(KEY, "gradient", 4.0, (0, 1), aside=aside)
        history.wait(operation, lambda seconds=seconds: time.sleep(seconds))
    rings = history.rings[KEY]
    assert history.waited_s == rings[0].waited_s + rings[1].waited_s >= 0.03
    assert history.least_s == {(0, 1): min(rings[0].waited_s, rings[1].waited_s)}


def test_progress_is_told_before_and_after_a_wait():
    told = []
    history = OperationHistory(on_progress=lambda *of, waiting: told.append((*of, waiting)))
    history.wait(history.begin(KEY, "gradient", 4.0, (0, 1)), lambda: told.append("waits"))
    assert told == [(0, "gradient", False), (0, "gradient", True), "waits", (0, "gradient", False)]
