"""The report of a run: a page of HTML that needs nothing but itself, and its pictures as a PNG."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lattemix.build.head import Floats, Head, HeadSpec
from training.card import data_of, what_it_is
from training.curves import Picture, draw, pictures
from training.evaluate.tables import Table
from training.monitor import Entry, collapse

PAGE, PICTURE = "report.html", "report.png"

_STYLE = """
:root { color-scheme: light dark; --line: #d5d9de; --soft: #f4f6f8; --mark: #1f77b4; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; --soft: #1e242b; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1000px;
  padding: 0 1rem; }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; }
p { overflow-wrap: anywhere; }
.verdict { background: var(--soft); border-left: 4px solid var(--mark); padding: .7rem 1rem; }
.warning { --mark: #ff7f0e; }
.pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); }
figure { background: #fff; border: 1px solid var(--line); border-radius: 6px; color: #444;
  margin: 0; padding: .5rem; }
@media (min-width: 664px) { figure.wide { grid-column: span 2; } }
figure img { display: block; width: 100%; }
figcaption { font-size: .85rem; padding: .3rem .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; padding: .5rem 0; text-align: left; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .8rem; text-align: right; }
tr > :first-child { padding-left: 0; text-align: left; }
th { font-weight: 500; }
.tables { display: flex; flex-wrap: wrap; gap: 1rem 3rem; }
"""
# Nothing is loaded and nothing runs, whatever a name may hold.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_UNSCORED = "<p>Not evaluated: <code>--dev</code> scores a head on pairs that people scored.</p>"


def write_report(
    directory: Path,
    head: Head,
    licence: str,
    log: Sequence[Entry],
    usage: Floats | None,
    results: Sequence[Table] = (),
    pooled: float | None = None,
) -> None:
    """Write `report.html` and `report.png` into a head's directory.

    Args:
        directory: the head's; its name is the head's as well.
        head: the head.
        licence: of the sentences it was trained on.
        log: the entries of the run.
        usage: how much it uses each class, [L, C], if it has classes.
        results: its dev scores beside those of the controls, if it was evaluated.
        pooled: mean pooling's dev score, if it was.
    """
    drawn = pictures(log, head.spec, usage, pooled) if log else []
    if drawn:
        draw(drawn, directory / PICTURE)
    page = _page(head.spec, directory.name, licence, drawn, results)
    (directory / PAGE).write_text(page, encoding="utf-8")


def verdict(spec: HeadSpec) -> str:
    """Whether the latent collapsed, in words; nothing of an autoencoder, which cannot."""
    in_use = spec.training.get("dims_in_use")
    if in_use is None:
        return ""
    if problem := collapse(spec.training, spec.latent_dims):
        return f"Warning: the latent collapsed. At the end {problem}"
    return (
        f"The latent did not collapse: at the end {in_use:.0f} of {spec.latent_dims} latent dims "
        "say something about their token."
    )


def _page(
    spec: HeadSpec, name: str, licence: str, drawn: Sequence[Picture], results: Sequence[Table]
) -> str:
    settings = {key: value for key, value in spec.recipe.items() if value is not None}
    figures = {key: f"{value:,g}" for key, value in spec.training.items()}
    scores = "\n".join(_table(table) for table in results)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(name)}: how it was trained</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(name)}</h1>
<p>{escape(what_it_is(spec))}</p>
<p>{escape(data_of(spec, licence))}</p>
{_verdict(spec)}
<h2>The run</h2>
<div class="pictures">
{"".join(map(_figure, drawn))}</div>
<h2>Scores</h2>
{f'<div class="tables">{scores}</div>' if results else _UNSCORED}
<h2>Settings and last figures</h2>
<div class="tables">
{_table(_two_columns("Recipe", settings))}
{_table(_two_columns("Last figures", figures))}
</div>
</body>
</html>
"""


def _verdict(spec: HeadSpec) -> str:
    kind = "verdict warning" if collapse(spec.training, spec.latent_dims) else "verdict"
    words = verdict(spec)
    return f'<p class="{kind}">{escape(words)}</p>' if words else ""


def _figure(picture: Picture) -> str:
    image = b64encode(picture.png()).decode()
    seen, note = escape(f"{picture.title}. {picture.words}"), escape(picture.note)
    kind = "wide" if picture.is_wide else "narrow"
    return (
        f'<figure class="{kind}">'
        f'<img alt="{seen}" src="data:image/png;base64,{image}">'
        f"<figcaption>{note}</figcaption></figure>\n"
    )


def _two_columns(title: str, values: Mapping[str, object]) -> Table:
    return Table(title, ["value"], [[key, str(value)] for key, value in values.items()])


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", *table.columns))
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>"
    return f'<div class="scroll"><table>{caption}\n<tr>{head}</tr>\n{rows}</table></div>'
