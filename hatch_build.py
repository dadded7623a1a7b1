"""Build hook: the README for PyPI, where relative links would lead nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = r"\]\((?![a-z]+:|#)"


class Readme(MetadataHookInterface):
    """Sets the project's `readme`, with links to the files of this version's tag."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        files = f"{metadata['urls']['Repository']}/{{}}/v{metadata['version']}/"
        text = re.sub(rf"(!\[[^\]]*){_RELATIVE}", rf"\1]({files.format('raw')}", text)
        text = re.sub(_RELATIVE, f"]({files.format('blob')}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
