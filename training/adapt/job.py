"""An adaptation: encode, choose a capacity, check it on other pairs, write the head."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lattemix.build.adaptation import Adaptation
from lattemix.build.distill import open_origin
from lattemix.build.head import Head
from model_store import LatteMixError
from training import backbones
from training.adapt.examples import MAX_EXAMPLES, Examples, sample
from training.adapt.results import Results, before_after, losses, write_card
from training.adapt.selection import HeldOut, Selection, Trial, choose, margins
from training.backbones import Backbone
from training.cache import VectorCache
from training.evaluate import tables
from training.evaluate.scores import encode
from training.heads import with_probes
from training.output import export_commands, new_directory
from training.progress import progress_bar

Kind = Literal["ratings", "0/1 labels", "triplets"]
_KINDS: dict[str, Kind] = {"Spearman": "ratings", "AUC": "0/1 labels", "accuracy": "triplets"}


@dataclass(frozen=True)
class Adapt:
    """One `lattemix-train adapt`: a head adapted to examples, written to `out` if it got better."""

    out: Path
    head: Path
    examples: Examples
    dev: Mapping[str, Examples]  # other labelled pairs, to report on
    cache: VectorCache
    backbone: str | None = None
    seed: int = 0
    max_loss: float = 1.0  # points that may be lost on a dev set
    notes: Sequence[str] = ()

    def run(self, notify: Callable[[str], None]) -> None:
        """Adapt; raise `LatteMixError` and write nothing if held-out examples do not get better."""
        check_vacant(self.out)
        head = Head.load(self.head)
        if head.spec.model != "categorical":
            raise LatteMixError(
                f"{self.head} is of the {head.spec.model} model, which cannot be served: adapt a "
                "categorical head."
            )
        notes = [*self.notes]
        if len(self.examples) > MAX_EXAMPLES:
            notes.append(f"{MAX_EXAMPLES:,} of {len(self.examples):,} examples, chosen at random.")
            notify(f"Note: using {notes[-1]}")
        examples = sample(self.examples, MAX_EXAMPLES, self.seed)
        with open_origin(head.spec.backbone, self.backbone, notify) as checkpoint:
            backbone = backbones.load(checkpoint, head.spec.max_tokens, head.spec.backbone.layer)
            notify(f"Encoding {len(examples.sentences):,} sentences")
            tokens = encode(backbone, self.cache, examples.sentences)
            selection = Selection(head, examples, tokens, checkpoint.is_static, self.seed)
            trials = _try(selection)
            chosen = choose(trials)
            changed, dev = head, dict[str, HeldOut]()
            if chosen:
                changed = selection.learn(chosen.capacity).apply(head, tokens)
                dev = {name: self._compare(head, changed, backbone, name) for name in self.dev}
            results = Results(trials, chosen, dev, notes)
            tables.show(results)
            self._accept(results)
            assert chosen
            adaptation = self._adaptation(head, examples, chosen, dev)
            adapted = with_probes(_described(changed, adaptation), backbone)
            self._write(adapted, results)
            notify(f"Wrote the head to {self.out}.")
            notify("Next:\n  " + "\n  ".join(export_commands(self.out, self.backbone)))
            describe = ["lattemix-train", "describe", "--head", str(self.out), "--corpus", "FILE"]
            notify(f"To name its latent classes, run this before export:\n  {shlex.join(describe)}")

    def _compare(self, before: Head, after: Head, backbone: Backbone, name: str) -> HeldOut:
        """Both heads on a dev set."""
        dev = self.dev[name]
        tokens = encode(backbone, self.cache, dev.sentences)
        scores = (margins(head, dev, tokens) for head in (before, after))
        return HeldOut(dev.quality_name, dev.targets, *scores)

    def _accept(self, results: Results) -> None:
        """Raise `LatteMixError` if the head did not get better, or worse on a dev set."""
        if results.chosen is None:
            raise LatteMixError(
                "No adaptation is better on held-out examples than the head as it is, beyond noise "
                f"({len(self.examples):,} examples). Nothing was written: use the head unadapted, "
                "or label more."
            )
        if worse := losses(results.dev, self.max_loss):
            raise LatteMixError(
                f"The adapted head loses more than {self.max_loss:g} points on "
                f"{', '.join(worse)}. Nothing was written: add such pairs to the labels, or allow "
                "it with --max-loss."
            )

    def _adaptation(
        self, head: Head, examples: Examples, chosen: Trial, dev: Mapping[str, HeldOut]
    ) -> Adaptation:
        return Adaptation.model_validate(
            {
                "base": head.spec.sha256,
                "kind": _KINDS[examples.quality_name],
                "examples": len(examples),
                "learned": chosen.capacity.learned,
                "strength": chosen.capacity.strength,
                "seed": self.seed,
                "held_out": before_after(chosen.held_out),
                "dev": {name: before_after(held_out) for name, held_out in dev.items()},
            }
        )

    def _write(self, head: Head, results: Results) -> None:
        """Write head and card; a head appears in `out` only when it is complete."""
        with new_directory(self.out) as directory:
            write_card(directory, self.out.name, head.spec, results)
            head.save(directory)


def check_vacant(out: Path) -> None:
    """Reject an output directory that is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LatteMixError(f"{out} is not an empty directory: choose another --out.")


def _try(selection: Selection) -> list[Trial]:
    bar = progress_bar("Cross-validation", "folds", total=selection.folds)
    try:
        return selection.trials(lambda: bar.update(1))
    finally:
        bar.close()


def _described(head: Head, adaptation: Adaptation) -> Head:
    """The head with its adaptation on record, and without figures of the head it was."""
    spec = head.spec
    update: dict[str, object] = {
        "sha256": None,
        "adaptation": adaptation,
        "evaluation": {},
        "corpus": f"{spec.corpus}; adapted to {adaptation.examples:,} labelled examples",
    }
    if adaptation.learned == "encoder and tokens":
        update["token_weighting"] = "learned"
    return Head(spec.model_copy(update=update), head.tensors)
