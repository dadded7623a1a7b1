"""The API against its OpenAPI document, with generated valid and invalid requests."""

import subprocess
import sys
from pathlib import Path

# Blank and too long texts and unknown models are valid strings to a schema: hence 400, 404 and 413.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404", "413"]

[[operations]]
include-path = "/embed"  # the schema cannot say which options go together
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "413", "422"]

[[operations]]
include-path = "/explain"  # nor that it reads one window
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "413", "422"]

[[operations]]
include-path = "/"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "413", "422"]
checks.unsupported_method.enabled = false  # `GET /` is the playground

[[operations]]
include-path = "/matrix"  # nor that `threshold_on` needs a threshold, and a calibration
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "413", "422"]

[[operations]]
include-path = "/v1/score"  # nor how many texts go together
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "413", "422"]

[[operations]]
include-path = "/v1/embeddings"
checks.positive_data_acceptance.enabled = false  # the valid `dimensions` depend on the model

[[operations]]
include-path = "/latents/{dim}/{class}"
checks.positive_data_acceptance.enabled = false  # and so do the classes
"""


def test_every_response_is_documented(server: str, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    st = Path(sys.executable).parent / "st"
    options = ["--max-examples", "30", "--seed", "1", "--no-color"]
    command = [st, "--config-file", config, "run", f"{server}/openapi.json", *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    assert "Tested: 20" in result.stdout
