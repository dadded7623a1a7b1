"""Files that were right once: bytes that were changed, and JSON whose parts were."""

import copy
import json
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Edit(NamedTuple):
    """A change to bytes."""

    how: str
    place: int  # modulo what there is
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
    for how, place, new in edits:
        at = place % (len(content) + 1)
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
    """A change to a part of a JSON value, which is found by going down as the path says."""

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
        holder, key = _find(value, edit.path)
        if holder is None:
            value = edit.value
        elif edit.how == "remove":
            del holder[key]
        elif edit.how == "rename" and isinstance(holder, dict):
            holder[edit.key] = holder.pop(key)
        elif edit.how == "add" and isinstance(holder, dict):
            holder[edit.key] = copy.deepcopy(holder[key])
        elif edit.how == "add":
            holder.append(edit.value)
        else:
            holder[key] = edit.value
    return value


def _find(value: Any, path: list[int]) -> tuple[Any, Any]:
    """The holder of a part and its place there; None and None if there is nothing to hold any."""
    holder: Any = None
    key: Any = None
    for step in path:
        if not isinstance(value, dict | list) or not value:
            break
        holder = value
        key = [*value][step % len(value)] if isinstance(value, dict) else step % len(value)
        value = holder[key]
    return holder, key


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
