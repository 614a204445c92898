import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import Problem
from meshwright.runtime.data.documents import MAX_LINE_BYTES, PIECE, READ_BYTES, read_pieces
from meshwright.runtime.data.input_files import DataFile

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
LONG = st.builds(
    lambda parts, length: ("".join(parts) * (length // len("".join(parts)) + 1))[:length],
    st.lists(st.sampled_from(["word ", "x" * 30_000, "line\n", "日本", " ", "\r\n"]), min_size=1, max_size=4),
    st.sampled_from([PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 200_000]),
)


def text_file(path, content):
    path.write_bytes(content)
    return DataFile(path, "text")


def lines_file(path, content):
    path.write_bytes(content)
    return DataFile(path, "json-lines")


def documents(file):
    found, waiting = [], ""
    for piece in read_pieces(file):
        waiting += piece.text
        if piece.ends_document:
            found.append(waiting)
            waiting = ""
    assert not waiting, "a document without an end"
    return found


def problems(file):
    return [item for item in read_pieces(file) if isinstance(item, Problem)]


@settings(deadline=None, max_examples=40)
@given(text=TEXT | LONG)
def test_a_text_file_is_one_document_and_no_character_is_lost(text, tmp_path_factory):
    content = text.encode()
    file = text_file(tmp_path_factory.mktemp("text") / "a.txt", content)
    whole = content.decode("utf-8-sig")
    assert documents(file) == ([whole] if whole else [])
    assert all(0 < len(piece.text) <= PIECE for piece in read_pieces(file))


def test_a_character_across_two_reads_is_one_character(tmp_path):
    text = "x" * (READ_BYTES - 1) + "日" + "y" * 10
    assert documents(text_file(tmp_path / "a.txt", text.encode())) == [text]


def test_pieces_end_with_lines_where_they_can_and_before_spaces_else(tmp_path):
    lines = text_file(tmp_path / "lines", ("a line of a text\n" * 20_000).encode())
    words = text_file(tmp_path / "words", ("some words " * 20_000).encode())
    assert {piece.text[-1] for piece in read_pieces(lines)} == {"\n"}
    assert {piece.text[0] for piece in list(read_pieces(words))[1:]} == {" "}


def test_a_mark_of_byte_order_is_no_text(tmp_path):
    assert documents(text_file(tmp_path / "a", b"\xef\xbb\xbfword")) == ["word"]
    assert documents(lines_file(tmp_path / "b", b'\xef\xbb\xbf{"text": "word"}\n')) == ["word"]


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"good\xff\xfe", 4),
        (b"\xef\xbb\xbfgood\x80", 7),
        (b"ab\0", 2),
        ("é\0".encode(), 2),
        (b"x" * READ_BYTES + b"yz\xff", READ_BYTES + 2),
        (b"x" * (READ_BYTES - 1) + b"\xe6\x97", READ_BYTES - 1),
        (b"\x7fELF\x02\x01\x01\x00", 7),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(tmp_path, content, position):
    (problem,) = problems(text_file(tmp_path / "a.txt", content))
    assert f"at byte {position})" in problem.rule


def test_a_sparse_gigabyte_is_neither_held_nor_read_to_its_end(tmp_path):
    file = text_file(tmp_path / "a.txt", b"word " * 2_000_000)
    with open(file.path, "r+b") as stream:
        stream.truncate(2**30)
    tracemalloc.start()
    (problem,) = problems(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "at byte 10000000)" in problem.rule
    assert peak < 32 * 2**20


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(TEXT | LONG, max_size=4),
    escapes=st.lists(st.booleans(), min_size=4, max_size=4),
    end=st.sampled_from(["", "\n"]),
)
def test_each_line_with_text_is_one_document(texts, escapes, end, tmp_path_factory):
    lines = []
    for text, escaped in zip(texts, escapes, strict=False):
        lines += [json.dumps({"id": 1, "text": text}, ensure_ascii=escaped), *([""] if escaped else [])]
    file = lines_file(tmp_path_factory.mktemp("lines") / "a.jsonl", ("\n".join(lines) + end).encode())
    assert documents(file) == [text for text in texts if text]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"not json", "is not JSON"),
        (b"[1, 2]", "must be an object"),
        (b'{"content": "x"}', "must be an object"),
        (b'{"text": null}', "must be an object"),
        (b'{"text": "\xff"}', "is not UTF-8"),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b'{"text": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"text": ' + b"[" * 100_000, "nested"),
    ],
)
def test_a_wrong_line_is_named_and_the_next_ones_are_read(tmp_path, line, rule):
    file = lines_file(tmp_path / "a.jsonl", b'{"text": "a"}\n' + line + b'\n{"text": "b"}\n')
    first, problem, last = read_pieces(file)
    assert (first.text, last.text, problem.value) == ("a", "b", "line 2")
    assert rule in problem.rule


def test_a_huge_line_is_not_held(tmp_path):
    file = lines_file(tmp_path / "a.jsonl", b'{"text": "a"}\n{"text": "')
    with open(file.path, "r+b") as stream:
        stream.truncate(2**30)
    tracemalloc.start()
    (problem,) = problems(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem.value == "line 2"
    assert str(MAX_LINE_BYTES) in problem.rule
    assert peak < 3 * MAX_LINE_BYTES


def test_a_file_that_is_gone_is_a_problem_and_no_error(tmp_path):
    (problem,) = read_pieces(DataFile(tmp_path / "gone.txt", "text"))
    assert "No such file" in problem.rule
