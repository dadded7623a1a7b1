from base64 import b64decode

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.explain import links
from model_store import Store, latents
from tests.app.conftest import failure
from tests.tiny import SENTENCES

PAIR = ["a man is eating", "someone is having lunch"]


def explain(client: TestClient, **fields: object) -> dict:
    response = client.post("/explain", json={"pair": PAIR} | fields)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("metric", ["cosine", "js", "l2", "bhattacharyya", "centred"])
@pytest.mark.parametrize("pair", [PAIR, SENTENCES[2:4], [PAIR[0]] * 2], ids=["far", "near", "same"])
def test_contributions_sum_to_the_similarity(
    client: TestClient, metric: str, pair: list[str]
) -> None:
    body = explain(client, pair=pair, metric=metric, latents=4)
    request = {"pairs": [pair], "metrics": [metric]}
    (score,) = client.post("/similarity", json=request).json()["similarities"]
    assert body["metric"] == metric
    # For equal sentences, l2 is the square root of a rounding error.
    assert body["similarity"] == pytest.approx(score[metric], abs=1e-5)
    for side in ("a", "b"):
        tokens = sum(token["contribution"] for token in body[side]["tokens"])
        assert tokens == pytest.approx(body["similarity"], abs=1e-5)
    dims = sum(dim["contribution"] for dim in body["latents"]["agree"])
    assert dims == pytest.approx(body["similarity"], abs=1e-5)


def test_default_metric_is_the_recommended_one(client: TestClient) -> None:
    assert explain(client)["metric"] == client.get("/info").json()["recommended_metric"]


def test_words_have_offsets_and_their_contributions_sum_with_the_special_tokens(
    client: TestClient,
) -> None:
    text = "  A  man\tis EATING "
    side = explain(client, pair=[text, PAIR[1]])["a"]
    assert [word["text"] for word in side["words"]] == ["A", "man", "is", "EATING"]
    for word in side["words"]:
        assert text[word["start"] : word["end"]] == word["text"]
    special = [token for token in side["tokens"] if token["special"]]
    assert [token["token"] for token in special] == ["[CLS]", "[SEP]"]
    assert all(token["word"] is None for token in special)
    parts = sum(part["contribution"] for part in [*side["words"], *special])
    assert parts == pytest.approx(sum(t["contribution"] for t in side["tokens"]), abs=1e-6)
    assert [side["tokens"].index(t) for t in side["tokens"] if t["word"] == 3] == [4]


def test_alignment_contains_word_similarities_and_mutual_best_matches(
    client: TestClient,
) -> None:
    pair = ["the dog runs in the park", "a dog is running outside"]
    body = explain(client, pair=pair, metric="cosine")
    tokens, words = (np.array(body["alignment"][kind]) for kind in ("tokens", "words"))
    assert (tokens.shape, words.shape) == ((8, 7), (6, 5))
    np.testing.assert_allclose(tokens[1:-1, 1:-1], words, atol=1e-6)  # here, a word is a token
    matches = {(link["a"], link["b"]): link["similarity"] for link in body["alignment"]["links"]}
    assert matches == {pair: pytest.approx(words[pair]) for pair in links(words)}
    assert matches
    assert "tokens" not in explain(client, token_alignment=False)["alignment"]


def test_token_mixtures_average_to_the_sentence_mixture(
    client: TestClient, encoder: Encoder
) -> None:
    body = explain(client, token_mixtures=True)
    for side, text in zip("ab", PAIR, strict=True):
        weights = [token["weight"] for token in body[side]["tokens"]]
        mixtures = np.frombuffer(b64decode(body[side]["mixtures"]), "<f4").reshape(-1, 4, 5)
        mixture = np.average(mixtures, axis=0, weights=weights)
        np.testing.assert_allclose(mixture, encoder.encode([text]).mixtures[0], atol=1e-6)
    assert "mixtures" not in explain(client)["a"]


def test_reports_truncation_or_rejects_long_sentences(client: TestClient) -> None:
    long = "dog " * 20
    body = explain(client, pair=["a man", long])
    assert (body["tokens"], body["truncated"]) == ([4, 22], [False, True])
    assert len(body["b"]["tokens"]) == 16
    assert body["b"]["words"][-1]["end"] == 14 * 4 - 1
    left = explain(client, pair=["a man", long], truncate="left")
    assert left["b"]["words"][-1]["end"] == 20 * 4 - 1
    rejected = client.post("/explain", json={"pair": ["a man", long], "truncate": False})
    status, kind, message = failure(rejected)
    assert (status, kind) == (413, "TooLarge")
    assert message.startswith("pair[1] has 22 tokens, more than the limit of 16")


