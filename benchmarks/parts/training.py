"""Training on token vectors that are encoded once, beside running the backbone at every step.

Both do the same steps of the default recipe on the same sentences. torch is imported where it is
used, in a process of its own.
"""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import Worker
from benchmarks.report import Table, beside, cell
from benchmarks.rounds import Figures, Series, play
from benchmarks.stage import Plan, Stage
from benchmarks.texts import sentences

STEPS = 32
ONCE, EVERY_STEP = "encoded once", "backbone every step"


class Trainer:
    """Makes some steps, with batches of either kind."""

    def __init__(self, source: str) -> None:
        from lattemix.build.backbones import open_backbone
        from training.backbones import load
        from training.cache import VectorCache
        from training.corpus import prepare
        from training.encoding import EncodedCorpus
        from training.recipe import RECIPES, Recipe

        self._recipe = Recipe.load(RECIPES / "default.toml")
        self._folder = tempfile.TemporaryDirectory()  # as long as this
        place = Path(self._folder.name)
        with open_backbone(source) as checkpoint:
            self._backbone = load(checkpoint, self._recipe.max_tokens)
        corpus = prepare(sentences(0), place / "corpus")
        self._texts = corpus.shard(0)
        encoded = EncodedCorpus(self._backbone, corpus, VectorCache(place / "cache"))
        self._cached = encoded.batches(self._recipe)
        self._cached(0)  # encodes the corpus

    def __call__(self, way: str) -> float:
        """Tokens per second."""
        from training.trainer import train

        tokens = 0

        def counted(step: int) -> Any:
            nonlocal tokens
            batch = self._batch(way, step)
            tokens += len(batch)
            return batch

        start = time.perf_counter()
        train(counted, self._backbone.hidden_size, self._recipe, STEPS, progress=False)
        return tokens / (time.perf_counter() - start)

    def _batch(self, way: str, step: int) -> Any:
        import torch

        if way == ONCE:
            return torch.from_numpy(self._cached(step).vectors.astype("float32"))
        size = self._recipe.batch_sentences
        start = step * size % len(self._texts)
        return torch.from_numpy(self._backbone.encode(self._texts[start : start + size]).vectors)


def run(plan: Plan, stage: Stage) -> Series:
    """Both ways, in turns."""
    trainer = Worker(Trainer, str(stage.backbone()))
    try:
        turns = {f"training/{way}": partial(_turn, trainer, way) for way in (ONCE, EVERY_STEP)}
        return play(turns, plan.fewer(), plan.tell)
    finally:
        trainer.close()


def _turn(trainer: Worker, way: str, number: int) -> Figures:
    return {"tokens a second": trainer(way)}


def tables(series: Series) -> list[Table]:
    """One."""
    bottom = f"training/{EVERY_STEP}/tokens a second"
    rows = [
        [way, cell(series, f"training/{way}/tokens a second"), beside(series, key, bottom, ".1f")]
        for way in (ONCE, EVERY_STEP)
        for key in (f"training/{way}/tokens a second",)
    ]
    return [Table("Training", ["", "tokens/s", f"beside {EVERY_STEP}"], rows)]
