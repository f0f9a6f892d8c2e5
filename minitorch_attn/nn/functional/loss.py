"""Losses: how far a prediction is from its target.

Every loss is computed for each element or sample, and then, by `reduction`, kept ("none"), added up ("sum") or
averaged ("mean"). Logarithms are natural, so losses of probabilities are in nats.
"""
import functools

from ...autograd import Tensor
from ...backend import check_index, quiet, xp
from ...ops.broadcast import as_tensor_pair, cast, number, unbroadcast
from ...ops.elementwise import log_one_plus_exp, logistic_from
from .activation import shifted, through_float32

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "l1_loss",
    "mse_loss", "nll_loss", "smooth_l1_loss",
]


# Losses of a choice between classes

@through_float32
def cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """How surprised the distribution softmax(input) is by the target, in nats.

    loss = -sum_c q_c log p_c with p = softmax(input) over the classes and q what the target asks for: for a class
    index t, q_t = 1 and the rest 0. Label smoothing s makes it (1 - s) q_c + s / C, and a class weight multiplies it
    by w_c. The mean over samples divides by the sum of their w_t if targets are indices, else by their number.

    Parameters
    ----------
    input : Tensor (N, C), (N, C, d1, ...) or (C,)
        Logits: log probabilities up to a constant.
    target : Tensor (N,), (N, d1, ...) or () of class indices in [0, C), or a floating-point one like input
        of probabilities q.
    weight : Tensor (C,), optional
        A factor for each class.
    ignore_index : int
        Samples with this target index count as if they were not there.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float in [0, 1]

    Returns
    -------
    Tensor (), or with reduction "none" as many losses as there are samples, in the shape of the index targets.
    The mean over no samples is NaN, with zero gradients.

    Raises
    ------
    IndexError
        If a target that is not `ignore_index` lies outside [0, C).
    ValueError, RuntimeError
        If the shapes do not fit together, `reduction` is none of the three, or `label_smoothing` is outside [0, 1].

    References
    ----------
    Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception architecture for computer vision",
    CVPR 2016, section 7 (label smoothing).
    """
    check_reduction(reduction)
    label_smoothing = number(label_smoothing)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must lie in [0, 1], got {label_smoothing}")
    if target.dtype.kind == "f":
        return cross_entropy_of_probabilities(input, target, weight, reduction, label_smoothing)
    return cross_entropy_of_index(input, target, weight, ignore_index, reduction, label_smoothing)


@quiet
def cross_entropy_of_index(input, target, weight, ignore_index, reduction, smoothing):
    """`cross_entropy` where targets are class indices. The exponentials are kept, so that backward needs none."""
    z, t, keep, w, w_t = class_targets("cross_entropy", input, target, weight, ignore_index)  # z (N, C)
    z, e, total = exponentials(z)
    log_total, rows, share = xp.log(total), xp.arange(len(t)), smoothing / len(w)
    losses = (1 - smoothing) * w_t * (log_total - z[rows, t])  # -log p_c = log_total - z_c
    w_sum = w.sum()
    if smoothing:  # s/C sum_c w_c (log_total - z_c) = s/C (w_sum log_total - z . w)
        losses += share * (w_sum * log_total - xp.matmul(z, w))
    losses = xp.where(keep, losses, 0.0)
    divisor = w_t.sum() if reduction == "mean" else 1
    y = losses.reshape(target.shape) if reduction == "none" else losses.sum() / divisor
    input_shape = input.shape

    def backward(g):
        # d loss/dz_c = p_c sum_k q_k - q_c with p = e / total and the weighted q_c = w_c ((1 - s) [c = t] + s / C)
        g = xp.where(keep, g.reshape(-1) / divisor, 0.0)  # not a product: where all are ignored the divisor is 0
        q_t = (1 - smoothing) * w_t * g
        q_sum = q_t + share * w_sum * g if smoothing else q_t
        gz = e * (q_sum / total)[:, None]
        gz[rows, t] -= q_t
        if smoothing:
            gz -= (share * g)[:, None] * w
        return as_input(gz, input_shape), *no_gradients

    fixed = given(target, weight)
    no_gradients = [None] * len(fixed)
    return Tensor.from_op("cross_entropy", y, (input, *fixed), backward)


