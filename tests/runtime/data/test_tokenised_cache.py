import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import word_tokenizer

from meshwright.errors import InputError
from meshwright.runtime.data import tokenised_cache as module
from meshwright.runtime.data.corpus import open_corpus
from meshwright.runtime.data.encoders import ByteEncoder
from meshwright.runtime.data.hugging_face_tokenizer import load_encoder
from meshwright.runtime.data.input_files import find_files
from meshwright.runtime.data.tokenised_cache import tokenised

END = ByteEncoder.end_of_document
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=30)


def tokens(made):
    corpus = open_corpus(made.shards, [""] * len(made.shards))
    return corpus.read(0, corpus.tokens).tolist()


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@settings(deadline=None, max_examples=30)
@given(texts=st.lists(TEXT, min_size=1, max_size=5), lines=st.lists(TEXT, max_size=5))
def test_each_document_is_there_once_in_order_and_ended(texts, lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_bytes(text.encode())
    write_lines(folder / "z.jsonl", lines)
    made = tokenised(find_files([folder]), ByteEncoder(), 257, folder / "cache")
    documents = [text for text in [*texts, *lines] if text]
    assert tokens(made) == [token for text in documents for token in [*text.encode(), END]]
    assert (made.manifest.documents, made.manifest.tokens) == (len(documents), len(tokens(made)))


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("a b c a b c. " * 30)
    return path


def test_the_folder_depends_on_contents_and_encoder_alone(book, tmp_path):
    moved = tmp_path / "moved.txt"
    moved.write_bytes(book.read_bytes())
    word_tokenizer(tmp_path / "words", specials=("<unk>", "</s>"))
    words = load_encoder(tmp_path / "words")

    def folder(path, encoder, vocab=300):
        return tokenised(find_files([path]), encoder, vocab, tmp_path / "cache").folder

    first = folder(book, ByteEncoder())
    assert first == folder(moved, ByteEncoder(), 500)
    moved.write_text("another text")
    assert len({first, folder(moved, ByteEncoder()), folder(book, words), folder(book, None)}) == 4
    assert folder(book, None) != folder(book, None, 301)


def test_the_same_bytes_read_in_another_way_are_other_tokens(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "a.jsonl"]
    for path in paths:
        path.write_text('{"text": "word"}\n')
    made = [tokenised(find_files([path]), ByteEncoder(), 257, tmp_path / "cache") for path in paths]
    assert [made[0].manifest.tokens, made[1].manifest.tokens] == [18, 5]


def test_text_is_tokenised_once(book, tmp_path, monkeypatch):
    first = tokenised(find_files([book]), None, 300, tmp_path / "cache")
    monkeypatch.setattr(module, "read_pieces", lambda file: pytest.fail("read again"))
    assert tokenised(find_files([book]), None, 300, tmp_path / "cache") == first


def test_a_learnt_tokenizer_lies_beside_its_tokens(book, tmp_path):
    made = tokenised(find_files([book]), None, 300, tmp_path / "cache")
    encoder = load_encoder(made.tokenizer)
    assert encoder.end_of_document == made.manifest.end_of_document
    *ids, end = tokens(made)
    assert encoder.tokenizer.decode(ids) == book.read_text()
    assert end == encoder.end_of_document


def test_large_vocabularies_have_larger_numbers(book, tmp_path):
    words = [f"w{i}" for i in range(70_000)]
    word_tokenizer(tmp_path / "words", words=words, specials=("<unk>", "</s>"))
    book.write_text("w69999 w1")
    made = tokenised(find_files([book]), load_encoder(tmp_path / "words"), 2**17, tmp_path / "cache")
    assert tokens(made) == [70_001, 3, 1]


def test_a_document_of_many_pieces_ends_once(book, tmp_path):
    book.write_text("a b c. " * 40_000)
    made = tokenised(find_files([book]), ByteEncoder(), 257, tmp_path / "cache")
    assert bytes(tokens(made)[:-1]).decode() == book.read_text()
    assert tokens(made)[-1] == END


def test_all_that_is_wrong_in_all_files_is_said_and_nothing_kept(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff")
    (tmp_path / "b.txt").write_text("sound")
    (tmp_path / "c.jsonl").write_text('{"text": "a"}\nwrong\n{"text": 1}\n')
    for encoder in (ByteEncoder(), None):
        with pytest.raises(InputError) as caught:
            tokenised(find_files([tmp_path]), encoder, 300, tmp_path / "cache")
        assert len(caught.value.problems) == 3
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_problems_without_end_are_cut_short(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("wrong\n" * 1000)
    with pytest.raises(InputError) as caught:
        tokenised(find_files([path]), ByteEncoder(), 257, tmp_path / "cache")
    assert len(caught.value.problems) == module.MAX_PROBLEMS


@pytest.mark.parametrize("meddle", [lambda path: path.write_text("another text"), lambda path: path.unlink()])
def test_a_file_that_changes_while_it_is_read_is_refused(book, tmp_path, meddle):
    class Meddling(ByteEncoder):
        def encode(self, texts):
            meddle(book)
            return super().encode(texts)

    with pytest.raises(InputError, match="changed while it was read"):
        tokenised(find_files([book]), Meddling(), 257, tmp_path / "cache")


def test_a_damaged_cache_is_named(book, tmp_path):
    made = tokenised(find_files([book]), ByteEncoder(), 257, tmp_path / "cache")
    for text in ("", "{}", "[" * 10_000, '{"form": "other"}'):
        (made.folder / "manifest.json").write_text(text)
        with pytest.raises(InputError, match=r"is damaged.*remove the folder"):
            tokenised(find_files([book]), ByteEncoder(), 257, tmp_path / "cache")


def test_two_processes_that_start_together_get_the_same_tokens(book, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from meshwright.runtime.data.input_files import find_files\n"
        "from meshwright.runtime.data.tokenised_cache import tokenised\n"
        "made = tokenised(find_files([sys.argv[1]]), None, 300, Path(sys.argv[2]))\n"
        "print(made.folder.name, made.manifest)\n"
    )
    command = [sys.executable, "-c", code, str(book), str(tmp_path / "cache")]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (process.communicate()[0] for process in racing)
    assert first == second != ""
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1
