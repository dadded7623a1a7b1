import pytest

from training.corpora.markup import plain_text, sentences


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a [[dog]] and [[cat|some cats]]", "a dog and some cats"),
        ("see [[:Category:Dogs]]", "see Category:Dogs"),
        ("the [[wikt:dog|word]] here", "the word here"),
        ("''Hamlet'' is '''old'''", "Hamlet is old"),
        ("[http://a.org/b?c its site] [http://a.org]", "its site "),
        ("a{{citation|{{PAGENAME}}|c={{d|{{e}}}}}} b", "a b"),
        ("{|\n| a {{b}} {c}\n{|\n| nested\n|}\n|}after", "after"),
        ("[[Image:a.jpg|thumb|A [[dog|hound]] by [http://a.org Ann]]]after", "after"),
        ("[[File:a.png]][[Category:Dogs|*]][[de:Hund]][[zh-min-nan:Káu]]after", "after"),
        ('a<ref name="x"/> b<ref>c [[d]]</ref> e<!-- f\n -->.', "a b e."),
        ("a<br />b <small>c</small>", "a\nb c"),
        ("x&nbsp;y &mdash; &lt;b&gt; AT&amp;T", "x\xa0y — <b> AT&T"),
        ("Foo ({{lang}}, [[Image:a.jpg]]) bar {{ref}}, baz", "Foo bar, baz"),
        ("a < b and b > c", "a < b and b > c"),
        ("[[unclosed and {{unclosed", "[[unclosed and {{unclosed"),
    ],
)
def test_removes_markup(markup: str, text: str) -> None:
    assert plain_text(markup) == text


def test_yields_the_sentences_of_paragraphs() -> None:
    article = """\
{{Infobox | name = Dogs are not a sentence here.}}
'''Dogs''' are [[animal|animals]] that people keep. Some of them are very&nbsp;large!
== This heading is not a sentence. ==
* This list item is not a sentence.
# This numbered item is not a sentence.
: This indented line is not a sentence.
 This preformatted line is not a sentence.
| This table cell is not a sentence.
Too short. "Who keeps them at home?" asked nobody at all.
"""
    assert list(sentences(article)) == [
        "Dogs are animals that people keep.",
        "Some of them are very large!",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith met J. R. Jones in St. Louis.",
        "The U.S. Army was the largest of all.",
        "It costs 3.50 dollars at www.example.org today.",
    ],
)
def test_abbreviations_do_not_end_a_sentence(text: str) -> None:
    assert list(sentences(f"{text} This is the second sentence.")) == [
        text,
        "This is the second sentence.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Only four words here.",
        " ".join(["Word", *["word"] * 29, "word."]),
        "this starts with a small letter.",
        "This does not end with a stop",
        "The area is <math>\\pi r^2</math> for every circle.",
        "The template {{unclosed is part of this sentence.",
        "This sentence has http://example.org in its middle.",
        "#REDIRECT [[A page with a long name.]]",
    ],
)
def test_rejects_what_is_not_a_clean_sentence(text: str) -> None:
    assert list(sentences(text)) == []