@quiet
def cross_entropy_of_probabilities(input, target, weight, reduction, smoothing):
    """`cross_entropy` where targets are distributions over the classes; they get a gradient too."""
    if target.shape != input.shape or input.ndim == 0 or target.dtype != input.dtype:
        raise RuntimeError("cross_entropy with probabilities needs a target of input's shape and dtype, "
                           f"{input.dtype}{input.shape}, got {target.dtype}{target.shape}")
    z, q = by_class(input.array), by_class(target.array)
    w = class_weight("cross_entropy", weight, z)
    z, e, total = exponentials(z)
    log_total = xp.log(total)
    q = (q * (1 - smoothing) + smoothing / len(w)) * w  # smoothed and weighted
    q_sum = xp.matmul(q, xp.ones(len(w), q.dtype))
    losses = q_sum * log_total - xp.einsum("ij,ij->i", q, z)  # -log p_c = log_total - z_c
    divisor = len(losses) if reduction == "mean" else 1
    y = losses.reshape(input.shape[:1] * (input.ndim > 1) + input.shape[2:]) if reduction == "none" \
        else losses.sum() / divisor
    input_shape = input.shape

    def backward(g):
        # d loss/dz_c = p_c sum_k q_k - q_c with p = e / total and the weighted q;
        # d loss/d target_c = -(1 - s) w_c log p_c
        g = xp.broadcast_to(g.reshape(-1) / divisor, losses.shape)
        gz = e * (q_sum * g / total)[:, None]
        gz -= q * g[:, None]
        gt = (log_total[:, None] - z) * w * ((1 - smoothing) * g)[:, None]
        return as_input(gz, input_shape), as_input(gt, input_shape), *no_gradients

    fixed = given(weight)
    no_gradients = [None] * len(fixed)
    return Tensor.from_op("cross_entropy", y, (input, target, *fixed), backward)


@quiet
@through_float32
def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """Minus the log probability of the target, -w_t input_t: `cross_entropy` after `log_softmax`.

    Parameters
    ----------
    input : Tensor (N, C), (N, C, d1, ...) or (C,)
        Log probabilities.
    target : Tensor (N,), (N, d1, ...) or () of class indices in [0, C)
    weight : Tensor (C,), optional
        A factor for each class; the mean divides by the sum of the samples' w_t.
    ignore_index : int
        Samples with this target count as if they were not there.
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor (), or with reduction "none" like target

    Raises
    ------
    IndexError
        If a target that is not `ignore_index` lies outside [0, C).
    RuntimeError, ValueError
        If the shapes do not fit together, or `reduction` is none of the three.
    """
    check_reduction(reduction)
    z, t, keep, _, w_t = class_targets("nll_loss", input, target, weight, ignore_index)  # z (N, C)
    rows = xp.arange(len(t))
    losses = xp.where(keep, -w_t * z[rows, t], 0.0)
    divisor = w_t.sum() if reduction == "mean" else 1
    y = losses.reshape(target.shape) if reduction == "none" else losses.sum() / divisor
    input_shape, z_shape = input.shape, z.shape

    def backward(g):
        gz = xp.zeros(z_shape, g.dtype)
        gz[rows, t] = xp.where(keep, -w_t * (g.reshape(-1) / divisor), 0.0)
        return (as_input(gz, input_shape), None)

    return Tensor.from_op("nll_loss", y, (input, target), backward)


def class_targets(name, input, target, weight, ignore_index):
    """What the losses of class indices start from.

    Returns
    -------
    z : array (N, C), the input with one row a sample
    t : array (N,), the targets, 0 in place of `ignore_index`
    keep : boolean array (N,), False for `ignore_index`
    w, w_t : arrays (C,) and (N,), the weight of each class, and of each sample's class, 0 where it is ignored
    """
    samples = input.shape[:input.ndim > 1] + input.shape[2:]
    if target.dtype.kind not in "iu" or input.ndim == 0 or target.shape != samples:
        raise RuntimeError(f"{name} needs input (N, C, ...) and target (N, ...) of class indices, got {input.shape} "
                           f"and {target.dtype}{target.shape}; the classes are the second axis of input")
    z, t = by_class(input.array), target.array.reshape(-1).astype("int64")  # `ignore_index` may be negative
    keep = t != ignore_index
    t = xp.where(keep, t, 0)
    check_index(t, z.shape[1], "target")
    w = class_weight(name, weight, z)
    return z, t, keep, w, xp.where(keep, w[t], 0.0)


def class_weight(name, weight, z):
    """The weight of each class as an array (C,), ones if none is given."""
    if weight is None:
        return xp.ones(z.shape[1], z.dtype)
    if weight.shape != z.shape[1:] or weight.dtype != z.dtype:
        raise RuntimeError(f"{name} needs weight {z.dtype}({z.shape[1]},), one for each class, got "
                           f"{weight.dtype}{weight.shape}")
    return weight.array


def by_class(a):
    """(N, C, d1, ...) -> (N d1 ..., C), and (C,) -> (1, C): one row a sample."""
    if a.ndim == 1:
        return a[None]
    return a if a.ndim == 2 else xp.moveaxis(a, 1, -1).reshape(-1, a.shape[1])


def as_input(rows, shape):
    """The inverse of `by_class`: (N d1 ..., C) -> shape (N, C, d1, ...)."""
    if len(shape) < 3:
        return rows.reshape(shape)
    return xp.moveaxis(rows.reshape(*shape[:1], *shape[2:], shape[1]), -1, 1)


