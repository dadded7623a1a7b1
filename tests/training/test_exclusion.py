from training.exclusion import Exclusion


def test_ignores_case_punctuation_and_white_space() -> None:
    exclusion = Exclusion(['A man,  eating: "lunch"!', "Ein Hühnerei", "...", ""])
    assert len(exclusion) == 2
    for sentence in ("a man eating lunch", "A MAN\teating (lunch).", "ein HÜHNEREI"):
        assert sentence in exclusion
    for sentence in ("a man eating lunches", "man eating lunch", "!", ""):
        assert sentence not in exclusion


def test_digest_depends_on_the_set_alone() -> None:
    digest = Exclusion(["one two", "three"]).sha256
    assert Exclusion(["Three.", "one, two", "three"]).sha256 == digest
    assert Exclusion(["one", "two three"]).sha256 != digest
