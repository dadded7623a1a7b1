"""The card of a head: what it was made of, how, and how good it is, for people to read."""

from lattemix.build.head import Head, HeadSpec

FILE = "README.md"


def card(head: Head, name: str, licence: str, results: str | None = None) -> str:
    """Markdown about a head.

    Args:
        head: the head.
        name: what to call it.
        licence: of the sentences it was trained on.
        results: a Markdown table of scores beside the controls, if it was evaluated.
    """
    spec = head.spec
    settings = {key: value for key, value in spec.recipe.items() if value is not None}
    recipe = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
    figures = "\n".join(f"| {key} | {value:,g} |" for key, value in spec.training.items())
    return f"""# {name}

{what_it_is(spec)}
`head.safetensors` holds its numbers, `head.json` everything else.

## Data

{data_of(spec, licence)}

## Recipe

| setting | value |
|---|---|
{recipe}

## Training

The run, and its last figures (loss, reconstruction and KL in nats per token):

| | |
|---|---|
{figures}

## Results

{results or "Not evaluated yet: `lattemix-train evaluate` does it."}
"""


def what_it_is(spec: HeadSpec) -> str:
    """A sentence about the head and its backbone."""
    backbone = spec.backbone
    what = f"{spec.latent_dims} latent variables"
    if spec.model == "categorical":
        what += f" of {spec.classes} classes"
    return (
        f"A {spec.model} encoder for the token outputs of {backbone.name} "
        f"({backbone.architecture}, layer {backbone.layer}, {backbone.hidden_size} wide, weights "
        f"of SHA-256 {backbone.sha256[:12]}…): {what}."
    )


def data_of(spec: HeadSpec, licence: str) -> str:
    """Sentences about what it was trained on."""
    return f"{spec.corpus}. Licence of the data: {licence}. No labels were used."