def exponentials(z):
    """z with each row shifted, e^z, and the row sums of e^z: softmax is e / total, its logarithm z - log total."""
    z = shifted(z, 1)
    e = xp.exp(z)
    return z, e, xp.matmul(e, xp.ones(e.shape[1], e.dtype))


# Losses of numbers

def promoted(function):
    """Decorate a loss of two operands: they get one dtype first, and if that is float16, `through_float32` applies."""
    computed = through_float32(function)

    @functools.wraps(function)
    def wrapper(input, target, **options):
        input, target, _, _ = as_tensor_pair(input, target)
        return computed(input, target, **options)

    return wrapper


@quiet
@promoted
def mse_loss(input, target, *, reduction="mean"):
    """The squared error (input - target)^2.

    Parameters
    ----------
    input, target : Tensor
        Broadcast against each other.
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor (), or with reduction "none" of the broadcast shape
    """
    input, target, x, t = as_tensor_pair(input, target)
    d = x - t
    y, scale = reduced(d * d, reduction)
    x_shape, t_shape = x.shape, t.shape

    def backward(g):
        gx = d * (2 * scale * g)
        return unbroadcast(gx, x_shape), unbroadcast(-gx, t_shape)

    return Tensor.from_op("mse_loss", y, (input, target), backward)


@quiet
@promoted
def l1_loss(input, target, *, reduction="mean"):
    """The absolute error |input - target|, whose derivative is the sign of the difference, 0 where they are equal.

    Parameters and Returns are those of `mse_loss`.
    """
    input, target, x, t = as_tensor_pair(input, target)
    d = x - t
    y, scale = reduced(xp.absolute(d), reduction)
    x_shape, t_shape = x.shape, t.shape

    def backward(g):
        gx = xp.sign(d) * (scale * g)
        return unbroadcast(gx, x_shape), unbroadcast(-gx, t_shape)

    return Tensor.from_op("l1_loss", y, (input, target), backward)


@quiet
@promoted
def huber_loss(input, target, *, reduction="mean", delta=1.0):
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = input - target.

    The derivative is d, cut off at -delta and delta.

    Parameters
    ----------
    input, target : Tensor
        Broadcast against each other.
    reduction : {"mean", "sum", "none"}
    delta : float above 0

    Returns
    -------
    Tensor (), or with reduction "none" of the broadcast shape

    Raises
    ------
    ValueError
        If `delta` is not above 0.

    References
    ----------
    Huber, "Robust estimation of a location parameter", Ann. Math. Statist. 35(1), 1964.
    """
    delta = number(delta)
    if delta <= 0:
        raise ValueError(f"delta must be above 0, got {delta}")
    input, target, x, t = as_tensor_pair(input, target)
    d = x - t
    cut = xp.clip(d, -delta, delta)
    y, scale = reduced(cut * (d - 0.5 * cut), reduction)  # d^2 / 2 inside, delta (|d| - delta / 2) outside
    x_shape, t_shape = x.shape, t.shape

    def backward(g):
        gx = cut * (scale * g)
        return unbroadcast(gx, x_shape), unbroadcast(-gx, t_shape)

    return Tensor.from_op("huber_loss", y, (input, target), backward)


@promoted
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = input - target: `huber_loss` / beta.

    Parameters and Returns are those of `huber_loss`; beta = 0 is `l1_loss`, and a negative one raises ValueError.
    """
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction=reduction, delta=beta) / beta


# Losses of probabilities

@quiet
@through_float32
def binary_cross_entropy(input, target, weight=None, *, reduction="mean"):
    """-w (t log x + (1 - t) log(1 - x)) for a probability x and a target t in [0, 1].

    The logarithms are not let below -100, so that a certain and wrong prediction costs 100 instead of infinity.

    Parameters
    ----------
    input : Tensor of probabilities in [0, 1]
    target : Tensor like input
    weight : Tensor, optional
        Broadcasts against the losses.
    reduction : {"mean", "sum", "none"}

    Returns
    -------
    Tensor (), or with reduction "none" like input

    Raises
    ------
    ValueError
        If `target` has another shape than `input`.
    RuntimeError
        If an input lies outside [0, 1].
    """
    check_alike("binary_cross_entropy", input, target)
    x, t = input.array, target.array
    if x.size and not (float(x.min()) >= 0 and float(x.max()) <= 1):
        raise RuntimeError("binary_cross_entropy needs probabilities in [0, 1]; for logits there is "
                           "binary_cross_entropy_with_logits")
    weight = None if weight is None else cast(weight, x.dtype)
    w = 1.0 if weight is None else weight.array
    log_x, log_rest = xp.clip(xp.log(x), -100, None), xp.clip(xp.log1p(-x), -100, None)
    y, scale = reduced(-w * (t * log_x + (1 - t) * log_rest), reduction)

    def backward(g):
        g = w * (scale * g)
        gx = g * (x - t) / xp.clip(x * (1 - x), 1e-12, None)  # at x = 0 and 1 large, as in PyTorch, not infinite
        return gx, g * (log_rest - log_x), *no_gradients

    fixed = given(weight)
    no_gradients = [None] * len(fixed)
    return Tensor.from_op("binary_cross_entropy", y, (input, target, *fixed), backward)


