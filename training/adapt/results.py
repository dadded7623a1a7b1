"""What an adaptation is worth: a table for people, a record in the head, and a model card."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.adaptation import Adaptation, BeforeAfter
from lattemix.build.head import HeadSpec
from training.adapt.selection import HeldOut, Trial
from training.evaluate.tables import Record, Table
from training.report import CARD

_COLUMNS = ("figure", "pairs", "before", "after", "gain", "95 % interval")


@dataclass(frozen=True)
class Results:
    """Figures before and after, on held-out examples and on other pairs."""

    trials: list[Trial]
    chosen: Trial | None
    dev: Mapping[str, HeldOut]
    left_out: list[str]

    def tables(self) -> list[Table]:
        """Figures of the chosen capacity, then the held-out figures of every capacity."""
        rows = [["held out", *_cells(self.chosen.held_out)]] if self.chosen else []
        rows += [[name, *_cells(held_out)] for name, held_out in self.dev.items()]
        capacities = [[str(trial.capacity), *_cells(trial.held_out)] for trial in self.trials]
        tables = [Table("Capacities, on held-out examples", _COLUMNS, capacities)]
        if self.chosen:
            title = f"Chosen: {self.chosen.capacity}"
            tables.insert(0, Table(title, _COLUMNS, rows))
        return tables

    def records(self) -> list[Record]:
        """One record per figure."""
        figures = {str(trial.capacity): trial.held_out for trial in self.trials} | dict(self.dev)
        return [{"name": name, **before_after(h).model_dump()} for name, h in figures.items()]


def _cells(held_out: HeldOut) -> list[str]:
    before, after = held_out.figures
    low, high = held_out.gain_interval
    gain = [f"{held_out.gain:+.2f}", f"[{low:.2f}, {high:.2f}]"]
    return [held_out.name, f"{len(held_out.targets):,}", f"{before:.2f}", f"{after:.2f}", *gain]


def before_after(held_out: HeldOut) -> BeforeAfter:
    """The figures as a head records them."""
    before, after = held_out.figures
    low, high = held_out.gain_interval
    return BeforeAfter(
        figure=held_out.name,
        before=round(before, 2),
        after=round(after, 2),
        gain_interval=(round(low, 2), round(high, 2)),
        examples=len(held_out.targets),
    )


def losses(dev: Mapping[str, HeldOut], max_loss: float) -> list[str]:
    """The names of the sets on which more than `max_loss` points were lost."""
    return [name for name, held_out in dev.items() if _lost(held_out) > max_loss]


def _lost(held_out: HeldOut) -> float:
    return 0.0 if math.isnan(held_out.gain) else -held_out.gain


def write_card(directory: Path, name: str, spec: HeadSpec, results: Results) -> None:
    """Write the model card of an adapted head, `README.md`."""
    adaptation, backbone = spec.adaptation, spec.backbone
    assert isinstance(adaptation, Adaptation)
    tables = "\n\n".join(table.markdown for table in results.tables())
    notes = "".join(f"\n- {note}" for note in results.left_out)
    text = f"""# {name}

A head for {backbone.name} (layer {backbone.layer}), adapted to {adaptation.examples:,} labelled
examples ({adaptation.kind}) from the head with SHA-256 {adaptation.base[:12]}…. Learned:
{adaptation.learned}. `head.safetensors` holds the tensors, `head.json` the configuration.

## Data

Labels: {adaptation.examples:,} examples, whose licence applies. The head before: {spec.corpus}.

## Results

Figures x100, by `{spec.recommended_metric}`. Held-out figures are from cross-validation, by
heads that saw fewer labels than this one; that of the chosen capacity is the best of
{len(results.trials)}, so slightly optimistic.

{tables}
{notes}
"""
    (directory / CARD).write_text(text, encoding="utf-8")
