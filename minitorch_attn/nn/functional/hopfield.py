"""Modern Hopfield networks: an associative memory, whose update is attention.

The memory holds patterns x_1 to x_S. A state q moves downhill in the energy

    E(q) = -log(sum_s e^(beta x_s . q)) / beta + q . q / 2 + (log S) / beta + max |x|^2 / 2

whose gradient is q - X^T softmax(beta X q). So the update q <- X^T softmax(beta X q) is one step of attention with the
patterns as keys and values and beta in place of 1 / sqrt(D). With a large beta one step nearly always suffices; a beta
of 1 / sqrt(D) is usually too small for a memory, and gives means of many patterns.

References
----------
Ramsauer et al. 2021, "Hopfield Networks is All You Need", equations 2 and 3, theorems 1 to 4.
"""
import math

from ...ops.broadcast import cast, number
from ...ops.reduce import amax, logsumexp
from ...ops.reduce import sum as total
from .attention import _widen, scaled_dot_product_attention

__all__ = ["hopfield_energy", "hopfield_update"]


def hopfield_update(state, patterns, beta=1.0, steps=1):
    r"""Move states towards the stored patterns that they resemble.

    .. math:: q \leftarrow X^\top \mathrm{softmax}(\beta X q)

    Parameters
    ----------
    state : Tensor (..., T, D)
    patterns : Tensor (..., S, D)
    beta : float, positive
        The inverse temperature: large retrieves one pattern, small the mean of many.
    steps : int
        How often to update.

    Returns
    -------
    Tensor (..., T, D)

    Raises
    ------
    ValueError
        If `beta` is not positive, or `steps` is negative.
    RuntimeError
        If shapes or dtypes do not fit.
    """
    check_beta(beta)
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    for _ in range(steps):
        state = scaled_dot_product_attention(state, patterns, patterns, scale=beta)
    return state


def hopfield_energy(state, patterns, beta=1.0):
    r"""The energy of states, which no update increases; at least 0.

    .. math:: E(q) = -\frac{1}{\beta} \log \sum_s e^{\beta x_s \cdot q} + \frac{q \cdot q}{2} + \frac{\log S}{\beta}
        + \frac{\max_s |x_s|^2}{2}

    Parameters
    ----------
    state : Tensor (..., T, D)
    patterns : Tensor (..., S, D)
    beta : float, positive

    Returns
    -------
    Tensor (..., T)

    Raises
    ------
    ValueError
        If `beta` is not positive.
    """
    check_beta(beta)
    dtype, (state, patterns), beta = state.dtype, _widen(state, patterns), number(beta)
    scores = state @ patterns.transpose(-1, -2) * beta  # (..., T, D) (..., D, S) -> (..., T, S)
    longest = amax(total(patterns * patterns, -1), -1, keepdim=True)  # (..., S, D) -> (..., 1)
    square = total(state * state, -1)  # (..., T, D) -> (..., T)
    energy = (math.log(patterns.shape[-2]) - logsumexp(scores, -1)) / beta + (square + longest) / 2
    return cast(energy, dtype)


def check_beta(beta):
    """ValueError unless `beta` is positive: at 0 all patterns count alike, below it those that resemble least win."""
    if not beta > 0:
        raise ValueError(f"beta, the inverse temperature, must be positive, got {beta}")
