"""The training loop: token vectors in, a trained VAE out."""

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from training.objective import Loss, negative_elbo
from training.recipe import Recipe
from training.schedule import linear_annealing, linear_warmup_decay
from training.vae import CategoricalVAE


@dataclass(frozen=True)
class Summary:
    """The last step's figures, in nats per token."""

    loss: float
    reconstruction: float
    kl: float


def train(tokens: Tensor, recipe: Recipe, progress: bool = True) -> tuple[CategoricalVAE, Summary]:
    """Fit a categorical VAE to normalised token vectors [T, H], the same for the same seed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(recipe.seed)
    torch.manual_seed(recipe.seed)  # initial weights and Gumbel noise
    vae = CategoricalVAE(
        tokens.shape[1],
        recipe.latent_dims,
        recipe.classes,
        recipe.encoder_layers,
        recipe.decoder_layers,
    ).to(device)
    adam = torch.optim.Adam(vae.parameters(), lr=recipe.learning_rate)
    rate = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: linear_warmup_decay(step, recipe.steps, recipe.warmup)
    )
    bar = tqdm(range(recipe.steps), desc="Training", unit="step", disable=not progress)
    for step in bar:
        batch = tokens[torch.randint(len(tokens), (recipe.batch_tokens,), generator=generator)]
        batch = batch.to(device, torch.float32)
        logits, reconstruction = vae(batch, recipe.temperature)
        beta = linear_annealing(step, recipe.steps)
        loss = negative_elbo(batch, reconstruction, logits, beta, recipe.free_bits)
        adam.zero_grad()
        loss.total.backward()
        adam.step()
        rate.step()
        if step % 20 == 0:
            bar.set_postfix(_figures(loss))
    return vae.cpu(), Summary(*(value.item() for value in loss))


def _figures(loss: Loss) -> dict[str, str]:
    return {name: f"{value.item():.1f}" for name, value in loss._asdict().items()}
