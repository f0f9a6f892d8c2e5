"""The Vision Transformer in one file: cut an image into patches, read them like words, and name what it shows.

Read from the top: attention, the block, and the model, whose first layer makes the patches.

References
----------
Dosovitskiy et al. (2021), "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale" (equations 1 to
4; mean pooling: appendix D.3).
"""
from dataclasses import dataclass

from .. import nn
from ..nn import functional as F
from ..ops import cat, zeros
from .checks import check_range, check_sizes

__all__ = ["ViT", "ViTConfig", "patchify"]


@dataclass
class ViTConfig:
    """The sizes of a ViT.

    Parameters
    ----------
    image_size, patch_size : int or (int, int)
        Height and width in pixels; those of the image are multiples of those of a patch.
    channels : int
        Of the image: 3 for red, green and blue.
    classes : int
    n_layer, n_head, n_embd : int
        How many blocks; H heads in each; the width C, a multiple of H.
    dropout : float
        Probability in [0, 1) of dropping an entry of the embedding, the attention weights, and what each part adds.
    pool : "cls" or "mean"
        What the image is judged by: a token of its own that reads along, [CLS], or the mean of all patches.
    """
    image_size: int | tuple = 32
    patch_size: int | tuple = 4
    channels: int = 3
    classes: int = 10
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    pool: str = "cls"


def pair(size):
    """(height, width) of a size that may be one number for both."""
    return (size, size) if isinstance(size, int) else tuple(size)


def patchify(images, patch_size):
    """Cut images into patches, row by row, and lay each out as a vector: channel by channel, row by row.

    A linear layer on these vectors is a convolution whose kernel does not overlap with itself: the kernel
    (C, channels, p, q), flattened to (C, channels p q), is that layer's weight.

    Parameters
    ----------
    images : Tensor (B, channels, height, width)
    patch_size : int or (int, int)
        p by q pixels.

    Returns
    -------
    Tensor (B, N, channels p q), N = height / p * width / q

    Raises
    ------
    ValueError
        If `images` has not four axes, or cannot be cut into whole patches.
    """
    if images.ndim != 4:
        raise ValueError(f"images must be (batch, channels, height, width), got {tuple(images.shape)}; images[None] "
                         "adds a batch axis")
    (p, q), (B, channels, height, width) = pair(patch_size), images.shape
    if p < 1 or q < 1 or height % p or width % q:
        raise ValueError(f"images of {height} x {width} pixels cannot be cut into patches of {p} x {q}")
    x = images.view(B, channels, height // p, p, width // q, q)       # (B, c, h, w) -> (B, c, h/p, p, w/q, q)
    x = x.permute(0, 2, 4, 1, 3, 5)                                   # -> (B, h/p, w/q, c, p, q)
    return x.reshape(B, height // p * (width // q), channels * p * q)


class SelfAttention(nn.Module):
    """Each patch gathers from all patches, in H heads side by side."""

    def __init__(self, config):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x, need_weights=False):
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head)        # (B, T, C) -> (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)                        # -> three of (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).reshape(B, T, C)                                # (B, H, T, D) -> (B, T, C)
        return self.drop(self.proj(y)), F.attention_weights(q, k) if need_weights else None


class Block(nn.Module):
    """Attention, then a net of width F = 4C for each patch alone, each on a normalised copy and added to the rest."""

    def __init__(self, config):
        super().__init__()
        C = config.n_embd
        self.ln_1, self.attn = nn.LayerNorm(C), SelfAttention(config)
        self.ln_2 = nn.LayerNorm(C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(config.dropout))

    def forward(self, x, need_weights=False):
        y, weights = self.attn(self.ln_1(x), need_weights)
        x = x + y
        return x + self.mlp(self.ln_2(x)), weights


class ViT(nn.Module):
    """A ViT: patches as vectors, a position for each, `n_layer` blocks, and logits over the classes.

    Parameters
    ----------
    config : ViTConfig

    Attributes
    ----------
    grid : (int, int)
        How many patches stand in a column and in a row of the image.

    Raises
    ------
    ValueError
        If the width is not a multiple of the number of heads, the image cannot be cut into whole patches, or `pool` is
        another word.
    """

    def __init__(self, config):
        super().__init__()
        size, patch = pair(config.image_size), pair(config.patch_size)
        check_sizes(config)
        if min(*size, *patch) < 1 or size[0] % patch[0] or size[1] % patch[1]:
            raise ValueError(f"images of {size} pixels cannot be cut into patches of {patch}; height and width must "
                             "be multiples of the patch's, and all positive")
        if config.pool not in ("cls", "mean"):
            raise ValueError(f'pool must be "cls" or "mean", got {config.pool!r}')
        self.config, self.grid = config, (size[0] // patch[0], size[1] // patch[1])
        C, extra = config.n_embd, int(config.pool == "cls")
        self.patchify = nn.Conv2d(config.channels, C, kernel_size=patch, stride=patch)
        self.cls = nn.Parameter(zeros(1, 1, C)) if extra else None
        self.pos = nn.Parameter(zeros(1, self.grid[0] * self.grid[1] + extra, C))
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln = nn.LayerNorm(C)
        self.head = nn.Linear(C, config.classes)
        # About as large as the patches' vectors. From 0.02, as in the paper, small data takes several times as long to
        # find out that places matter.
        nn.init.normal_(self.pos, std=0.3)

    def forward(self, images, targets=None, need_weights=False):
        """Logits of what each image shows, and their loss.

        Parameters
        ----------
        images : Tensor (B, channels, height, width)
        targets : Tensor (B,), integers in [0, classes), optional
        need_weights : bool
            Whether to return what every head attends to.

        Returns
        -------
        logits : Tensor (B, classes)
        loss : Tensor () or None
            Mean cross-entropy in nats an image; None without targets.
        weights : list of Tensor (B, H, T, T), only with `need_weights`
            One for each layer. T is N, the number of patches, and one more with [CLS], which comes first.

        Raises
        ------
        ValueError
            If the images have another size than the model, or `targets` is not (B,).
        IndexError
            If a target is no class.
        """
        wanted = (self.config.channels, *pair(self.config.image_size))
        if images.ndim != 4 or images.shape[1:] != wanted:
            raise ValueError(f"images must be (batch, channels, height, width) with {wanted}, got "
                             f"{tuple(images.shape)}; images[None] adds a batch axis")
        if targets is not None:
            if targets.shape != images.shape[:1]:
                raise ValueError(f"targets must be ({len(images)},), one class an image, got {tuple(targets.shape)}")
            check_range(targets, self.config.classes, "targets")
        x = self.patchify(images).flatten(2).transpose(1, 2)                  # (B, c, h, w) -> (B, C, N) -> (B, N, C)
        if self.cls is not None:
            x = cat([self.cls.expand(len(x), -1, -1), x], dim=1)              # (B, N, C) -> (B, N+1, C)
        x, weights = self.drop(x + self.pos), []
        for block in self.blocks:
            x, w = block(x, need_weights)
            weights.append(w)
        x = self.ln(x)
        x = x.mean(1) if self.cls is None else x[:, 0]                        # (B, T, C) -> (B, C)
        logits = self.head(x)                                                 # -> (B, classes)
        loss = None if targets is None else F.cross_entropy(logits, targets)
        return (logits, loss, weights) if need_weights else (logits, loss)
