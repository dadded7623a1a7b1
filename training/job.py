"""One training job: everything `lattemix-train train` does, and what it leaves behind."""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_store import LatteMixError
from model_store.latents import LATENTS
from model_store.latents import write as write_latents
from training import backbones
from training.backbones import Checkpoint
from training.cache import VectorCache
from training.card import FILE as CARD
from training.card import card
from training.commands import export_commands
from training.corpus import Corpus, prepare
from training.device import Workers
from training.evaluate import measure
from training.evaluate.report import MEAN, Report
from training.evaluate.sets import Pairs, read_file
from training.events import require_tensorboard
from training.export.build import check
from training.export.families import ExportError
from training.head import SPEC, STATISTICS_SENTENCES, Head
from training.meanings import meanings
from training.monitor import LOG, collapse, read_log
from training.pipeline import Encoded, make_head
from training.readers import STDIN, read
from training.recipe import Recipe
from training.report import verdict, write_report


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
    dev: Path | None = None
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
            with self._alone():
                self._clear()
                self._run(workers, tell)
        else:
            self._run(workers, tell=_silence)

    def _run(self, workers: Workers, tell: Callable[[str], None]) -> None:
        dev = read_file(self.dev) if self.dev else None  # first: it may be wrong
        with backbones.open_backbone(self.backbone) as checkpoint:
            backbone = backbones.load(checkpoint, self.recipe.max_tokens, self.recipe.layer)
            servable = self._is_servable(checkpoint, tell)
            corpus = self._prepare(workers)
            tell(f"{corpus.sentences:,} distinct sentences")
            encoded = Encoded(backbone, corpus, self.cache)
            encoded.ahead(self.recipe, workers, progress=workers.is_first)
            if workers.is_first:
                about = self.about or ", ".join(path.name for path in self.corpus)
                events = self._events if self.tensorboard else None
                head = make_head(encoded, self.recipe, about, self.state, dev=dev, events=events)
                results = self._results(head, encoded, dev) if dev else None
                self._finish(head, encoded, results)
                _tell_of_cuts(head, tell)
                _tell_of_collapse(head, tell)
                tell(f"Wrote the head to {self.out}.")
                if servable:
                    source = self.backbone if self.backbone != checkpoint.name else None
                    tell("Next:\n  " + "\n  ".join(export_commands(self.out, source)))
        workers.wait()

    def _is_servable(self, checkpoint: Checkpoint, tell: Callable[[str], None]) -> bool:
        try:
            check(checkpoint)
        except ExportError as error:
            tell(f"Note: this head can be evaluated, but not served. {error}")
            return False
        return self.recipe.model == "categorical"

    @property
    def state(self) -> Path:
        """Where a run keeps what it needs to be resumed."""
        return self.out / "run"

    @property
    def _events(self) -> Path:
        return self.out / "tensorboard"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep a second job out of `out`."""
        if self.out.exists() and not self.out.is_dir():
            raise LatteMixError(f"--out {self.out} is a file: a head is a directory.")
        self.out.mkdir(parents=True, exist_ok=True)
        lock = self.out / ".lock"
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LatteMixError(
                    f"Another run is writing into {self.out}: wait for it, or choose another --out."
                ) from None
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
                if not any(self.out.iterdir()):
                    self.out.rmdir()  # it failed before it began

    def _clear(self) -> None:
        if self.restart:
            for old in (self.state, self._events):
                shutil.rmtree(old, ignore_errors=True)
        elif (self.out / SPEC).exists():
            raise LatteMixError(
                f"{self.out} holds a finished head: choose another --out, or replace it with "
                "--restart."
            )

    def _prepare(self, workers: Workers) -> Corpus:
        directory = self.state / "corpus"
        if workers.is_first and not (STDIN in self.corpus and Corpus.open(directory)):
            sentences = read(self.corpus, self.columns)
            prepare(sentences, directory, self.recipe.max_sentences)
        workers.wait()
        corpus = Corpus.open(directory)
        assert corpus is not None
        return corpus

    def _results(self, head: Head, encoded: Encoded, dev: Pairs) -> Report:
        sample = encoded.corpus.head(STATISTICS_SENTENCES)
        measured = measure.Encoded(encoded.backbone, self.cache, [head], True, sample)
        return measure.measure([dev], [measured], head.spec.recommended_metric)

    def _finish(self, head: Head, encoded: Encoded, results: Report | None) -> None:
        """Leave everything in `out`; the head last, since where there is one a run is done."""
        for log in self.state.glob("*.jsonl"):
            shutil.copyfile(log, self.out / log.name)
        self._write_up(head, encoded, results)
        has_classes = head.spec.model == "categorical"
        latents = meanings(head, encoded, self.recipe) if has_classes else None
        (self.out / LATENTS).unlink(missing_ok=True)
        head.save(self.out)
        if latents is not None:
            write_latents(latents, str(Head.load(self.out).spec.sha256), self.out)
        shutil.rmtree(self.state)

    def _write_up(self, head: Head, encoded: Encoded, results: Report | None) -> None:
        """The card and the report."""
        licence = self.licence or "not stated"
        tables = results.tables()[:2] if results else []
        scores = "\n\n".join(table.markdown for table in tables)
        text = card(head, self.out.name, licence, scores)
        (self.out / CARD).write_text(text, encoding="utf-8")
        has_classes = head.spec.model == "categorical"
        usage = head.class_usage(encoded.sample(self.recipe)) if has_classes else None
        pooled = results.values(MEAN, results.sets[0].name)[0] if results else None
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
