from itertools import count

from meshwright.runtime.faults import pass_timer
from meshwright.runtime.faults.pass_timer import PassTimer
from meshwright.schedules.action import Action


class EventStub:
    """An event of a clock that ticks 10 ms at each record."""

    clock = count()

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at_ms = 10.0 * next(self.clock)

    def synchronize(self):
        """Return at once."""

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


def test_passes_of_a_step_add_up_and_other_actions_do_not(monkeypatch):
    monkeypatch.setattr(pass_timer.torch.cuda, "Event", EventStub)
    timer = PassTimer()
    for passes, seconds in ((["F", "SEND_F", "B"], 0.02), (["F"], 0.01), ([], 0.0)):
        for kind in passes:
            timer.hear(Action(kind, 0, 0), "begin")
            timer.hear(Action(kind, 0, 0), "end")
        assert timer.seconds() == seconds
