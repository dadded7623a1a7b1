import pytest

from lattemix.failures import run_command


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("onnxruntime", "cpu"),
        ("onnx.helper", "export"),
        ("httpx", "client"),
        ("pyarrow", "parquet"),
    ],
)
def test_names_the_extra_of_a_missing_module(module: str, extra: str) -> None:
    def command() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(
        SystemExit, match=rf"this needs {module}: pip install 'lattemix\[{extra}\]'"
    ):
        run_command(command, "lattemix")


def test_raises_for_modules_of_no_extra() -> None:
    def command() -> None:
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    with pytest.raises(ModuleNotFoundError, match="typo"):
        run_command(command, "lattemix")