@quiet
@through_float32
def binary_cross_entropy_with_logits(input, target, weight=None, *, reduction="mean", pos_weight=None):
    """`binary_cross_entropy` of sigmoid(input), computed without ever forming a probability that rounds to 0 or 1.

    loss = -w (p t log s + (1 - t) log(1 - s)) with s = sigmoid(x) = w ((1 - t) x + (1 + (p - 1) t) log(1 + e^-x)).

    Parameters
    ----------
    input : Tensor
        Logits.
    target : Tensor like input, in [0, 1]
    weight : Tensor, optional
        w; broadcasts against the losses.
    reduction : {"mean", "sum", "none"}
    pos_weight : Tensor, optional
        p, the factor of the positive part; broadcasts against the losses.

    Returns
    -------
    Tensor (), or with reduction "none" like input

    Raises
    ------
    ValueError
        If `target` has another shape than `input`.
    """
    check_alike("binary_cross_entropy_with_logits", input, target)
    x, t = input.array, target.array
    weight, pos_weight = (None if v is None else cast(v, x.dtype) for v in (weight, pos_weight))
    w = 1.0 if weight is None else weight.array
    p = 1.0 if pos_weight is None else pos_weight.array
    softplus, small = log_one_plus_exp(-x)
    positive = 1 + (p - 1) * t
    y, scale = reduced(w * ((1 - t) * x + positive * softplus), reduction)

    def backward(g):
        # d/dx log(1 + e^-x) = -s(-x)
        g = w * (scale * g)
        s = logistic_from(-x, small)
        return g * (1 - t - positive * s), g * ((p - 1) * softplus - x), *no_gradients

    fixed = given(weight, pos_weight)
    no_gradients = [None] * len(fixed)
    return Tensor.from_op("binary_cross_entropy_with_logits", y, (input, target, *fixed), backward)


@quiet
@promoted
def kl_div(input, target, *, reduction="mean", log_target=False):
    """The Kullback-Leibler divergence of target from input, element by element: t (log t - x), in nats; 0 where t = 0.

    Parameters
    ----------
    input : Tensor
        x, log probabilities of the prediction.
    target : Tensor
        t, probabilities, or their logarithms if `log_target`; broadcasts against input.
    reduction : {"mean", "batchmean", "sum", "none"}
        "batchmean" divides the sum by the size of the first axis, which is the divergence of the distributions;
        "mean" divides by the number of elements.
    log_target : bool

    Returns
    -------
    Tensor (), or with reduction "none" of the broadcast shape
    """
    input, target, x, t = as_tensor_pair(input, target)
    p, log_p = (xp.exp(t), t) if log_target else (t, xp.log(t))
    d = log_p - x
    y, scale = reduced(xp.where(p == 0, 0.0, p * d), "sum" if reduction == "batchmean" else reduction)
    if reduction == "batchmean":
        scale = 1 / (x.shape[0] if x.ndim else 1)
        y = y * scale
    x_shape, t_shape = x.shape, t.shape

    def backward(g):
        g = g * scale
        # d/dt t (log t - x) = log t - x + 1; with log_target d/dt e^t (t - x) = e^t (t - x + 1)
        gt = g * p * (d + 1) if log_target else g * (d + 1)
        return unbroadcast(-g * p, x_shape), unbroadcast(gt, t_shape)

    return Tensor.from_op("kl_div", y, (input, target), backward)


def given(*tensors):
    """Those of the tensors that are not None: constants that a node links to, so that a later write is noticed."""
    return tuple(v for v in tensors if v is not None)


def check_reduction(reduction):
    """ValueError unless `reduction` is one of the three."""
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def check_alike(name, input, target):
    """Raise unless target has input's shape and dtype."""
    if target.shape != input.shape:
        raise ValueError(f"{name} needs a target of input's shape {input.shape}, got {target.shape}; reshape one")
    if target.dtype != input.dtype:
        raise RuntimeError(f"{name} needs a target of input's dtype {input.dtype}, got {target.dtype}; convert "
                           "it with to(dtype)")


def reduced(losses, reduction):
    """The loss of many, and the factor that each one's gradient gets."""
    check_reduction(reduction)
    if reduction == "none":
        return losses, 1.0
    return (losses.sum(), 1.0) if reduction == "sum" else (losses.sum() / losses.size, 1 / max(losses.size, 1))
