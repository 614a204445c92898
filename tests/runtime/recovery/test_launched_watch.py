"""Ranks that a launcher started name the one at fault, through their store."""

import os
import socket
from multiprocessing import get_context

import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.errors import MeshwrightError

RANKS = 2


def launched(run, **options):
    """What each rank that is still alive at the end says of the run: its faults, or none."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = get_context("fork").SimpleQueue()

    def rank(number):
        place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
        try:
            found = run.train("run", 8, **options)
            answers.put(
                (number, [] if found is None else [fault.to_json() for fault in found.outcome.faults])
            )
        except MeshwrightError as error:
            answers.put((number, error.details.get("faults")))

    processes = [get_context("fork").Process(target=rank, args=(number,)) for number in range(RANKS)]
    for process in processes:
        process.start()
    told = dict([answers.get()])
    processes[0].join()
    for process in processes:
        process.join(1)
        process.kill()
    while not answers.empty():
        told.update([answers.get()])
    return told


@pytest.mark.parametrize(
    ("inject", "expected"),
    [
        pytest.param("hang:rank=1,step=3", ("hang", 1, 3), marks=pytest.mark.slow),
        ("nan:rank=1,step=3", ("nan", 1, 3)),
    ],
)
def test_the_rank_at_fault_is_named_by_the_first(tmp_path, inject, expected):
    run = small_run(tmp_path, ranks=RANKS, layout={"dp_replicate": RANKS})
    told = launched(run, inject=(inject,), hang_s=3.0)
    (fault,) = told[0]
    assert (fault["kind"], fault["rank"], fault["step"]) == expected
    assert fault["action"] == "stopped"


@pytest.mark.slow
def test_a_process_that_is_gone_is_named_by_its_silence(tmp_path):
    run = small_run(tmp_path, ranks=RANKS, layout={"dp_replicate": RANKS})
    (fault,) = launched(run, inject=("kill:rank=1,step=3",), hang_s=30.0)[0]
    assert (fault["kind"], fault["rank"], fault["step"]) == ("kill", 1, 3)
