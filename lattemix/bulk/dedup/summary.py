"""The summary of a run."""

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import BaseModel

from lattemix.bulk.dedup.groups import Linkage
from lattemix.bulk.dedup.options import Options, Resolved
from lattemix.bulk.dedup.outcome import Outcome
from lattemix.bulk.dedup.pairs import Floats, Ids, Pairs
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.dedup.task import Scorer
from lattemix.bulk.dedup.vectors import Problem

_BORDERLINE = 10  # pairs on each side of the threshold
_QUOTED = 300  # characters


class Borderline(BaseModel):
    """A pair whose score is near the threshold."""

    score: float
    text: str
    other: str


class Summary(BaseModel):
    """What a run did. It has no times or absolute paths: equal runs have equal summaries."""

    candidates_by: Scorer
    rescored_by: Scorer | None
    threshold: float  # a score
    floor: float
    keep: str
    linkage: Linkage
    rows: int
    kept: int
    identical: int  # dropped rows with the text of another
    similar: int  # dropped rows that are similar to a kept one
    not_compared: int  # rows that were kept because the model rejects their text
    first_not_compared: str
    truncated: int  # texts
    candidates: int  # pairs
    not_rescored: int  # pairs that count as different: the second model rejects a text
    first_not_rescored: str
    group_sizes: dict[int, int]  # number of groups by their number of rows, from 2
    scores: dict[str, int]  # number of candidate pairs by score, rounded down to hundredths
    least_similar_duplicates: list[Borderline]
    most_similar_others: list[Borderline]


def summarize(
    outcome: Outcome,
    options: Options,
    resolved: Resolved,
    first_input: int,
    names: Sequence[str],
) -> Summary:
    """Count what became of rows.

    Args:
        outcome: of the run.
        options: of the run.
        resolved: what follows from the options.
        first_input: number of rows to compare against, which are not counted.
        names: of all files.
    """
    rows, grouping, decided = outcome
    keeper, kept = decided.keeper[first_input:], decided.kept[first_input:]
    text = rows.text[first_input:]
    identical = ~kept & (rows.text[keeper] == text)
    rejected = ~grouping.comparable[text]
    shards, ranges = grouping.shards, grouping.ranges
    threshold = resolved.threshold
    return Summary(
        candidates_by=resolved.task.candidates,
        rescored_by=resolved.comparison.rescorer,
        threshold=threshold,
        floor=resolved.comparison.floor,
        keep=options.keep,
        linkage=options.linkage,
        rows=len(text),
        kept=int(kept.sum()),
        identical=int(identical.sum()),
        similar=int((~kept & ~identical).sum()),
        not_compared=int(rejected.sum()),
        first_not_compared=(
            _first((shard.first_problem for shard in shards), rows, names) if rejected.any() else ""
        ),
        truncated=sum(shard.truncated for shard in shards),
        candidates=len(grouping.pairs),
        not_rescored=sum(part.unscored for part in ranges),
        first_not_rescored=_first((part.first_problem for part in ranges), rows, names),
        group_sizes=_group_sizes(decided.keeper),
        scores=_score_counts(grouping.pairs.scores),
        least_similar_duplicates=_borderline(rows, grouping.pairs, threshold, above=True),
        most_similar_others=_borderline(rows, grouping.pairs, threshold, above=False),
    )


def _first(problems: Iterable[Problem | None], rows: Rows, names: Sequence[str]) -> str:
    """Describe the first problem, if there is any."""
    problem = min(filter(None, problems), key=lambda problem: problem.text, default=None)
    if problem is None:
        return ""
    file, row = rows.locate(int(rows.first[problem.text]))
    return f"{names[file]}, row {row:,}: {problem.reason}"


def _group_sizes(keeper: Ids) -> dict[int, int]:
    sizes = np.unique(keeper, return_counts=True)[1]
    counts = np.unique(sizes[sizes > 1], return_counts=True)
    return dict(zip(*(column.tolist() for column in counts), strict=True))


def _score_counts(scores: Floats) -> dict[str, int]:
    # A float32 may be slightly below the hundredth that it stands for.
    rounded = np.floor(scores * 100 + 1e-4).clip(max=99)  # a score of 1 is counted with 0.99
    hundredths, counts = np.unique(rounded, return_counts=True)
    return {f"{h / 100:.2f}": int(n) for h, n in zip(hundredths, counts, strict=True)}


def _borderline(rows: Rows, pairs: Pairs, threshold: float, *, above: bool) -> list[Borderline]:
    """Return the pairs whose scores are nearest to the threshold on one side."""
    near = pairs.where((pairs.scores >= threshold) == above)
    chosen = np.lexsort((near.right, near.left, np.abs(near.scores - threshold)))[:_BORDERLINE]
    texts = (rows.texts(ids[chosen]) for ids in (near.left, near.right))
    return [
        Borderline(score=round(score, 4), text=_quote(text), other=_quote(other))
        for score, text, other in zip(near.scores[chosen].tolist(), *texts, strict=True)
    ]


def _quote(text: str) -> str:
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"
