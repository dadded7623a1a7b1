"""What `lattemix dedup` computes."""

from lattemix.bulk.sources import Record, Source
from lattemix.settings import Truncate
from model_store import Metric


class Scorer(Record):
    """A model and the metric of its scores."""

    model: str  # name:precision
    fingerprint: str
    metric: Metric


class Task(Record):
    """How vectors are computed."""

    candidates: Scorer
    column: str  # "" is the default
    truncate: Truncate
    max_windows: int


class Plan(Record):
    """A task and its files: those to compare against, then the input."""

    task: Task
    against: tuple[Source, ...]
    sources: tuple[Source, ...]

    @property
    def files(self) -> tuple[Source, ...]:
        """All files."""
        return self.against + self.sources


class Comparison(Record):
    """Which pairs are found, and by which model they are scored."""

    references: int  # number of texts, the first ones, that are not compared with each other
    against_only: bool  # compare other texts with these only
    floor: float  # smallest score of a candidate pair
    rescorer: Scorer | None = None  # the mean of its score and the first one is the score
