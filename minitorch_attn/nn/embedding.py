"""Embedding: a table of learned vectors, read by index."""
from ..ops import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding"]


class Embedding(Module):
    """A learned vector for each of `num_embeddings` ids: ``y[..., :] = weight[x[...], :]``.

    Differs from PyTorch: `max_norm`, `scale_grad_by_freq` and `sparse` are refused, and a `padding_idx` outside the
    table raises ValueError.

    Parameters
    ----------
    num_embeddings : int
        The number of ids (the size of the vocabulary).
    embedding_dim : int
        The width of a vector.
    padding_idx : int, optional
        The id of padding, which may count from the end: its row starts at zero and gets no gradient.
    max_norm, norm_type, scale_grad_by_freq, sparse
        Accepted for PyTorch's sake, at their defaults only.
    device, dtype : "cpu" and the parameter's dtype; optional

    Attributes
    ----------
    weight : Parameter (num_embeddings, embedding_dim), standard normal at first
    padding_idx : int in [0, num_embeddings), or None

    Raises
    ------
    ValueError
        If `padding_idx` is not the index of a row.
    NotImplementedError
        If `max_norm`, `scale_grad_by_freq` or `sparse` is given.
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0,
                 scale_grad_by_freq=False, sparse=False, _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__()
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise NotImplementedError("Embedding has no max_norm, scale_grad_by_freq or sparse: clip the weight after "
                                      "each step, or scale the gradient, instead")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"padding_idx must be the index of a row, in [{-num_embeddings}, {num_embeddings}), "
                                 f"got {padding_idx}")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype), not _freeze)
            self.reset_parameters()
        else:
            if _weight.shape != (num_embeddings, embedding_dim):
                raise ValueError(f"weight has shape {_weight.shape}, not {(num_embeddings, embedding_dim)}")
            self.weight = Parameter(_weight, not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None, **kwargs):
        """An Embedding on the rows of `embeddings` (a 2-d Tensor, memory shared), by default not to be trained."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained() needs a tensor (ids, width), got shape {embeddings.shape}")
        return cls(*embeddings.shape, padding_idx, **kwargs, _weight=embeddings, _freeze=freeze)

    def reset_parameters(self):
        """Draw new values, standard normal, and put zeros in the padding row."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, x):
        """Integers (...) -> (..., embedding_dim)."""
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self):
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
