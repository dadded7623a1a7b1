import pytest

from model_store import LatteMixError
from training.evaluate.report import AVERAGE
from training.evaluate.tables import SeedMean
from training.paper.published import SOURCES, TITLES, Comparison, PublishedTable, Row
from training.recipe import Recipe


def row(table: str, name: str) -> Row:
    (match,) = (row for row in PublishedTable.load(table).rows if row.name == name)
    return match


@pytest.mark.parametrize(
    ("table", "name", "benchmark", "expected"),
    [  # read off the paper's tables by eye
        ("pooling", "GloVe + Latte-Mix + Cosine", "stsb", SeedMean(65.84)),
        ("pooling", "BERT-Large + [CLS] + Cosine", "sick-r", SeedMean(43.43)),
        ("vae", "Normal-VAE (1-layer) + L2", "stsb", SeedMean(50.84)),
        ("vae", "AE (3-layer) + Mean + Cosine", "sick-r", SeedMean(52.93)),
        ("finetuned", "SBERT-Large + Latte-Mix + JS", "stsb", SeedMean(80.89)),
        ("hyperparameters", "Latte-Mix (200-class) + L2", "sts15", SeedMean(41.92, 1.6)),
        ("hyperparameters", "Latte-Mix (0.03-tau) + Cosine", "stsb", SeedMean(56.64, 0.53)),
        ("hyperparameters", "AE (2-layer) + Cosine", "sts12", SeedMean(27.08, 2.14)),
        ("pooling-all", "Skip-Gram + Mean + Cosine", "sts14", SeedMean(59.03)),
        ("pooling-all", "RoBERTa-Large + Latte-Mix + JS", "sts13", SeedMean(56.58, 0.43)),
        ("finetuned-all", "SBERT-Large + Latte-Mix + Cosine", "sts14", SeedMean(76.857)),
        ("finetuned-all", "SRoBERTa-Base + Latte-Mix + JS", "sick-r", SeedMean(75.6, 0.02)),
        ("layers-base", "BERT-Base, Layer 12 + Latte-Mix + Cosine", "stsb", SeedMean(56.92, 1.05)),
        ("layers-base", "BERT-Base, Layer 1 + Mean + Cosine", "sts12", SeedMean(50.78)),
        (
            "layers-large",
            "BERT-Large, Layer 24 + Latte-Mix + Cosine",
            "sts16",
            SeedMean(63.62, 0.95),
        ),
        ("words-base", "BERT-Base, Layer 1", "msr", SeedMean(40.49)),
        ("words-large", "BERT-Large, Layer 24", "bless", SeedMean(36.0)),
    ],
)
def test_figures_match_the_paper(table: str, name: str, benchmark: str, expected: SeedMean) -> None:
    assert row(table, name).figures[benchmark] == expected


@pytest.mark.parametrize("name", TITLES)
def test_tables_are_complete(name: str) -> None:
    table = PublishedTable.load(name)
    rows = {
        "pooling": 11,
        "vae": 10,
        "finetuned": 10,
        "hyperparameters": 51,
        "pooling-all": 34,
        "finetuned-all": 24,
        "layers-base": 24,
        "layers-large": 48,
        "words-base": 12,
        "words-large": 24,
    }
    assert len(table.rows) == len({row.name for row in table.rows}) == rows[name]
    assert set(table.backbones) <= SOURCES.keys()
    assert table.is_of_words == name.startswith("words")
    for each in table.rows:
        assert each.figures.keys() == set(table.sets)
        assert all(0 <= figure.mean <= 100 for figure in each.figures.values())


def test_rows_hold_what_to_train() -> None:
    mixed = row("hyperparameters", "Latte-Mix (0.03-tau) + JS")
    assert (mixed.settings, mixed.method) == ({"temperature": 0.03}, ("mixture", "js"))
    normal = row("vae", "Normal-VAE (2-layer) + L2")
    assert normal.settings == {"model": "normal", "encoder_layers": 2}
    pooled = row("layers-base", "BERT-Base, Layer 3 + Mean + Cosine")
    assert (pooled.layer, pooled.method, pooled.is_trained) == (3, ("pooling", "mean"), False)
    assert row("pooling", "BERT-Base + [CLS] + Cosine").method == ("pooling", "cls")
    for table in map(PublishedTable.load, TITLES):
        for each in table.rows:  # every setting is one that a recipe has
            Recipe.model_validate({"steps": 1, **each.settings})


def test_rejects_an_unknown_table() -> None:
    with pytest.raises(LatteMixError, match="no table 'tbl': choose among pooling, vae"):
        PublishedTable.load("tbl")


def test_average_needs_values_on_all_sets() -> None:
    table = PublishedTable.load("pooling")
    first, second = table.rows[:2]
    comparison = Comparison(table, SOURCES)
    for name in table.sets:
        comparison.add(first, name, [50.0, 60.0])
    comparison.add(second, table.sets[0], [50.0, 60.0])
    average = comparison.ours(first, AVERAGE)
    assert average is not None
    assert average.mean == 55
    assert comparison.ours(second, AVERAGE) is None
