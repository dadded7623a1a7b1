"""De-duplicate a file with semhash, in the interpreter that has it.

    python semhash_run.py MODEL rows.jsonl OUTPUT 0.9 [0.92 ...]

Writes for each threshold, the smallest first, what `lattemix dedup` writes: OUTPUT/<threshold>/
with kept.jsonl and dropped.jsonl. All settings are semhash's defaults.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Run with the arguments of the command line."""
    model, source, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    first, *others = sorted(sys.argv[4:], key=float)
    with source.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    rows = {text: row for row, text in enumerate(texts, 1)}  # the texts are distinct
    encoder = import_module("model2vec").StaticModel.from_pretrained(model)
    semhash = import_module("semhash").SemHash.from_records(texts, model=encoder)
    result = semhash.self_deduplicate(threshold=float(first))
    write(output / first, result, rows)
    for threshold in others:
        result.rethreshold(float(threshold))
        write(output / threshold, result, rows)


def write(directory: Path, result: Any, rows: dict[str, int]) -> None:
    """Write the kept texts, and the dropped rows with the rows that are kept."""
    directory.mkdir(parents=True)
    with (directory / "kept.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(
            json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in result.selected
        )
    with (directory / "dropped.jsonl").open("w", encoding="utf-8") as file:
        for pair in result.filtered:
            record = {
                "row": rows[pair.record],
                "text": pair.record,
                "kept_row": rows[pair.duplicate_of],
                "kept_text": pair.duplicate_of,
                "score": pair.score,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
