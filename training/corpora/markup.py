"""Wikipedia's markup to sentences."""

import html
import re
from collections.abc import Callable, Iterator

_MIN_WORDS, _MAX_WORDS = 5, 30

_COMMENT = re.compile(r"<!--.*?-->", re.S)
# Elements whose content is not prose; (?<!/) since a self-closing <ref name="x"/> has no content.
_ELEMENT = re.compile(
    r"<(ref|gallery|timeline|table|pre)\b[^<>]*(?:/>|(?<!/)>.*?</\1\s*>)", re.S | re.I
)
_FORMULA = re.compile(r"<(math|code|tt)\b[^<>]*>.*?</\1\s*>", re.S | re.I)
_LINE_BREAK = re.compile(r"</?(?:br|p|div|center|blockquote|li|ul|ol)\b[^<>]*>", re.I)
_TAG = re.compile(r"</?[a-z][^<>]*>", re.I)
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.S)
_EXTERNAL_LINK = re.compile(r"\[(?:https?|ftp)://[^\s\]]*\s*([^\[\]]*)\]")
_LINK = re.compile(r"\[\[([^\[\]]*)\]\]")
_HIDDEN_LINK = re.compile(r"(?:image|file|media|category)\s*:", re.I)
_LANGUAGE_LINK = re.compile(r"[a-z][a-z-]+:[^|]*$")  # [[de:Hund]]; such links have no label
_EMPHASIS = re.compile(r"'{2,}")
# Left by a template, a reference or an image.
_GAP = re.compile(r"(?<=\() +| +(?=[,.;:)])")
_EMPTY_PARENTHESES = re.compile(r" ?\([,;:]*\)")

_NOT_PROSE = tuple(" \t=*#:;|!{}<[-")  # first characters of headings, lists, tables, indented text
_SENTENCE_END = re.compile(
    r"(?<=[.!?])"
    r"(?<!\b[A-Z]\.)(?<!\b(?:Mr|Ms|Dr|St|Lt|Mt|Jr|Sr|Co|No|vs|ca|cf)\.)"
    r"(?<!\b(?:Mrs|Gen|Col|Rev|Sgt|Sir|Hon|Vol)\.)(?<!\b(?:Prof|Capt)\.)"
    r'\s+(?=["A-Z])'
)
_REMAINS = re.compile(r"[\[\]{}|=<>]|http")  # of markup


def sentences(markup: str) -> Iterator[str]:
    """Yield the sentences of 5 to 30 words in the paragraphs of an article."""
    for line in plain_text(markup).split("\n"):
        if not line or line.startswith(_NOT_PROSE):
            continue
        for sentence in _SENTENCE_END.split(" ".join(line.split())):
            if _is_sentence(sentence):
                yield sentence


def plain_text(markup: str) -> str:
    """Remove markup, and what is not prose: templates, tables, references, images, categories.

    Headings, lists and indented lines keep the character they start with.
    """
    text = _ELEMENT.sub("", _COMMENT.sub("", markup))
    text = _FORMULA.sub("=", text)  # `sentences` rejects it: a sentence needs its formula
    text = _TAG.sub("", _LINE_BREAK.sub("\n", text))
    text = _replace_nested(_TEMPLATE, "", text)
    text = _replace_nested(_TABLE, "", text)
    text = _EXTERNAL_LINK.sub(r"\1", text)
    text = _replace_nested(_LINK, _label, text)
    text = html.unescape(_EMPHASIS.sub("", text))
    return _EMPTY_PARENTHESES.sub("", _GAP.sub("", text))


def _replace_nested(
    pattern: re.Pattern[str], replacement: str | Callable[[re.Match[str]], str], text: str
) -> str:
    """Replace matches from the inside out, for a pattern that matches only the innermost."""
    count = 1
    while count:
        text, count = pattern.subn(replacement, text)
    return text


def _label(link: re.Match[str]) -> str:
    """The visible text of a link; empty for images, categories and other languages."""
    content: str = link[1]
    if _HIDDEN_LINK.match(content) or _LANGUAGE_LINK.match(content):
        return ""
    return content.rpartition("|")[2].lstrip(":")


def _is_sentence(text: str) -> bool:
    return (
        _MIN_WORDS <= len(text.split()) <= _MAX_WORDS
        and text[0].isupper()
        and text[-1] in ".!?"
        and not _REMAINS.search(text)
    )
