"""Sentences that evaluation sets share with a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from training.evaluate.sets import Pairs
from training.evaluate.tables import Record, Table
from training.exclusion import Exclusion


def without(pairs: Pairs, exclusion: Exclusion, notes: list[str]) -> Pairs:
    """The pairs of which neither sentence is in `exclusion`; add a note on the others."""
    kept = [i for i, shared in enumerate(_shared(pairs, exclusion)) if not shared]
    if len(kept) == len(pairs):
        return pairs
    dropped = len(pairs) - len(kept)
    notes.append(f"{pairs.name}: {dropped:,} of {len(pairs):,} pairs have an excluded sentence.")
    return Pairs(
        pairs.name,
        [pairs.a[i] for i in kept],
        [pairs.b[i] for i in kept],
        [pairs.gold[i] for i in kept],
        [pairs.subsets[i] for i in kept],
    )


@dataclass(frozen=True)
class Overlap:
    """How much of each evaluation set occurs in a corpus."""

    sets: Sequence[Pairs]
    corpus: Exclusion
    left_out: list[str] = field(default_factory=list)

    def records(self) -> list[Record]:
        """Sentences and pairs of each set, and how many of them occur in the corpus."""
        return [self._record(pairs) for pairs in self.sets]

    def tables(self) -> list[Table]:
        """One row per set."""
        columns = ["sentences", "in the corpus", "pairs", "with a sentence in the corpus"]
        rows = []
        for record in self.records():
            name, *counts = record.values()
            rows.append([str(name), *(f"{count:,}" for count in counts)])
        return [Table("Overlap with the corpus", columns, rows)]

    def _record(self, pairs: Pairs) -> Record:
        sentences = pairs.sentences
        return {
            "set": pairs.name,
            "sentences": len(sentences),
            "shared_sentences": sum(text in self.corpus for text in sentences),
            "pairs": len(pairs),
            "shared_pairs": sum(_shared(pairs, self.corpus)),
        }


def _shared(pairs: Pairs, corpus: Exclusion) -> list[bool]:
    return [a in corpus or b in corpus for a, b in zip(pairs.a, pairs.b, strict=True)]
