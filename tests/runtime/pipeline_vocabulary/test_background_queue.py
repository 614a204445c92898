"""Work that goes on beside a rank's own."""

from threading import Event

import pytest
import torch

from meshwright.runtime.pipeline_vocabulary.background_queue import BackgroundQueue


@pytest.fixture
def aside():
    return BackgroundQueue(torch.device("cpu"))


def test_pieces_are_done_in_the_order_in_which_they_come(aside):
    done, go = [], Event()

    def piece(number):
        def work():
            go.wait()
            done.append(number)
            return {"made": number}

        return work

    pending = [aside.begin(piece(number), None) for number in range(5)]
    assert done == []
    go.set()
    assert [one.result()["made"] for one in reversed(pending)] == [4, 3, 2, 1, 0]
    assert done == [0, 1, 2, 3, 4]


def test_an_error_is_raised_where_the_result_is_taken_and_the_next_piece_is_done(aside):
    def wrong():
        raise ValueError("seven")

    first, second = aside.begin(wrong, None), aside.begin(lambda: {"made": 1}, None)
    assert second.result() == {"made": 1}
    with pytest.raises(ValueError, match="seven"):
        first.result()