@pytest.mark.parametrize(
    ("fields", "expected", "text"),
    [
        ({"pair": ["a", " "]}, (400, "Empty"), "pair[1] is empty"),
        ({"pair": ["a"]}, (422, "Validation"), "pair: List should have at least 2 items"),
        ({"pair": ["a", "b", "c"]}, (422, "Validation"), "pair: List should have at most 2 items"),
        ({"pair": ["a", "x" * 501]}, (413, "TooLarge"), "LATTEMIX_MAX_CHARACTERS"),
        ({"metric": "euclid"}, (422, "Validation"), "metric: Input should be 'cosine'"),
        ({"latents": -1}, (422, "Validation"), "latents: Input should be greater than or equal"),
        ({"latents": "2"}, (422, "Validation"), "latents: should be a number"),
        ({"pairs": [PAIR]}, (422, "Validation"), "pairs: Extra inputs are not permitted"),
    ],
)
def test_rejects_invalid_requests(
    client: TestClient, fields: dict, expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.post("/explain", json={"pair": PAIR} | fields))
    assert (status, kind) == expected
    assert text in message


def test_dims_name_the_dominant_class_of_each_sentence(
    client: TestClient, encoder: Encoder
) -> None:
    agree, disagree = (
        explain(client, latents=2)["latents"][kind] for kind in ("agree", "disagree")
    )
    assert len(agree) == len(disagree) == 2
    assert agree[0]["contribution"] >= agree[1]["contribution"]
    assert disagree[0]["contribution"] <= disagree[1]["contribution"] <= agree[1]["contribution"]
    mixtures = encoder.encode(PAIR).mixtures
    for dim in (*agree, *disagree):
        for side, mixture in zip("ab", mixtures, strict=True):
            dominant = dim[side]
            assert dominant["index"] == mixture[dim["dim"]].argmax()
            assert dominant["share"] == pytest.approx(mixture[dim["dim"]].max(), abs=1e-6)
            latent = client.get(f"/latents/{dim['dim']}/{dominant['index']}").json()
            assert dominant["words"] == [word["word"] for word in latent["words"]][:5]


def test_latent_class_has_words(client: TestClient, store: Store) -> None:
    body = client.get("/latents/1/2").json()
    artifact = store.open("tiny")
    stored = latents.read(artifact.path / latents.LATENTS, artifact.manifest.head.sha256, 4, 5)
    expected = stored[1][2]
    assert (body["model"], body["dim"], body["index"]) == ("tiny", 1, 2)
    assert body["usage"] == expected.usage
    assert {word["word"]: word["share"] for word in body["words"]} == expected.words


@pytest.mark.parametrize(
    ("path", "expected", "text"),
    [
        ("4/0", (404, "NotFound"), "dim is 4, but tiny has 0 to 3."),
        ("0/5", (404, "NotFound"), "class is 5, but tiny has 0 to 4."),
        ("-1/0", (404, "NotFound"), "dim is -1"),
        ("x/0", (422, "Validation"), "dim: Input should be a valid integer"),
        ("0/x", (422, "Validation"), "class: Input should be a valid integer"),
    ],
)
def test_rejects_unknown_latent_classes(
    client: TestClient, path: str, expected: tuple[int, str], text: str
) -> None:
    status, kind, message = failure(client.get(f"/latents/{path}"))
    assert (status, kind) == expected
    assert text in message


def test_explains_without_class_words_and_latents_returns_404(
    private_store: Store, settings: Settings
) -> None:
    artifact = private_store.open("tiny")
    files = {
        name: record for name, record in artifact.manifest.files.items() if name != "latents.json"
    }
    artifact.manifest.model_copy(update={"files": files}).write(artifact.path)
    app = create_app(settings.model_copy(update={"store": private_store.root}))
    with TestClient(app) as client:
        assert "words" not in explain(client)["latents"]["agree"][0]["a"]
        status, kind, message = failure(client.get("/latents/0/0"))
    assert (status, kind) == (404, "NotFound")
    assert message == "tiny has no words for its latent classes."
