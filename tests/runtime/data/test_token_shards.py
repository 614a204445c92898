import json
import tracemalloc
from contextlib import closing, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.runtime.data.corpus import open_corpus
from meshwright.runtime.data.input_files import DataFile
from meshwright.runtime.data.token_shards import DTYPES, ShardWriter, open_shard


def numpy_file(path, array):
    np.save(path, array, allow_pickle=True)
    return DataFile(path, "numpy")


def binary_file(path, content, header):
    path.write_bytes(content)
    if header is not None:
        path.with_name(path.name + ".json").write_text(
            header if isinstance(header, str) else json.dumps(header)
        )
    return DataFile(path, "binary")


def corpus_of(folder, *parts):
    files = [numpy_file(folder / f"{i}.npy", np.array(part, np.uint16)) for i, part in enumerate(parts)]
    return open_corpus(files, [f"part {i}" for i in range(len(files))])


@settings(deadline=None, max_examples=60)
@given(
    parts=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=20), max_size=6),
    dtype=st.sampled_from(sorted(DTYPES)),
    limit=st.integers(1, 9),
)
def test_what_is_written_is_read_whatever_the_size_of_shards(parts, dtype, limit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    with closing(ShardWriter(folder, DTYPES[dtype], limit)) as writer:
        for part in parts:
            writer.write(np.array(part, np.uint32))
    files = [DataFile(path, "binary") for path in sorted(folder.glob("*.bin"))]
    corpus = open_corpus(files, [""] * len(files))
    expected = [token for part in parts for token in part]
    assert corpus.read(0, 10**6).tolist() == expected
    assert corpus.tokens == writer.tokens == len(expected)
    assert all(len(shard) <= limit for shard in corpus.shards)


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_any_range_is_read_over_the_borders_of_shards(data, tmp_path_factory):
    parts = data.draw(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=5))
    corpus = corpus_of(tmp_path_factory.mktemp("corpus"), *parts)
    flat = [token for part in parts for token in part]
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat) + 3))
    assert corpus.read(start, stop).tolist() == flat[start:stop]


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<u4", ">u4"])
def test_numpy_files_of_either_byte_order_are_read(tmp_path, dtype):
    assert open_shard(numpy_file(tmp_path / "a.npy", np.array([1, 2, 513], dtype))).tolist() == [1, 2, 513]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, np.int64),
        np.zeros(3, np.uint8),
        np.zeros(3, np.float32),
        np.zeros((2, 2), np.uint16),
        np.uint16(3),
        np.zeros(0, np.uint16),
        np.array([{}, []], object),
        np.zeros(2, [("a", "<u2")]),
    ],
    ids=["int64", "uint8", "float32", "matrix", "scalar", "empty", "objects", "records"],
)
def test_other_arrays_are_refused(tmp_path, array):
    with pytest.raises(InputError):
        open_shard(numpy_file(tmp_path / "a.npy", array))


def test_damage_anywhere_in_a_numpy_header_is_refused_or_harmless(tmp_path):
    file = numpy_file(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
    sound = file.path.read_bytes()
    for place in range(128):
        for byte in (0, 0x28, 0x5B, 0x22, 0x39, 0xFF):
            file.path.write_bytes(sound[:place] + bytes([byte]) + sound[place + 1 :])
            with suppress(InputError):
                assert open_shard(file).ndim == 1


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04", b"\x80\x04N.", b"text\n" * 100])
def test_files_that_are_no_arrays_are_refused(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match="no NumPy array"):
        open_shard(DataFile(path, "numpy"))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "[" * 100_000,
        [],
        {"dtype": "uint16"},
        {"dtype": "int16", "tokens": 2},
        {"dtype": ["uint16"], "tokens": 2},
        {"dtype": "uint16", "tokens": -1},
        {"dtype": "uint16", "tokens": True},
        {"dtype": "uint16", "tokens": 2.0},
        {"dtype": "uint16", "tokens": 10**30},
        {"dtype": "uint16", "tokens": 3},
        {"dtype": "uint32", "tokens": 2},
        {"dtype": "uint16", "tokens": 2, "vocab": 9},
    ],
)
def test_a_wrong_header_is_refused(tmp_path, header):
    with pytest.raises(InputError):
        open_shard(binary_file(tmp_path / "a.bin", b"\1\0\2\0", header))
    assert open_shard(
        binary_file(tmp_path / "a.bin", b"\1\0\2\0", {"dtype": "uint16", "tokens": 2})
    ).tolist() == [1, 2]


def test_an_empty_shard_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no token"):
        open_shard(binary_file(tmp_path / "a.bin", b"", {"dtype": "uint16", "tokens": 0}))


def test_all_wrong_shards_are_named_at_once(tmp_path):
    files = [DataFile(tmp_path / name, "numpy") for name in ("a.npy", "b.npy")]
    with pytest.raises(InputError) as caught:
        open_corpus(files, ["", ""])
    assert len(caught.value.problems) == 2


def test_the_first_id_without_an_entry_is_named_in_each_shard(tmp_path):
    corpus = corpus_of(tmp_path, [1, 2, 9], [4], [7, 50, 3, 60])
    corpus.check_vocabulary(61)
    with pytest.raises(InputError) as caught:
        corpus.check_vocabulary(9)
    found = [(problem.field, problem.value, problem.rule) for problem in caught.value.problems]
    assert [(field, value) for field, value, _ in found] == [("data: part 0", 9), ("data: part 2", 50)]
    assert "token 2 must be below 9" in found[0][2]
    assert "token 1 must be below 9" in found[1][2]


def test_a_gigabyte_of_tokens_is_checked_and_read_in_little_memory(tmp_path):
    file = binary_file(tmp_path / "a.bin", b"", {"dtype": "uint16", "tokens": 2**29})
    with open(file.path, "r+b") as stream:
        stream.truncate(2**30)
        stream.seek(-2, 2)
        stream.write(b"\xff\x00")
    tracemalloc.start()
    corpus = open_corpus([file], ["sparse"])
    with pytest.raises(InputError, match=f"token {2**29 - 1} must"):
        corpus.check_vocabulary(255)
    assert corpus.read(2**29 - 2, 2**29).tolist() == [0, 255]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20
