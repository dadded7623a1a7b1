"""Strategies for damaged files: changed bytes and changed JSON values."""

import copy
import json
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Edit(NamedTuple):
    """A change to bytes."""

    how: str
    position: int  # modulo the length
    content: bytes


byte_edits = st.lists(
    st.builds(
        Edit,
        st.sampled_from(["overwrite", "insert", "delete", "truncate", "flip", "repeat"]),
        st.integers(0, 2**24),
        st.binary(min_size=1, max_size=6) | st.sampled_from([b"\0", b'"', b"{", b"\n", b"\xff"]),
    ),
    min_size=1,
    max_size=4,
)


def damage(content: bytes, edits: list[Edit]) -> bytes:
    for how, position, new in edits:
        at = position % (len(content) + 1)
        before, after = content[:at], content[at:]
        match how:
            case "overwrite":
                content = before + new + after[len(new) :]
            case "insert":
                content = before + new + after
            case "delete":
                content = before + after[len(new) :]
            case "truncate":
                content = before
            case "flip":
                content = before + bytes(b ^ (1 << new[0] % 8) for b in after[:1]) + after[1:]
            case _:
                content = before + after[:64] + after
    return content


class JsonEdit(NamedTuple):
    """A change to a nested value of a JSON document."""

    how: str
    path: list[int]
    key: str
    value: Any


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=8)
    | st.sampled_from(["../x", "/etc/passwd", "a\0b", "0" * 64, "x" * 300, 10**400, -1, 2**63])
)
json_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
json_edits = st.lists(
    st.builds(
        JsonEdit,
        st.sampled_from(["replace", "replace", "remove", "rename", "add"]),
        st.lists(st.integers(0, 40), min_size=1, max_size=5),
        st.sampled_from(["../x", "/x", "model.onnx", "manifest.json", "a\0", ".."]) | st.text(),
        json_values,
    ),
    min_size=1,
    max_size=3,
)


def rebuild(value: Any, edits: list[JsonEdit]) -> Any:
    value = copy.deepcopy(value)
    for edit in edits:
        container, key = _locate(value, edit.path)
        if container is None:
            value = edit.value
        elif edit.how == "remove":
            del container[key]
        elif edit.how == "rename" and isinstance(container, dict):
            container[edit.key] = container.pop(key)
        elif edit.how == "add" and isinstance(container, dict):
            container[edit.key] = copy.deepcopy(container[key])
        elif edit.how == "add":
            container.append(edit.value)
        else:
            container[key] = edit.value
    return value


def _locate(value: Any, path: list[int]) -> tuple[Any, Any]:
    """Return the container at a path and the key in it, or None and None for an empty document."""
    container: Any = None
    key: Any = None
    for step in path:
        if not isinstance(value, dict | list) or not value:
            break
        container = value
        key = [*value][step % len(value)] if isinstance(value, dict) else step % len(value)
        value = container[key]
    return container, key


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
