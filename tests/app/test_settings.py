import pytest

from app.settings import load_settings
from model_store import LatteMixError


def test_lists_are_spelt_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_API_KEYS", "one, two,")
    monkeypatch.setenv("LATTEMIX_CORS_ORIGINS", "https://a.example,*")
    settings = load_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]
    assert settings.cors_origins == ("https://a.example", "*")


def test_keys_that_are_none_do_not_leave_the_door_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_API_KEYS", " , ")
    with pytest.raises(LatteMixError, match=r"LATTEMIX_API_KEYS=\.\.\.: should list at least one"):
        load_settings()


def test_keys_are_not_shown() -> None:
    settings = load_settings(api_keys="s3cret")
    assert "s3cret" not in f"{settings!r} {settings}"
    with pytest.raises(LatteMixError) as caught:
        load_settings(api_keys=("s3cret", 3))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
