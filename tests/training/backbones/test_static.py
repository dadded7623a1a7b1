from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones import BackboneError, Checkpoint, words
from training.backbones import load


def test_rejects_a_layer(tmp_path: Path) -> None:
    words.save(["the", "dog"], np.ones((2, 8), np.float32), tmp_path / "words")
    with pytest.raises(BackboneError, match="has vectors of layer 0 only, so there is no layer 2"):
        load(Checkpoint.read(tmp_path / "words"), 16, layer=2)
