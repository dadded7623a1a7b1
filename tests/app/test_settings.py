from pathlib import Path

import pytest

from app.settings import Settings, load_settings
from model_store import LatteMixError


def test_lists_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_API_KEYS", "one, two,")
    monkeypatch.setenv("LATTEMIX_CORS_ORIGINS", "https://a.example,*")
    settings = load_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]
    assert settings.cors_origins == ("https://a.example", "*")


@pytest.mark.parametrize("name", ["LATTEMIX_API_KEYS", "lattemix_api_keys"])
@pytest.mark.parametrize("keys", ["", " ", " , "])
def test_empty_key_list_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, keys: str) -> None:
    monkeypatch.setenv(name, keys)
    with pytest.raises(LatteMixError) as caught:
        load_settings()
    assert str(caught.value) == (
        "LATTEMIX_API_KEYS=...: should list at least one key, with commas between; unset it to "
        "serve without keys."
    )


def test_empty_variables_mean_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "API_KEYS_FILE", "CORS_ORIGINS", "STORE", "LOG_LEVEL"):
        monkeypatch.setenv(f"LATTEMIX_{name}", "")
    assert load_settings() == Settings()


def test_key_rate_without_keys_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATTEMIX_KEY_RATE", "5")
    with pytest.raises(LatteMixError) as caught:
        load_settings()
    assert str(caught.value) == (
        "LATTEMIX_KEY_RATE=5: limits requests per key, and there are no keys: set "
        "LATTEMIX_API_KEYS or LATTEMIX_API_KEYS_FILE."
    )
    assert load_settings(api_keys="one").key_rate == 5
    assert load_settings(api_keys_file=tmp_path).key_rate == 5
    monkeypatch.setenv("LATTEMIX_KEY_RATE", "0")
    assert load_settings().key_rate == 0


def test_repr_and_errors_show_no_key() -> None:
    settings = load_settings(api_keys="s3cret")
    assert "s3cret" not in f"{settings!r} {settings}"
    with pytest.raises(LatteMixError) as caught:
        load_settings(api_keys=("s3cret", 3))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
