"""Questions of capacity planning: answers, simulated trainings, published trainings and wrong questions.

    python benchmarks/capacity.py                  prints the page; about 20 minutes of CPU time
    python benchmarks/capacity.py --write          also writes benchmarks/capacity.md and benchmarks/capacity.json
    python benchmarks/capacity.py --only KEY ...   asks only these questions and prints their part of the page

The questions are in ``benchmarks/capacity/questions.yaml``, and what is published in ``published.yaml`` beside it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from capacity_page.bad_inputs import bad_input_rows
from capacity_page.page import page_of
from capacity_page.published import published_rows
from capacity_page.question import Question, read_questions
from capacity_page.question_part import question_part
from capacity_page.record import recorded
from capacity_page.simulation import COUNT

from meshwright import __version__

HERE = Path(__file__).parent
PAGE, RECORD = HERE / "capacity.md", HERE / "capacity.json"


def record(questions: Sequence[Question]) -> dict[str, Any]:
    """Return all that the page shows."""
    began = time.process_time()
    found = {
        "version": __version__,
        "date": date.today().isoformat(),
        "trainings": COUNT,
        "questions": list(_answered(questions)),
        "published": published_rows(),
        "bad_inputs": bad_input_rows(),
    }
    return found | {"minutes": (time.process_time() - began) / 60}


def _answered(questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    for question in questions:
        began = time.process_time()
        yield recorded(question)
        print(f"{question.key}: {time.process_time() - began:.0f} s", file=sys.stderr, flush=True)


def text_of(paragraphs: Iterator[str]) -> str:
    """Return a page of paragraphs."""
    return "\n\n".join(paragraphs) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the page, and write it where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="KEY")
    options = parser.parse_args(arguments)
    questions = read_questions()
    if options.only:
        some = [question for question in questions if question.key in options.only]
        for found in _answered(some):
            print(text_of(question_part(found)))
        return
    found = record(questions)
    text = text_of(page_of(found))
    print(text)
    if options.write:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
