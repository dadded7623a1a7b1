"""The input of a run: the files whose rows are kept or dropped, and those to compare against."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.dedup.options import Keep
from lattemix.bulk.dedup.rows import read_numbers
from lattemix.bulk.readers import TEXTS, Table, columns_named
from lattemix.bulk.sources import Source, list_sources
from model_store import LatteMixError

BY_COLUMN = "max:"  # a keep rule, followed by the name of a column


class InputFiles(NamedTuple):
    """Files and their state."""

    references: tuple[Source, ...]  # to compare against
    sources: tuple[Source, ...]

    @property
    def paths(self) -> list[Path]:
        """All files, the references first."""
        return [Path(file.path) for file in (*self.references, *self.sources)]


class Input:
    """What to read."""

    def __init__(self, source: Path, column: str | None, against: Path | None, keep: str) -> None:
        """Check the arguments.

        Args:
            source: file or directory.
            column: of the texts; default: text or sentence, or the only one.
            against: file or directory.
            keep: rule; by column, the input has one more.
        """
        self.source = source.absolute()
        self.column = column or ""
        self._against = None if against is None else against.absolute()
        self.row_format = columns_named((column,)) if column else TEXTS
        self._with_numbers = None
        if keep.startswith(BY_COLUMN):
            number = keep.removeprefix(BY_COLUMN)
            self._with_numbers = replace(self.row_format, kept=(number,))
        elif keep not in get_args(Keep):
            known = ", ".join(get_args(Keep))
            raise LatteMixError(f"--keep {keep}: choose among {known}, {BY_COLUMN}COLUMN.")
        files = self.files()
        for file in files.references:
            Table(Path(file.path), self.row_format)  # raises if its type is not supported
        for file in files.sources:
            Table(Path(file.path), self._with_numbers or self.row_format)

    def files(self) -> InputFiles:
        """Return all files in their current state."""
        references = () if self._against is None else list_sources(self._against)
        return InputFiles(references, list_sources(self.source))

    def names(self, files: InputFiles) -> list[str]:
        """Return the names of all files, relative to the directories that they were found in."""
        roots = {self.source, self._against or self.source}
        found_in = (
            next((root for root in roots if root in p.parents), p.parent) for p in files.paths
        )
        return [str(p.relative_to(root)) for p, root in zip(files.paths, found_in, strict=True)]

    def numbers(self, files: InputFiles) -> NDArray[np.float64] | None:
        """Return the numbers [R] that decide which rows are kept, if the keep rule names any."""
        if self._with_numbers is None:
            return None
        return read_numbers(files.paths[len(files.references) :], self._with_numbers)

    def check_outside(self, directory: Path) -> None:
        """Raise `LatteMixError` if results would become part of the input."""
        for root in (self.source, self._against):
            inside = root is not None and directory.resolve().is_relative_to(root.resolve())
            if inside:
                raise LatteMixError(f"{directory} is inside the input {root}: choose another.")
