"""A vocabulary that is spread over the pipeline's ranks: S and T in the lists of any schedule.

Every rank holds 1/P of the tables of embedding and head, and does 1/P of the head's work for every micro-batch: pass S
once the last stage's output has come, pass T behind it, with exchanges between all ranks (Yeung et al., arXiv
2411.05288). ``FORMS`` is the table that documentation and contract tests read; its names are the paper's, whose
Vocab-1 has two barriers and Vocab-2 one. The alternatives, embedding and head at the ends of the pipeline with layers
evenly or otherwise, are in ``ends.py``; ``comparison.py`` plays all of them.

Ignored: the embedding's lookup, which each rank does for its rows before the first stage's forward pass, and the
gradient of its rows behind the first stage's backward pass: both move bytes and multiply nothing.
"""

from meshwright.schedule.vocabulary.forms import VocabularyForm
from meshwright.schedule.vocabulary.interlaced import interlaced
from meshwright.schedule.vocabulary.spread import spread

FORMS: dict[str, VocabularyForm] = {
    "vocab-1": VocabularyForm(
        make=spread, barriers=2, summary="beside other passes, with two barriers and two micro-batches more"
    ),
    "vocab-2": VocabularyForm(
        make=spread, barriers=1, summary="beside other passes, with one barrier and one micro-batch more"
    ),
    "interlaced": VocabularyForm(
        make=interlaced, barriers=2, summary="on all ranks at once, with half as many micro-batches more"
    ),
}
