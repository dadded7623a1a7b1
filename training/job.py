"""One training job: everything `lattemix-train train` does, and what it leaves behind."""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_store import LatteMixError
from model_store.latents import Latents
from model_store.latents import write as write_latents
from training import backbones
from training.cache import VectorCache
from training.card import FILE as CARD
from training.card import card
from training.corpus import Corpus, prepare
from training.device import Workers
from training.evaluate import measure
from training.evaluate.sets import Pairs, read_file
from training.export.build import check
from training.export.families import ExportError
from training.head import SPEC, STATISTICS_SENTENCES, Head
from training.meanings import meanings
from training.pipeline import Encoded, make_head
from training.readers import STDIN, read
from training.recipe import Recipe


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

    def run(self, tell: Callable[[str], None]) -> None:
        """Train the head and write it, its card and its log into `out`.

        While it runs, `out/run` holds the prepared corpus and the checkpoint; the same job, begun
        again, goes on from there.
        """
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
            try:
                check(checkpoint)
            except ExportError as error:
                tell(f"Note: this head can be evaluated, but not served. {error}")
            corpus = self._prepare(workers)
            tell(f"{corpus.sentences:,} distinct sentences")
            encoded = Encoded(backbone, corpus, self.cache)
            encoded.ahead(self.recipe, workers, progress=workers.is_first)
            if workers.is_first:
                about = self.about or ", ".join(path.name for path in self.corpus)
                head = make_head(encoded, self.recipe, about, self.state)
                served = head.spec.model == "categorical"
                latents = meanings(head, encoded, self.recipe) if served else None
                results = self._results(head, encoded, dev) if dev else None
                self._finish(head, latents, results)
                _tell_of_cuts(head, tell)
                tell(f"Wrote the head to {self.out}.")
        workers.wait()

    @property
    def state(self) -> Path:
        """Where a run keeps what it needs to be resumed."""
        return self.out / "run"

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
            shutil.rmtree(self.state, ignore_errors=True)
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

    def _results(self, head: Head, encoded: Encoded, dev: Pairs) -> str:
        sample = encoded.corpus.head(STATISTICS_SENTENCES)
        measured = measure.Encoded(encoded.backbone, self.cache, [head], True, sample)
        report = measure.measure([dev], [measured], head.spec.recommended_metric)
        return "\n\n".join(table.markdown for table in report.tables()[:2])

    def _finish(self, head: Head, latents: Latents | None, results: str | None) -> None:
        if latents is not None:
            write_latents(latents, self.out)
        head.save(self.out)
        text = card(Head.load(self.out), self.out.name, self.licence or "not stated", results)
        (self.out / CARD).write_text(text, encoding="utf-8")
        for log in self.state.glob("*.jsonl"):
            log.replace(self.out / log.name)
        shutil.rmtree(self.state)


def _silence(message: str) -> None:
    pass


def _tell_of_cuts(head: Head, tell: Callable[[str], None]) -> None:
    if share := head.spec.training["sentences_cut"]:
        tell(
            f"Note: {share:.1%} of the sentences are longer than max_tokens ({head.spec.max_tokens}"
            ") and were cut."
        )
