"""The model card and the HTML report of a training run."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from lattemix.build.head import Floats, Head, HeadSpec
from training.evaluate.tables import Table
from training.monitor import Entry, collapse
from training.plots import Plot, draw_plots, run_plots

CARD, PAGE, PLOTS = "README.md", "report.html", "report.png"

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
.plots { display: grid; gap: 1rem;
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
# No scripts and no requests, whatever a name in the page contains.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_NOT_EVALUATED = "<p>Not evaluated: pass <code>--dev</code> to score a head on rated pairs.</p>"


def write_card(directory: Path, head: Head, licence: str, results: Sequence[Table] = ()) -> None:
    """Write the model card, `README.md`, into a head's directory; see `write_report`."""
    spec = head.spec
    recipe = "\n".join(f"| {key} | {value} |" for key, value in _settings(spec).items())
    figures = "\n".join(f"| {key} | {value} |" for key, value in _figures(spec).items())
    scores = "\n\n".join(table.markdown for table in results)
    text = f"""# {directory.name}

{_description(spec)}
`head.safetensors` holds the tensors, `head.json` the configuration.

## Data

{_data(spec, licence)}

## Recipe

| setting | value |
|---|---|
{recipe}

## Training

Figures at the last step (loss, reconstruction and KL in nats per token):

| | |
|---|---|
{figures}

## Results

{scores or "Not evaluated yet: run `lattemix-train evaluate`."}
"""
    (directory / CARD).write_text(text, encoding="utf-8")


def write_report(
    directory: Path,
    head: Head,
    licence: str,
    log: Sequence[Entry],
    usage: Floats | None,
    results: Sequence[Table] = (),
    mean_pooling: float | None = None,
) -> None:
    """Write `report.html` and `report.png` into a head's directory, which also names the head.

    Args:
        directory: directory of the head.
        head: the head.
        licence: licence of the training sentences.
        log: entries of the run.
        usage: share of each class [L, C], of a categorical head.
        results: dev scores of the head and its controls, if it was evaluated.
        mean_pooling: dev score of mean pooling, if the head was evaluated.
    """
    plots = run_plots(log, head.spec, usage, mean_pooling) if log else []
    if plots:
        draw_plots(plots, directory / PLOTS)
    page = _page(head.spec, directory.name, licence, plots, results)
    (directory / PAGE).write_text(page, encoding="utf-8")


def verdict(spec: HeadSpec) -> str:
    """Say whether the latent collapsed; empty for an autoencoder, which cannot collapse."""
    in_use = spec.training.get("dims_in_use")
    if in_use is None:
        return ""
    if problem := collapse(spec.training, spec.latent_dims):
        return f"Warning: the latent collapsed. At the end {problem}"
    return (
        f"The latent did not collapse: at the end {in_use:.0f} of {spec.latent_dims} latent dims "
        "carry information about their token."
    )


def exclusion_note(count: int) -> str:
    """Say how many sentences of the corpus `--exclude` dropped."""
    return f"Evaluation sentences dropped from the corpus: {count:,}."


def _description(spec: HeadSpec) -> str:
    backbone = spec.backbone
    latent = f"{spec.latent_dims} latent variables"
    if spec.model == "categorical":
        latent += f" of {spec.classes} classes"
    return (
        f"A {spec.model} encoder for the token outputs of {backbone.name} "
        f"({backbone.architecture}, layer {backbone.layer}, {backbone.hidden_size} wide, weights "
        f"with SHA-256 {backbone.sha256[:12]}…): {latent}."
    )


def _data(spec: HeadSpec, licence: str) -> str:
    text = f"{spec.corpus}. Licence of the data: {licence}. No labels were used."
    excluded = spec.training.get("sentences_excluded")
    return text if excluded is None else f"{text} {exclusion_note(int(excluded))}"


def _settings(spec: HeadSpec) -> dict[str, object]:
    return {key: value for key, value in spec.recipe.items() if value is not None}


def _figures(spec: HeadSpec) -> dict[str, str]:
    return {key: f"{value:,g}" for key, value in spec.training.items()}


def _page(
    spec: HeadSpec, name: str, licence: str, plots: Sequence[Plot], results: Sequence[Table]
) -> str:
    scores = "\n".join(_table(table) for table in results)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(name)}: training report</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(name)}</h1>
<p>{escape(_description(spec))}</p>
<p>{escape(_data(spec, licence))}</p>
{_verdict(spec)}
<h2>Training curves</h2>
<div class="plots">
{"".join(map(_figure, plots))}</div>
<h2>Scores</h2>
{f'<div class="tables">{scores}</div>' if results else _NOT_EVALUATED}
<h2>Settings and final figures</h2>
<div class="tables">
{_table(_two_columns("Recipe", _settings(spec)))}
{_table(_two_columns("Final figures", _figures(spec)))}
</div>
</body>
</html>
"""


def _verdict(spec: HeadSpec) -> str:
    kind = "verdict warning" if collapse(spec.training, spec.latent_dims) else "verdict"
    text = verdict(spec)
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""


def _figure(plot: Plot) -> str:
    image = b64encode(plot.png()).decode()
    alternative, caption = escape(f"{plot.title}. {plot.summary}"), escape(plot.caption)
    kind = "wide" if plot.is_wide else "narrow"
    return (
        f'<figure class="{kind}">'
        f'<img alt="{alternative}" src="data:image/png;base64,{image}">'
        f"<figcaption>{caption}</figcaption></figure>\n"
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
