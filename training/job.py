"""One training job: everything `lattemix-train train` does, and what it leaves behind."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones import Checkpoint
from lattemix.build.build import check as check_exportable
from lattemix.build.families import ExportError
from lattemix.build.head import SPEC, STATISTICS_SENTENCES, Head
from model_store import LatteMixError
from model_store.latents import LATENTS
from model_store.latents import write as write_latents
from training import backbones
from training.cache import VectorCache
from training.commands import export_commands
from training.corpus import Corpus, prepare
from training.device import Workers
from training.evaluate.report import MEAN_POOLING, Report
from training.evaluate.scorers import BackboneScorer, evaluate
from training.evaluate.sets import Pairs
from training.interrupt import ignore_signals
from training.meanings import meanings
from training.monitor import LOG, collapse, read_log, require_tensorboard
from training.output import STATE, exclusive, saved_step
from training.pipeline import Encoded, make_head
from training.readers import STDIN, read
from training.recipe import Recipe
from training.report import verdict, write_card, write_report
from training.weighting import check_learnable


@dataclass(frozen=True)
class Job:
    """What to train, on what, and where to."""

    out: Path
    backbone: str
    corpus: Sequence[Path]
    recipe: Recipe
    cache: VectorCache
    columns: Sequence[str] = ()
    about: str | None = None
    licence: str | None = None
    dev: Pairs | None = None
    restart: bool = False
    tensorboard: bool = False

    def run(self, tell: Callable[[str], None]) -> None:
        """Train the head and write it, its card, its log and its report into `out`.

        While it runs, `out/run` holds the prepared corpus and the checkpoint; the same job, begun
        again, goes on from there.
        """
        if self.tensorboard:
            require_tensorboard()
        workers = Workers.join()
        if workers.is_first:
            with exclusive(self.out):
                self._clear()
                with self._state_discarded():
                    self._run(workers, tell)
        else:
            self._run(workers, tell=_silence)

    def _run(self, workers: Workers, tell: Callable[[str], None]) -> None:
        tell(f"Opening the backbone {self.backbone}")
        with backbones.open_backbone(self.backbone) as checkpoint:
            # The weights last: they take longest, and everything else may be wrong.
            servable = self._check(checkpoint, tell)
            corpus = self._prepare(workers)
            tell(f"{corpus.sentences:,} distinct sentences")
            backbone = backbones.load(checkpoint, self.recipe.max_tokens, self.recipe.layer)
            encoded = Encoded(backbone, corpus, self.cache)
            encoded.ahead(self.recipe, workers, progress=workers.is_first)
            if workers.is_first:
                self._train(encoded, tell)
                if servable:
                    source = self.backbone if self.backbone != checkpoint.name else None
                    tell("Next:\n  " + "\n  ".join(export_commands(self.out, source)))
        workers.wait()

    def _train(self, encoded: Encoded, tell: Callable[[str], None]) -> None:
        about = self.about or ", ".join(path.name for path in self.corpus)
        events = self._events if self.tensorboard else None
        head = make_head(encoded, self.recipe, about, self.state, dev=self.dev, events=events)
        results = self._results(head, encoded, self.dev) if self.dev else None
        self._finish(head, encoded, results)
        _tell_of_cuts(head, tell)
        _tell_of_collapse(head, tell)
        tell(f"Wrote the head to {self.out}.")

    def _check(self, checkpoint: Checkpoint, tell: Callable[[str], None]) -> bool:
        """Refuse what the backbone's config shows to be wrong; return whether it can be served."""
        backbones.check(checkpoint, self.recipe.max_tokens, self.recipe.layer)
        if self.recipe.token_weighting == "learned":
            check_learnable(checkpoint)
        try:
            check_exportable(checkpoint)
        except ExportError as error:
            tell(f"Note: this head can be evaluated, but not served. {error}")
            return False
        return self.recipe.model == "categorical"

    @property
    def state(self) -> Path:
        """Where a run keeps what it needs to be resumed."""
        return self.out / STATE

    @property
    def _events(self) -> Path:
        return self.out / "tensorboard"

    @contextmanager
    def _state_discarded(self) -> Iterator[None]:
        """Remove the state of a run that fails before its first checkpoint."""
        try:
            yield
        except BaseException:
            if saved_step(self.out) is None:
                shutil.rmtree(self.state, ignore_errors=True)
            raise

    def _clear(self) -> None:
        if self.restart:
            for old in (self.state, self._events):
                shutil.rmtree(old, ignore_errors=True)
        elif (self.out / SPEC).exists() and saved_step(self.out) is None:
            raise LatteMixError(
                f"{self.out} holds a finished head: choose another --out, or replace it with "
                "--restart."
            )

    def _prepare(self, workers: Workers) -> Corpus:
        directory = self.state / "corpus"
        # Standard input cannot be read again when a run is resumed.
        kept = STDIN in self.corpus and saved_step(self.out) is not None
        if workers.is_first and not (kept and Corpus.open(directory)):
            sentences = read(self.corpus, self.columns)
            prepare(sentences, directory, self.recipe.max_sentences)
        workers.wait()
        corpus = Corpus.open(directory)
        assert corpus is not None
        return corpus

    def _results(self, head: Head, encoded: Encoded, dev: Pairs) -> Report:
        sample = encoded.corpus.head(STATISTICS_SENTENCES)
        scorer = BackboneScorer(encoded.backbone, self.cache, [head], True, sample)
        return evaluate([dev], [scorer], head.spec.recommended_metric)

    def _finish(self, head: Head, encoded: Encoded, results: Report | None) -> None:
        """Leave everything in `out`; the head last, since where there is one a run is done."""
        for log in self.state.glob("*.jsonl"):
            shutil.copyfile(log, self.out / log.name)
        self._write_up(head, encoded, results)
        has_classes = head.spec.model == "categorical"
        latents = meanings(head, encoded, self.recipe) if has_classes else None
        ignore_signals()  # a moment before it is complete, a run is not worth interrupting
        (self.out / LATENTS).unlink(missing_ok=True)
        head.save(self.out)
        if latents is not None:
            write_latents(latents, str(Head.load(self.out).spec.sha256), self.out)
        shutil.rmtree(self.state)

    def _write_up(self, head: Head, encoded: Encoded, results: Report | None) -> None:
        """The card and the report."""
        licence = self.licence or "not stated"
        tables = results.tables()[:2] if results else []
        write_card(self.out, head, licence, tables)
        has_classes = head.spec.model == "categorical"
        usage = head.class_usage(encoded.sample(self.recipe)) if has_classes else None
        pooled = results.values(MEAN_POOLING, results.sets[0].name)[0] if results else None
        log = read_log(self.out / LOG)
        write_report(self.out, head, licence, log, usage, tables, pooled)


def _silence(message: str) -> None:
    pass


def _tell_of_cuts(head: Head, tell: Callable[[str], None]) -> None:
    if share := head.spec.training["sentences_cut"]:
        tell(
            f"Note: {share:.1%} of the sentences are longer than max_tokens ({head.spec.max_tokens}"
            ") and were cut."
        )


def _tell_of_collapse(head: Head, tell: Callable[[str], None]) -> None:
    if collapse(head.spec.training, head.spec.latent_dims):
        tell(verdict(head.spec))
