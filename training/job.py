"""A training job: prepare the corpus, encode it, train a head, write the results."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lattemix.build.backbones import Checkpoint, open_backbone
from lattemix.build.distill import distilled
from lattemix.build.families import ExportError
from lattemix.build.head import (
    SPEC,
    STATISTICS_SENTENCES,
    Floats,
    Head,
)
from lattemix.build.network import check_exportable
from model_store import LatteMixError
from model_store.latents import LATENTS
from model_store.latents import write as write_latents
from training import backbones, weighting
from training.cache import VectorCache
from training.corpus import Corpus, prepare
from training.device import Workers
from training.encoding import EncodedCorpus
from training.evaluate.report import MEAN_POOLING, Report
from training.evaluate.scorers import BackboneScorer, evaluate
from training.evaluate.sets import Pairs
from training.exclusion import Exclusion
from training.heads import make_head, untrained_head
from training.interrupt import ignore_signals
from training.meanings import meanings
from training.monitor import LOG, collapse, read_log, require_tensorboard
from training.output import STATE, exclusive, export_commands, saved_step
from training.readers import STDIN, read
from training.recipe import Recipe
from training.report import exclusion_note, verdict, write_card, write_report
from training.teacher import Teacher, open_teacher


@dataclass(frozen=True)
class Job:
    """One `lattemix-train train`: a head, its card, its log and its report, written to `out`.

    `out/run` holds the prepared corpus and the checkpoint until the job is complete. The same job
    started again resumes from there.
    """

    out: Path
    backbone: str
    corpus: Sequence[Path]
    recipe: Recipe
    cache: VectorCache
    columns: Sequence[str] = ()
    exclusion: Exclusion | None = None
    about: str | None = None
    licence: str | None = None
    dev: Pairs | None = None
    restart: bool = False
    tensorboard: bool = False

    def run(self, notify: Callable[[str], None]) -> None:
        """Run the job; under torchrun every process encodes, and the first one trains."""
        if self.recipe.steps == 0:
            raise LatteMixError("steps is 0: `lattemix-train init` writes an untrained head.")
        if self.tensorboard:
            require_tensorboard()
        workers = Workers.join()
        if not workers.is_first:
            self._run(workers, notify=lambda message: None)
            return
        with exclusive(self.out):
            self._clear()
            try:
                self._run(workers, notify)
            except BaseException:
                if saved_step(self.out) is None:  # nothing to resume
                    shutil.rmtree(self._state, ignore_errors=True)
                raise

    def _run(self, workers: Workers, notify: Callable[[str], None]) -> None:
        notify(f"Opening the backbone {self.backbone}")
        with self._open_backbone(notify) as checkpoint:
            servable = self._check(checkpoint, notify)
            corpus = self._prepare(workers)
            notify(f"{corpus.sentences:,} distinct sentences")
            if self.exclusion is not None:
                notify(exclusion_note(corpus.excluded))
            # The weights last: they load slowest, and anything above may fail.
            backbone = backbones.load(checkpoint, self.recipe.max_tokens, self.recipe.layer)
            encoded = EncodedCorpus(backbone, corpus, self.cache)
            if not (checkpoint.is_static and self.recipe.teacher):  # a table needs no encoding
                encoded.prefetch(self.recipe, workers)
            if workers.is_first:
                self._train(encoded, notify)
                if servable:
                    source = self.backbone if self.backbone != checkpoint.name else None
                    notify("Next:\n  " + "\n  ".join(export_commands(self.out, source)))
        workers.wait()

    @contextmanager
    def _open_backbone(self, notify: Callable[[str], None]) -> Iterator[Checkpoint]:
        """The backbone, distilled if the recipe has a template."""
        layer, template = self.recipe.layer, self.recipe.template
        with open_backbone(self.backbone) as checkpoint:
            if template is None:
                yield checkpoint
            else:
                with distilled(checkpoint, layer, template, notify) as table:
                    yield table

    @property
    def _state(self) -> Path:
        return self.out / STATE

    @property
    def _events(self) -> Path:
        return self.out / "tensorboard"

    def _clear(self) -> None:
        if self.restart:
            for old in (self._state, self._events):
                shutil.rmtree(old, ignore_errors=True)
        elif saved_step(self.out) is None:
            _check_vacant(self.out, ", or replace it with --restart")

    def _check(self, checkpoint: Checkpoint, notify: Callable[[str], None]) -> bool:
        """Reject a backbone that cannot be trained on; return whether the head can be served."""
        backbones.check(checkpoint, self.recipe.max_tokens, self.recipe.layer)
        if self.recipe.token_weighting == "learned":
            weighting.check_learnable(checkpoint)
        try:
            check_exportable(checkpoint)
        except ExportError as error:
            notify(f"Note: this head can be evaluated, but not served. {error}")
            return False
        return self.recipe.model == "categorical"

    def _prepare(self, workers: Workers) -> Corpus:
        directory = self._state / "corpus"
        # Standard input cannot be read again when a run is resumed.
        reuse = STDIN in self.corpus and saved_step(self.out) is not None
        if workers.is_first and not (reuse and Corpus.open(directory)):
            sentences = read(self.corpus, self.columns)
            prepare(sentences, directory, self.recipe.max_sentences, self.exclusion)
        workers.wait()
        corpus = Corpus.open(directory)
        assert corpus is not None
        # A reused corpus may have been made with another exclusion, which the checkpoint rejects.
        exclusion_sha256 = self.exclusion.sha256 if self.exclusion else None
        return replace(corpus, exclusion_sha256=exclusion_sha256)

    def _train(self, encoded: EncodedCorpus, notify: Callable[[str], None]) -> None:
        about = self.about or ", ".join(path.name for path in self.corpus)
        events = self._events if self.tensorboard else None
        with self._open_teacher(notify) as teacher:
            head = make_head(
                encoded,
                self.recipe,
                about,
                self._state,
                dev=self.dev,
                events=events,
                teacher=teacher,
            )
        self._write(head, encoded)
        if share := head.spec.training["sentences_cut"]:
            notify(
                f"Note: {share:.1%} of the sentences are longer than max_tokens "
                f"({head.spec.max_tokens}) and were truncated."
            )
        if collapse(head.spec.training, head.spec.latent_dims):
            notify(verdict(head.spec))
        notify(f"Wrote the head to {self.out}.")

    @contextmanager
    def _open_teacher(self, notify: Callable[[str], None]) -> Iterator[Teacher | None]:
        reference = self.recipe.teacher
        if reference is None:
            yield None
            return
        notify(f"Opening the teacher {reference}")
        with open_teacher(reference, self.corpus, self.columns) as teacher:
            yield teacher

    def _write(self, head: Head, encoded: EncodedCorpus) -> None:
        """Write everything to `out`; the head last, since its presence marks a complete run."""
        for log in self._state.glob("*.jsonl"):
            shutil.copyfile(log, self.out / log.name)
        has_classes = head.spec.model == "categorical"
        usage = head.class_usage(encoded.sample(self.recipe)) if has_classes else None
        self._write_report(head, usage, self._evaluate(head, encoded, self.dev))
        latents = meanings(head, encoded, self.recipe) if has_classes else None
        ignore_signals()  # the rest takes less than a second
        (self.out / LATENTS).unlink(missing_ok=True)
        head.save(self.out)
        if latents is not None:
            write_latents(latents, str(Head.load(self.out).spec.sha256), self.out)
        shutil.rmtree(self._state)

    def _evaluate(self, head: Head, encoded: EncodedCorpus, dev: Pairs | None) -> Report | None:
        if dev is None:
            return None
        sample = encoded.corpus.first(STATISTICS_SENTENCES)
        scorer = BackboneScorer(encoded.backbone, self.cache, [head], True, sample)
        return evaluate([dev], [scorer], head.spec.recommended_metric)

    def _write_report(self, head: Head, usage: Floats | None, results: Report | None) -> None:
        """Write the card and the report."""
        licence = self.licence or "not stated"
        tables = results.tables()[:2] if results else []
        write_card(self.out, head, licence, tables)
        pooled = results.values(MEAN_POOLING, results.sets[0].name)[0] if results else None
        log = read_log(self.out / LOG)
        write_report(self.out, head, licence, log, usage, tables, pooled)


def initialise(out: Path, source: str, recipe: Recipe, notify: Callable[[str], None]) -> None:
    """`lattemix-train init`: write an untrained head of a backbone to `out`."""
    _check_vacant(out)
    with open_backbone(source) as checkpoint:
        backbone = backbones.load(checkpoint, recipe.max_tokens, recipe.layer)
        untrained_head(backbone, recipe).save(out)
        notify(f"Wrote the head to {out}.")
        named = source if source != checkpoint.name else None
        notify("Next:\n  " + "\n  ".join(export_commands(out, named)))


def _check_vacant(out: Path, remedy: str = "") -> None:
    if (out / SPEC).exists():
        raise LatteMixError(f"{out} holds a finished head: choose another --out{remedy}.")
