"""The examples in the docstrings of the public API, run with the default model."""

import doctest

import pytest

import lattemix
from lattemix import loading, model
from model_store import Store
from model_store.store import default_root

FINDER = doctest.DocTestFinder(exclude_empty=True)
EXAMPLES = [
    test for module in (lattemix, loading, model) for test in FINDER.find(module) if test.examples
]


@pytest.mark.skipif(
    not Store(default_root()).precisions("default"), reason="`lattemix build` was not run"
)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_in_docstrings(example: doctest.DocTest) -> None:
    output: list[str] = []
    failed, attempted = doctest.DocTestRunner().run(example, out=output.append)
    assert failed == 0, "".join(output)
    assert attempted > 0


def test_main_functions_have_examples() -> None:
    names = {example.name.split(".", 2)[-1] for example in EXAMPLES}
    assert {"load", "Model.encode", "Model.similarity", "Model.rank", "Model.explain"} <= names
