"""A checkpoint that is saved while the run goes on is the one that would have been saved at once."""

import threading

import pytest

pytest.importorskip("torch")

import torch
from checkpoint_runs import SMALLEST, on_ranks, resumed, run_on
from local_plans import small
from tiny_models import tiny

from meshwright.errors import InputError
from meshwright.runtime.checkpoint import latest_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.background_save import BackgroundSave, HostBuffer, SaveOptions
from meshwright.runtime.checkpoint.shard_output import ShardWriter

PLANS = {
    "zero3": (
        "bf16",
        small(tiny("llama", num_hidden_layers=2), sharding="zero3", gather="per-layer", dp_shard=2),
    ),
    "pipeline with corrections of routers": (
        "fp64",
        small(tiny("deepseek_v3", num_hidden_layers=2, bias_update_speed=0.01), pp=2, ep=2, dp_shard=2),
    ),
    "zeroth order": ("fp32", small(SMALLEST, optimizer="zo-sgd", dp_replicate=2)),
}


AT_SHARD = SaveOptions()


def saved_in_background(case, folder, precision, options=AT_SHARD, at_once=None):
    """Six steps, saved in the background behind the third: (results, checkpoint) of rank 0."""

    def work(rank, steps, store):
        results = steps(range(1, 4))
        if at_once is not None:
            save_checkpoint(at_once, rank, {})
        saving = BackgroundSave(folder, rank, {}, store, options, 1)
        rank.interpreter.states.before_step = saving.wait_until_copied
        results += steps(range(4, 7))
        return results, saving.finish()

    return on_ranks(case, work, precision, with_store=True)[0]


@pytest.mark.parametrize("name", PLANS)
def test_its_bits_are_those_of_a_checkpoint_saved_at_once(name, tmp_path):
    precision, case = PLANS[name]
    results, path = saved_in_background(case, tmp_path / "later", precision, at_once=tmp_path / "once")
    once = latest_checkpoint(tmp_path / "once")
    names = sorted(file.name for file in once.iterdir())
    assert sorted(file.name for file in path.iterdir()) == names
    assert all((path / file).read_bytes() == (once / file).read_bytes() for file in names)
    assert next(later for later, *_ in resumed(case, path, precision)) == results[3:]


@pytest.mark.parametrize("options", ["small buffer", "local disk"])
def test_a_small_buffer_and_a_local_disk_make_the_same_files(options, tmp_path):
    precision, case = PLANS["zero3"]
    local = tmp_path / "local"
    how = SaveOptions(buffer_bytes=1000) if options == "small buffer" else SaveOptions(local=local)
    _, path = saved_in_background(case, tmp_path / "later", precision, how, at_once=tmp_path / "once")
    once = latest_checkpoint(tmp_path / "once")
    assert all((path / file.name).read_bytes() == file.read_bytes() for file in once.iterdir())
    assert not local.exists() or not list(local.iterdir())


def test_a_disk_that_is_full_for_one_rank_gives_it_up_on_all(tmp_path, monkeypatch):
    precision, case = PLANS["zero3"]
    earlier = run_on(case, tmp_path, precision) and latest_checkpoint(tmp_path)
    write = ShardWriter.write

    def full(self, content):
        if self.path.name == "rank-00001.safetensors":
            raise OSError(28, "No space left on device")
        write(self, content)

    monkeypatch.setattr(ShardWriter, "write", full)

    def work(rank, steps, store):
        steps(range(1, 5))
        saving = BackgroundSave(tmp_path, rank, {}, store, SaveOptions(buffer_bytes=1000), 1)
        rank.interpreter.states.before_step = saving.wait_until_copied
        steps([5])
        with pytest.raises(InputError, match="No space left on device") as error:
            saving.finish()
        return str(error.value)

    everyone = on_ranks(case, work, precision, with_store=True)
    assert all("rank-00001.safetensors" in told for told in everyone)
    assert latest_checkpoint(tmp_path) == earlier
    assert [path.name for path in tmp_path.iterdir()] == [earlier.name]


def test_a_buffer_never_holds_more_than_its_limit():
    buffer, seen = HostBuffer(10), []

    def fill():
        for size in (4, 4, 4, 9, 25, 1):
            buffer.put(lambda size=size: memoryview(bytes(size)), size)
        buffer.end()

    filling = threading.Thread(target=fill)
    filling.start()
    for piece in buffer:
        seen.append((len(piece), buffer.held))
    filling.join()
    assert [size for size, _ in seen] == [4, 4, 4, 9, 25, 1]
    assert all(held <= 10 or held == 25 for _, held in seen)
    assert buffer.held == 0


def test_a_buffer_that_is_dropped_lets_all_copies_end():
    buffer = HostBuffer(4)
    buffer.put(lambda: memoryview(bytes(4)), 4)
    waiting = threading.Thread(target=lambda: buffer.put(lambda: memoryview(bytes(4)), 4))
    waiting.start()
    buffer.drop()
    waiting.join(10)
    assert not waiting.is_alive()


def test_its_pieces_are_written_as_one_file(tmp_path):
    from safetensors.torch import load_file

    from meshwright.program.rank_units.unit_layout import Tensor
    from meshwright.runtime.checkpoint.shard_output import in_file_order, write_shard
    from meshwright.runtime.checkpoint.stored_stretch import Stretch

    def stretch(name, values):
        return Stretch("parameter", Tensor(name, (9,), (9,), (), False, False, trained=True), 0, 0, values)

    wide, narrow = torch.arange(9.0), torch.arange(9).to(torch.float8_e4m3fn)
    held = [stretch("b", (narrow,)), stretch("a", (wide[:4], wide[4:]))]
    assert [of.tensor.name for of in in_file_order(held)] == ["a", "b"]
    write_shard(tmp_path / "file", held)
    read = load_file(tmp_path / "file")
    assert torch.equal(read["parameter/a/whole/0-9"], wide)
    assert torch.equal(read["parameter/b/whole/0-9"].float(), narrow.float())
