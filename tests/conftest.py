"""Tiny real models, made here: a BERT of two layers, a head trained on it, and their store."""

import os
import shutil
from pathlib import Path

import hypothesis
import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from app.settings import Settings
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from model_store import Artifact, Store, latents
from training.backbones import load
from training.cache import VectorCache
from training.corpus import Corpus, prepare
from training.encoding import EncodedCorpus
from training.job import make_head
from training.meanings import meanings
from training.recipe import Recipe

# No stopwatch. `pytest --hypothesis-profile=thorough tests/reliability` looks fifty times as long.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("patient", **_PATIENT)
hypothesis.settings.register_profile("thorough", max_examples=5000, **_PATIENT)
hypothesis.settings.load_profile("patient")
torch.set_num_threads(1)  # for models so small, a second one is only waited for

SENTENCES = [
    "a man is eating",
    "someone is having lunch",
    "the dog runs in the park",
    "a dog is running outside",
    "two women are talking",
    "the market fell on tuesday",
    "prices dropped this week",
    "a child plays with a red ball",
    "the sea was calm and blue",
    "nobody likes cold coffee",
]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own LATTEMIX_* settings must not reach the tests."""
    for name in [name for name in os.environ if name.startswith("LATTEMIX_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return Recipe(latent_dims=4, classes=5, steps=30, batch_sentences=2, max_tokens=16)


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a random BERT: 2 layers, 16 wide, 32 positions."""
    directory = tmp_path_factory.mktemp("tiny-bert")
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def checkpoint(backbone: Path) -> Checkpoint:
    return Checkpoint.read(backbone)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "sentences.txt"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepare(SENTENCES, tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> VectorCache:
    return VectorCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def encoded(
    checkpoint: Checkpoint, prepared: Corpus, cache: VectorCache, recipe: Recipe
) -> EncodedCorpus:
    return EncodedCorpus(load(checkpoint, recipe.max_tokens), prepared, cache)


@pytest.fixture(scope="session")
def head_directory(
    encoded: EncodedCorpus, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("heads") / "tiny"
    about = "ten sentences written for the tests"
    head = make_head(encoded, recipe, about, progress=False)
    head.save(directory)
    digest = str(Head.load(directory).spec.sha256)
    latents.write(meanings(head, encoded, recipe), digest, directory)
    return directory


@pytest.fixture(scope="session")
def head(head_directory: Path) -> Head:
    return Head.load(head_directory)


@pytest.fixture(scope="session")
def store(head_directory: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Holds `tiny:fp32`; tests that change a store make their own with `private_store`."""
    store = Store(tmp_path_factory.mktemp("store"))
    assemble(head_directory, store, "tiny", str(backbone))
    return store


@pytest.fixture
def private_store(store: Store, tmp_path: Path) -> Store:
    """A copy of the store that a test may damage."""
    shutil.copytree(store.root, tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def artifact(store: Store) -> Artifact:
    return store.open("tiny")


@pytest.fixture(scope="session")
def encoder(artifact: Artifact) -> Encoder:
    return Encoder(artifact, provider="cpu")


@pytest.fixture
def settings(store: Store) -> Settings:
    return Settings(
        store=store.root, model="tiny", max_inputs=8, max_characters=500, max_body_bytes=4096
    )


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client slept, without sleeping."""
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("lattemix.client.connection.sleep", sleep)
    return naps
