"""The categorical VAE: a token's vector becomes L independent choices among C classes."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

HIDDEN_ACTIVATION = nn.ReLU


class CategoricalVAE(nn.Module):
    """Encoder `H -> L*C`, Gumbel-softmax, decoder `L*C -> H`, each of one to three layers."""

    def __init__(
        self,
        hidden_size: int,
        latent_dims: int,
        classes: int,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
    ) -> None:
        super().__init__()
        self.latent_dims, self.classes = latent_dims, classes
        code = latent_dims * classes
        self.encoder = mlp([hidden_size] * encoder_layers + [code])
        self.decoder = mlp([code] + [hidden_size] * decoder_layers)

    def logits(self, tokens: Tensor) -> Tensor:
        """Unnormalised log-probabilities of q(z|u): [T, H] -> [T, L, C]."""
        return self.encoder(tokens).unflatten(-1, (self.latent_dims, self.classes))

    def forward(self, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Return the logits [T, L, C] and the reconstruction [T, H] from one sample of z."""
        logits = self.logits(tokens)
        sample = functional.gumbel_softmax(logits, tau=temperature, dim=-1)  # [T, L, C]
        return logits, self.decoder(sample.flatten(-2))


def mlp(widths: list[int]) -> nn.Sequential:
    """Linear layers through `widths`, with an activation between every two."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), HIDDEN_ACTIVATION()]
    return nn.Sequential(*layers[:-1])
