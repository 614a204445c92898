from meshwright.runtime.faults.step_watch import FIRST_PAUSE, StepWatch


def asked(watch, times):
    return [number for number, seconds in enumerate(times) if watch.add(seconds)]


def test_several_long_steps_ask_for_a_look_and_single_ones_do_not():
    assert asked(StepWatch(), [9.0, *[1.0] * 10, 3.0, 3.0, 1.0, 3.0, 1.0]) == []
    assert asked(StepWatch(), [9.0, *[1.0] * 10, *[3.0] * 6]) == [15, 16]


def test_after_a_look_that_found_nothing_the_next_one_waits_longer_each_time():
    watch = StepWatch()
    asked(watch, [1.0] * 50)
    pauses = []
    for _ in range(3):
        pauses.append(next(number for number in range(1000) if watch.add(3.0)))
        watch.looked(found=False)
        watch.usual.extend([1.0] * 50)
    assert pauses[1] >= FIRST_PAUSE
    assert pauses[2] > pauses[1] > pauses[0]


def test_what_was_found_is_usual_from_then_on():
    watch = StepWatch()
    asked(watch, [1.0] * 50)
    assert asked(watch, [3.0] * 5) == [4]
    watch.looked(found=True)
    assert asked(watch, [3.0] * 50) == []
