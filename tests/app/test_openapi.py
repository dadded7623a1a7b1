"""The API against its own documentation, with generated requests, good and bad."""

import subprocess
import sys
from pathlib import Path

# A text of blanks, or too long a one, is a string to a schema: hence 400 and 413.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "413"]

[[operations]]
include-path = "/embed"  # which options go together is not in the schema
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "413", "422"]

[[operations]]
include-path = "/v1/embeddings"
checks.positive_data_acceptance.enabled = false  # which `dimensions` fit depends on the model

[[operations]]
include-path = "/latents/{dim}/{class}"
checks.positive_data_acceptance.enabled = false  # and so do which there are
"""


def test_every_answer_is_a_documented_one(server: str, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    st = Path(sys.executable).parent / "st"
    options = ["--max-examples", "30", "--seed", "1", "--no-color"]
    command = [st, "--config-file", config, "run", f"{server}/openapi.json", *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    assert "Tested: 12" in result.stdout
