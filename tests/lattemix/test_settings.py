from pathlib import Path

import pytest

from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError


def test_arguments_take_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_MODEL", "from-environment")
    monkeypatch.setenv("LATTEMIX_THREADS", "3")
    settings = read_settings(ModelSettings, model="from-argument", threads=None)
    assert (settings.model, settings.threads) == ("from-argument", 3)


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_MODEL", "")
    assert read_settings(ModelSettings).model == "default"


def test_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert read_settings(ModelSettings, store="~/models").store == Path("/home/someone/models")


def test_invalid_argument_names_its_flag() -> None:
    with pytest.raises(LatteMixError, match=r"--device-id=-1: Input should be greater than"):
        read_settings(ModelSettings, device_id=-1)


def test_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_PROVIDER", "tpu")
    with pytest.raises(LatteMixError, match=r"LATTEMIX_PROVIDER=tpu: Input should be 'auto'"):
        read_settings(ModelSettings)
