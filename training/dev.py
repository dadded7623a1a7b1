"""How good a head is by now, on pairs that people scored; measured while it is trained."""

import numpy as np

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head
from training.backbones import Backbone
from training.cache import VectorCache
from training.evaluate.measure import encode, places
from training.evaluate.scores import head_scores
from training.evaluate.sets import Pairs
from training.evaluate.statistics import spearman

_CENTRE_SENTENCES = 1024  # fewer than a finished head's centre is taken of: it is measured often


class DevScore:
    """Spearman x100 on a development set, by the metric that the head recommends."""

    def __init__(
        self, pairs: Pairs, backbone: Backbone, cache: VectorCache, sample: TokenVectors
    ) -> None:
        """Encode what is compared.

        Args:
            pairs: the development set.
            backbone: the one that the head is trained on.
            cache: of encoded sentences.
            sample: sentences it is trained on, to centre by.
        """
        self.gold = np.array(pairs.gold)
        self.left, self.right = places(pairs)
        self.tokens = encode(backbone, cache, pairs.sentences)
        self.sample = next(sample.chunks(_CENTRE_SENTENCES))

    def __call__(self, head: Head) -> float:
        """The score of a head that has no centre yet."""
        metric = head.spec.recommended_metric
        if metric == "centred" and head.spec.model == "categorical":
            head = Head(head.spec, {**head.tensors, "centre": head.centre_of(self.sample)})
        found = head_scores(head, self.tokens, self.left, self.right)
        scores = found[metric] if head.spec.model == "categorical" else found.popitem()[1]
        return spearman(scores, self.gold)
