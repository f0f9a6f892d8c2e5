"""The bug zoo: plausible mistakes in backward functions, each with the name of its true cause.

A mistake is an edit of the package's own source. `cause` is what a teacher would say of it, in the words of
`minitorch_attn.gradient_check.CAUSES`; where a mistake shows differently in different arguments, a dictionary says
how. "unclear" stands where none of these words describes it.
"""
import inspect
from typing import NamedTuple

import numpy

import minitorch_attn as mt
from minitorch_attn.gradient_check.checkup import flattened
from minitorch_attn.gradient_check.samples import OPERATIONS, Draw, call
from minitorch_attn.nn import functional as F

from .mutate import edited_module

ELEMENTWISE, REDUCE, SHAPE, INDEX, SORT, LINALG, BROADCAST = (
    f"ops/{name}" for name in ("elementwise", "reduce", "shape", "index", "sort", "linalg", "broadcast"))
ACTIVATION, NORM, LOSS, ATTENTION, LINEAR, EMBEDDING, CONV, RECURRENT, DROPOUT = (
    f"nn/functional/{name}" for name in ("activation", "normalization", "loss", "attention", "linear", "embedding",
                                         "conv", "recurrent", "dropout"))


class Mistake(NamedTuple):
    """One wrong backward.

    path, function : where the edit is made
    edits : pairs (old, new)
    cause : its true cause, or {argument: cause}
    sample : function of a Draw that gives the arguments; by default the one for `op`
    op : the function that is called
    title : what was done wrong
    """
    title: str
    cause: object
    path: str
    function: str
    edits: tuple
    sample: object = None
    op: str | None = None

    @property
    def name(self):
        return self.op or self.function

    def build(self, seed=0):
        """The wrong function, as a function of the tensors to check it with, and these."""
        module = edited_module(self.path, self.function, self.edits)
        wrong = getattr(module, self.name)
        arguments, kwargs = (self.sample or OPERATIONS[self.name])(Draw(seed))
        arrays, put = flattened(arguments)
        words = list(inspect.signature(wrong).parameters)
        names = [name if not isinstance(a, list) else f"{name} {i}" for name, a in zip(words, arguments)
                 for i, b in enumerate(a if isinstance(a, list) else [a]) if isinstance(b, numpy.ndarray)]
        fixed = kwargs.pop("_fixed", ())

        def fn(*tensors):
            if self.name == "dropout":
                mt.manual_seed(0)
            return wrong(*[tuple(a) if isinstance(a, list) else a for a in put(tensors)], **kwargs)

        fn.__name__, fn.__doc__, fn.names = self.name, wrong.__doc__, names
        tensors = [mt.tensor(a) for a in arrays]
        for i, t in enumerate(tensors):
            t.requires_grad = t.dtype.kind == "f" and i not in fixed
        return fn, tuple(tensors)


ZOO = []


def wrong(title, cause, path, function, *edits, sample=None, op=None):
    """Add a mistake; `edits` is old, new, old, new, ..."""
    ZOO.append(Mistake(title, cause, path, function, tuple(zip(edits[::2], edits[1::2])), sample, op))


def square(s):
    return call(s("CC"), s("CC"))


def pair(s):
    return call(s("BC"), s("BC"))


# Element by element

wrong("d(x - y)/dy without the minus", "sign", ELEMENTWISE, "sub", "scaled(-alpha, g)", "scaled(alpha, g)")
wrong("gradient of a broadcast addend not summed", "unsummed_broadcast", ELEMENTWISE, "add",
      "gy = unbroadcast(g if alpha == 1 else scaled(alpha, g), y_shape)", "gy = g")
wrong("only the first row of a broadcast addend's gradient", "unsummed_broadcast", ELEMENTWISE, "add",
      "gy = unbroadcast(g if alpha == 1 else scaled(alpha, g), y_shape)", "gy = g[0]", sample=lambda s: call(
          s("BC"), s("C")))
wrong("the mean of a broadcast addend's gradient, not the sum", "factor", ELEMENTWISE, "add",
      "gy = unbroadcast(g if alpha == 1 else scaled(alpha, g), y_shape)", "gy = g.mean(0)", sample=lambda s: call(
          s("BC"), s("C")))
wrong("gradient of x times x itself, not times y", "swapped", ELEMENTWISE, "mul", "dzdx = ya if", "dzdx = xa if",
      sample=pair)
wrong("the gradients of a product exchanged", "swapped", ELEMENTWISE, "mul", "return gx, gy", "return gy, gx",
      sample=pair)
wrong("gradient of a product without the other factor", "wrong_factor", ELEMENTWISE, "mul", "g * dzdx", "g")
wrong("no gradient for the second factor", "zero_gradient", ELEMENTWISE, "mul", "return gx, gy", "return gx, None")
wrong("d(x/y)/dy without the minus", "sign", ELEMENTWISE, "div", "-gx * z", "gx * z")
wrong("d(x/y)/dy = -x/y, the square forgotten", "wrong_factor", ELEMENTWISE, "div", "-gx * z", "-g * z")
wrong("multiplied by y, not divided", "wrong_factor", ELEMENTWISE, "div", "gx = g / ya", "gx = g * ya")
wrong("the exponent not brought down", "factor", ELEMENTWISE, "pow", "exponent * power(xa, exponent - 1)",
      "power(xa, exponent - 1)", sample=lambda s: call(s.positive("AB"), 3))
wrong("the exponent not lowered", "wrong_factor", ELEMENTWISE, "pow", "exponent * power(xa, exponent - 1)",
      "exponent * power(xa, exponent)", sample=lambda s: call(s.positive("AB"), 3))
wrong("gradient of the exponent without log x", "wrong_factor", ELEMENTWISE, "pow", "g * (z * xp.log(xa))", "g * z",
      sample=lambda s: call(s.positive("AB"), s("AB")))
wrong("gradient of the maximum to both operands", "mask_ignored", ELEMENTWISE, "maximum", "masked(g, xa > ya) + half", "g",
      sample=lambda s: call(s.apart("AC"), s.apart("AC") + 0.05))
wrong("gradient of the minimum to the larger one", "mask_inverted", ELEMENTWISE, "minimum", "masked(g, xa < ya)",
      "masked(g, xa > ya)", sample=lambda s: call(s.apart("AC"), s.apart("AC") + 0.05))
wrong("-x with gradient +1", "sign", ELEMENTWISE, "neg", "(-g,)", "(g,)")
wrong("|x| with gradient 1 everywhere", "passed_on", ELEMENTWISE, "abs", "g * xp.sign(xa)", "g")
wrong("sqrt without the 2", "factor", ELEMENTWISE, "sqrt", "g / (2 * y)", "g / y")
wrong("sqrt multiplied by y, not divided", "wrong_factor", ELEMENTWISE, "sqrt", "g / (2 * y)", "g * y / 2")
wrong("rsqrt without the minus", "sign", ELEMENTWISE, "rsqrt", "-0.5 * g", "0.5 * g")
wrong("rsqrt with the square, not the cube", "wrong_factor", ELEMENTWISE, "rsqrt", "y * y * y", "y * y")
wrong("1/x with gradient -1/x", "wrong_factor", ELEMENTWISE, "reciprocal", "-g * y * y", "-g * y")
wrong("exp that passes g on", "passed_on", ELEMENTWISE, "exp", "g * y", "g")
wrong("exp that ignores g", "ignored_upstream", ELEMENTWISE, "exp", "g * y", "y * 1")
wrong("2^x without log 2", "factor", ELEMENTWISE, "exp2", " * math.log(2)", "")
wrong("log multiplied by x, not divided", "wrong_factor", ELEMENTWISE, "log", "g / xa", "g * xa")
wrong("log2 without log 2", "factor", ELEMENTWISE, "log2", "(xa * math.log(2))", "xa")
wrong("sigmoid without 1 - y", "wrong_factor", ELEMENTWISE, "sigmoid", "y * (1 - y)", "y")
wrong("sigmoid with the gradient in float32", "wrong_dtype", ELEMENTWISE, "sigmoid", "(g * (y * (1 - y)),)",
      "((g * (y * (1 - y))).astype('float32'),)")
wrong("tanh with 1 - y, the square forgotten", "unclear", ELEMENTWISE, "tanh", "1 - y * y", "1 - y")
wrong("cos without the minus", "sign", ELEMENTWISE, "cos", "-g *", "g *")
wrong("erf without 2/sqrt(pi)", "factor", ELEMENTWISE, "erf", "2 / math.sqrt(math.pi) * ", "")
wrong("clamp that passes everything on", "mask_ignored", ELEMENTWISE, "clamp_min", "masked(g, xa >= la)", "g",
      sample=lambda s: call(s.apart("AC"), -0.2))
wrong("where that gives x everything", "mask_ignored", ELEMENTWISE, "where", "xp.where(ca, g, 0.0)", "g",
      sample=lambda s: call(s.truths("BC"), s("BC"), s("BC")))
wrong("where with y's gradient at x's places", "mask_inverted", ELEMENTWISE, "where", "xp.where(ca, 0.0, g)",
      "xp.where(ca, g, 0.0)", sample=lambda s: call(s.truths("BC"), s("BC"), s("BC")))
wrong("masked_fill with the mask forgotten", "mask_ignored", ELEMENTWISE, "masked_fill", "xp.where(ma, 0.0, g)", "g")
wrong("masked_fill with the mask upside down", "mask_inverted", ELEMENTWISE, "masked_fill", "xp.where(ma, 0.0, g)",
      "xp.where(ma, g, 0.0)")

# Reductions

wrong("mean without 1/n", "factor", REDUCE, "mean", "wide(g) / n", "wide(g)")
wrong("mean divided by the size of everything", "factor", REDUCE, "mean", "wide(g) / n",
      "wide(g) / math.prod(shape)")
wrong("a sum spread along the wrong axis", "wrong_axis", REDUCE, "sum", "g.reshape(kept)", "g.reshape(kept[::-1])",
      sample=lambda s: call(s("CC"), dim=0))
wrong("the sum's gradient at the first place alone", "unclear", REDUCE, "sum",
      "(xp.broadcast_to(g.reshape(kept), shape),)",
      "(xp.broadcast_to(g.reshape(kept), shape) * (xp.arange(shape[-1]) == 0),)",
      sample=lambda s: call(s("BC"), dim=1))
ZOO[-1] = ZOO[-1]._replace(cause="zero_gradient")
wrong("variance without the 2", "factor", REDUCE, "var", "2 * wide(g)", "wide(g)")
wrong("variance by n, not n - 1", "factor", REDUCE, "var", "/ divisor *", "/ (divisor + 1) *")
wrong("std with the variance's gradient", "wrong_factor", REDUCE, "std", "(xp.where(y == 0, 1.0, y) * divisor)",
      "divisor")
wrong("the maximum's gradient to all", "mask_ignored", REDUCE, "extreme_along", "along == index", "along == along",
      op="max")
wrong("the maximum's gradient to the next place", "misplaced", REDUCE, "extreme_along", "along == index",
      "along == (index + 1) % shape[axis]", op="max")
wrong("logsumexp that spreads g evenly", "passed_on", REDUCE, "logsumexp",
      "g.reshape(kept) / xp.where(total == 0, 1.0, total) * e", "xp.broadcast_to(g.reshape(kept), shape)")
wrong("logsumexp with e, not normalised", "unclear", REDUCE, "logsumexp", "/ xp.where(total == 0, 1.0, total) * e",
      "* e")
wrong("the product's gradient not divided by x", "wrong_factor", REDUCE, "prod", "before * after",
      "before * after * row")
wrong("cumsum's gradient summed from the front", "transpose", REDUCE, "cumsum",
      "xp.flip(xp.cumsum(row, axis=axis), axis)", "xp.cumsum(g, axis=axis)")
wrong("cumsum that passes g on", "diagonal_only", REDUCE, "cumsum", "xp.flip(xp.cumsum(row, axis=axis), axis)", "g")
wrong("cumsum's gradient along another axis", "wrong_axis", REDUCE, "cumsum",
      "xp.flip(xp.cumsum(row, axis=axis), axis)",
      "xp.flip(xp.cumsum(xp.flip(g, 0), axis=0), 0)")
wrong("cumprod with later products forgotten", "diagonal_only", REDUCE, "cumprod", "xp.moveaxis(s, 0, axis)",
      "g")
wrong("norm with x, not x / norm", "wrong_factor", REDUCE, "norm", "dydx = ratio\n", "dydx = xa\n",
      sample=lambda s: call(s.positive("ABC"), 2, 1))

# Shapes and indices

wrong("permuted forwards again, not back", "transpose", SHAPE, "permute", "g.transpose(undo)", "g.transpose(order)",
      sample=lambda s: call(s("BBB"), (2, 0, 1)))
wrong("a square not transposed back", "transpose", SHAPE, "transpose", "(g.swapaxes(dim0, dim1),)", "(g,)",
      sample=lambda s: call(s("CC"), 0, 1))
wrong("the pieces of cat in reverse order", "swapped", SHAPE, "cat", "tuple(pieces)", "tuple(pieces[::-1])",
      sample=lambda s: call([s("AB"), s("AB")]))
wrong("the first piece for every tensor of a stack", "swapped", SHAPE, "stack", "g[(*before, i, ...)]",
      "g[(*before, 0, ...)]",
      sample=lambda s: call([s("AB"), s("AB"), s("AB")]))
wrong("flip not undone", "misplaced", SHAPE, "flip", "(g[index],)", "(g,)", sample=lambda s: call(s("BC"), 1))
wrong("rolled on, not back", "misplaced", SHAPE, "roll", "xp.roll(g, back, axis=axes)",
      "xp.roll(g, shifts, axis=axes)",
      sample=lambda s: call(s("BC"), 1, 1))
wrong("only the first of the copies of repeat", "unsummed_broadcast", SHAPE, "repeat",
      "g.reshape(apart).sum(axis=copies).reshape(x_shape)", "g[:x_shape[0], :x_shape[1]]")
wrong("the mean over the copies of repeat", "factor", SHAPE, "repeat", ".sum(axis=copies)", ".mean(axis=copies)")
wrong("tril's zeros forgotten", "mask_ignored", SHAPE, "tril", "xp.tril(g, diagonal)", "g")
wrong("overlapping windows overwrite each other", "lost_path", SHAPE, "unfold", "gx[index] += g[..., k]",
      "gx[index] = g[..., k]")
wrong("only one of the copies of expand", "unsummed_broadcast", BROADCAST, "expand", "unbroadcast(g, x_shape)",
      "g[:1]",
      sample=lambda s: call(s("1C"), (3, 5)))
wrong("rows read twice overwrite each other", "lost_path", INDEX, "read", "if repeats:", "if False:",
      op="index_select")
wrong("gather's repeats overwrite each other", "lost_path", INDEX, "gather",
      "(add_at_positions(x_shape, positions, g),)",
      "(at_set(x_shape, positions, g),)", "def backward(g):", "def at_set(shape, places, values):\n"
      "        a = xp.zeros(math.prod(shape), values.dtype)\n        a[places] = values\n"
      "        return a.reshape(shape)\n\n"
      "    def backward(g):")
wrong("the source's gradient taken in order, not by index", "unclear", INDEX, "scatter_add",
      "at_positions(g, positions)", "g[part]")
wrong("sort passes g on in sorted order", "misplaced", SORT, "picked", "(add_at_positions(x_shape, positions, g),)",
      "(g,)",
      op="sort")

# Products

wrong("gX = gY W, not transposed", "transpose", LINALG, "matmul", "matrix_product(G, B.swapaxes(-1, -2))",
      "xp.matmul(G, B)",
      sample=square)
wrong("gW = X gY, not transposed", "transpose", LINALG, "matmul", "matrix_product(A.swapaxes(-1, -2), G)",
      "xp.matmul(A, G)",
      sample=square)
wrong("gW = gY^T X, transposed as a whole", "transpose", LINALG, "matmul", "matrix_product(A.swapaxes(-1, -2), G)",
      "xp.matmul(G.swapaxes(-1, -2), A)", sample=square)
wrong("gW = gY X^T, the factors exchanged", "unclear", LINALG, "matmul", "matrix_product(A.swapaxes(-1, -2), G)",
      "xp.matmul(G, A.swapaxes(-1, -2))", sample=square)
wrong("a matrix repeated over the batch: only the first counts", "unsummed_broadcast", LINALG, "matmul",
      "unbroadcast(matrix_product(A.swapaxes(-1, -2), G), B_shape)", "matrix_product(A.swapaxes(-1, -2), G)[:1]",
      sample=lambda s: call(s("ABC"), s("1CD")))
wrong("a matrix repeated over the batch: not summed", "unsummed_broadcast", LINALG, "matmul",
      "unbroadcast(matrix_product(A.swapaxes(-1, -2), G), B_shape).reshape(y_shape)", "matrix_product(A.swapaxes(-1, -2), G)",
      sample=lambda s: call(s("ABC"), s("1CD")))

# Activations

wrong("softmax without its sum", "missing_cross_term", ACTIVATION, "softmax", "xp.subtract(g, total, out=gx)",
      "gx[...] = g")
wrong("softmax with the sum along another axis", "wrong_axis", ACTIVATION, "softmax", "total = sum_axes(gx, (axis,))",
      "total = sum_axes(gx, (2,))")
wrong("softmax with its diagonal y (1 - y) alone", "diagonal_only", ACTIVATION, "softmax",
      "xp.subtract(g, total, out=gx)",
      "xp.multiply(g, 1 - y, out=gx)")
wrong("softmax with a mean, not a sum", "unclear", ACTIVATION, "softmax", "total = sum_axes(gx, (axis,))",
      "total = sum_axes(gx, (axis,)) / 3")
wrong("softmax without the outer y", "wrong_factor", ACTIVATION, "softmax", "gx *= y", "pass")
wrong("softmax that returns zeros", "zero_gradient", ACTIVATION, "softmax", "return (gx,)", "return (0 * gx,)")
wrong("log_softmax that passes g on", "missing_cross_term", ACTIVATION, "log_softmax", "return (gx,)", "return (g,)")
wrong("log_softmax with e, not normalised", "unclear", ACTIVATION, "log_softmax", "(-sum_axes(g, (axis,)) / total)",
      "-sum_axes(g, (axis,))")
wrong("log_softmax with the sum along another axis", "wrong_axis", ACTIVATION, "log_softmax",
      "(-sum_axes(g, (axis,)) / total)", "(-sum_axes(g, (0,)) / total)")
wrong("relu that passes everything on", "mask_ignored", ACTIVATION, "relu", "masked(g, y > 0)", "g")
wrong("relu upside down", "mask_inverted", ACTIVATION, "relu", "masked(g, y > 0)", "masked(g, y <= 0)")
wrong("leaky_relu without its slope", "passed_on", ACTIVATION, "leaky_relu", "xp.where(xa > 0, g, negative_slope * g)",
      "g")
wrong("elu with slope 1 everywhere", "passed_on", ACTIVATION, "elu",
      "g * xp.where(xa > 0, 1.0, alpha * xp.exp(negative))",
      "g")
wrong("hardtanh without limits", "mask_ignored", ACTIVATION, "hardtanh", "masked(g, (xa > min_val) & (xa < max_val))", "g",
      sample=lambda s: call(3 * s.apart("AC")))
wrong("gelu without x phi(x)", "lost_path", ACTIVATION, "gelu", "slope *= x\n        slope += cdf", "slope[...] = cdf")
wrong("gelu without Phi(x)", "lost_path", ACTIVATION, "gelu", "slope += cdf", "pass")
wrong("gelu without 1 / sqrt(2 pi)", "unclear", ACTIVATION, "gelu", "slope *= 1 / math.sqrt(2 * math.pi)", "pass")
wrong("silu as x times a constant gate", "lost_path", ACTIVATION, "silu", "gx *= y\n        gx += s", "gx = s.copy()")
wrong("silu without the gate itself", "lost_path", ACTIVATION, "silu", "gx += s", "pass")
wrong("softplus that passes g on", "passed_on", ACTIVATION, "softplus", "g * xp.where(linear, 1.0, logistic_from(z, small))", "g")
wrong("glu's gate without s (1 - s)", "wrong_factor", ACTIVATION, "glu", "ga * (a * (1 - s))", "g * a")

# Normalisations

wrong("layer_norm without the path through the mean", "missing_mean_path", NORM, "layer_norm", "lost += r * mean_h",
      "pass")
wrong("layer_norm without the path through the variance", "missing_variance_path", NORM, "layer_norm",
      "xp.multiply(x_hat, r * mean_hx, out=t)", "0 * t")
wrong("layer_norm with mean and variance as constants", "frozen_statistics", NORM, "layer_norm", "gx -= lost", "pass")
wrong("layer_norm without 1/std", "wrong_factor", NORM, "layer_norm", "gx -= lost", "gx -= lost; gx /= r")
wrong("layer_norm's gx without the weight", "wrong_factor", NORM, "layer_norm",
      "share = xp.ones((1, len(t)), g.dtype), (w / n)[:, None]",
      "share = xp.ones((1, len(t)), g.dtype), (w * 0 + 1 / n)[:, None]", "gx = matrix_product(r, w[None])",
      "gx = matrix_product(r, 0 * w[None] + 1)")
wrong("layer_norm's weight with x, not x_hat", "unclear", NORM, "layer_norm", "xp.matmul(ones, t)", "xp.matmul(ones, g * rows)")
wrong("layer_norm's weight without x_hat", "passed_on", NORM, "layer_norm", "xp.matmul(ones, t)", "xp.matmul(ones, g)")
wrong("layer_norm's bias from the first row alone", "unsummed_broadcast", NORM, "layer_norm", "xp.matmul(ones, g)  #", "g[0]  #")
wrong("layer_norm's weight as a mean over rows", "factor", NORM, "layer_norm", "gw.reshape(tail)",
      "(gw / len(t)).reshape(tail)")
wrong("layer_norm that returns zeros", "zero_gradient", NORM, "layer_norm", "gx.reshape(shape)",
      "0 * gx.reshape(shape)")
wrong("rms_norm with its root mean square as a constant", "missing_variance_path", NORM, "rms_norm",
      "gx -= through_r", "pass")
wrong("rms_norm's second part without r", "unclear", NORM, "rms_norm", "r * mean_hx", "mean_hx")
wrong("group_norm without the path through the mean", "missing_mean_path", NORM, "standardised_backward",
      "gx -= sum_axes(h, axes) / n", "pass", op="group_norm")
wrong("group_norm without the path through the variance", "missing_variance_path", NORM, "standardised_backward",
      "gx = x_hat * (sum_axes(h * x_hat, axes) / -n)", "gx = 0 * x_hat", op="group_norm")
wrong("batch_norm without the path through the mean", "missing_mean_path", NORM, "standardised_backward",
      "gx -= sum_axes(h, axes) / n", "pass", op="batch_norm")
wrong("batch_norm without the path through the variance", "missing_variance_path", NORM, "standardised_backward",
      "gx = x_hat * (sum_axes(h * x_hat, axes) / -n)", "gx = 0 * x_hat", op="batch_norm")
wrong("batch_norm in training with the gradient of evaluation", "frozen_statistics", NORM, "batch_normalised",
      "standardised_backward(h, x_hat, r, over) if training else h * r", "h * r", op="batch_norm")
wrong("batch_norm with means over each sample", "wrong_axis", NORM, "batch_normalised",
      "standardised_backward(h, x_hat, r, over)",
      "standardised_backward(h, x_hat, r, (1, 2))", op="batch_norm")
wrong("batch_norm's bias from the first sample alone", "unsummed_broadcast", NORM, "batch_normalised",
      "xp.sum(g, axis=over)",
      "xp.sum(g[0], axis=1)", op="batch_norm")
wrong("cosine_similarity with the norms as constants", "lost_path", NORM, "cosine_similarity",
      "(v - xp.where(a_norm > eps, y, 0.0) * u)", "v")

# Losses

wrong("cross_entropy without the one-hot part", "lost_path", LOSS, "cross_entropy_of_index", "gz[rows, t] -= q_t",
      "pass",
      op="cross_entropy", sample=lambda s: call(s("DC"), s.ids("D", "C")))
wrong("cross_entropy without the mean's 1/N", "factor", LOSS, "cross_entropy_of_index", "g.reshape(-1) / divisor",
      "g.reshape(-1)", op="cross_entropy", sample=lambda s: call(s("DC"), s.ids("D", "C")))
wrong("cross_entropy divided by N twice", "factor", LOSS, "cross_entropy_of_index", "g.reshape(-1) / divisor",
      "g.reshape(-1) / divisor ** 2", op="cross_entropy", sample=lambda s: call(s("DC"), s.ids("D", "C")))
wrong("cross_entropy that ignores g", "ignored_upstream", LOSS, "cross_entropy_of_index", "g.reshape(-1) / divisor",
      "1 / divisor", op="cross_entropy", sample=lambda s: call(s("DC"), s.ids("D", "C")))
wrong("cross_entropy with smoothing in the forward alone", "unclear", LOSS, "cross_entropy_of_index",
      "q_t = (1 - smoothing) * w_t * g", "q_t, smoothing_ = w_t * g, 0",
      "q_sum = q_t + share * w_sum * g if smoothing else q_t", "q_sum = q_t", "if smoothing:\n            gz -=",
      "if False:\n            gz -=", op="cross_entropy")
wrong("nll_loss without the minus", "sign", LOSS, "nll_loss", "xp.where(keep, -w_t * (g", "xp.where(keep, w_t * (g")
wrong("squared error without the 2", "factor", LOSS, "mse_loss", "(2 * scale * g)", "(scale * g)")
wrong("the target's gradient with the input's sign", "sign", LOSS, "mse_loss", "unbroadcast(-gx, t_shape)",
      "unbroadcast(gx, t_shape)")
wrong("squared error that ignores g", "ignored_upstream", LOSS, "mse_loss", "(2 * scale * g)", "(2 * scale)")
wrong("absolute error with the difference, not its sign", "unclear", LOSS, "l1_loss", "xp.sign(d)", "d")
wrong("Huber's loss not cut off", "unclear", LOSS, "huber_loss", "gx = cut", "gx = d")
wrong("binary cross-entropy without x (1 - x)", "wrong_factor", LOSS, "binary_cross_entropy",
      " / xp.clip(x * (1 - x), 1e-12, None)", "")
wrong("binary cross-entropy of logits without the mean", "factor", LOSS, "binary_cross_entropy_with_logits",
      "g = w * (scale * g)", "g = w * g")
wrong("divergence with the wrong sign for the prediction", "sign", LOSS, "kl_div", "unbroadcast(-g * p, x_shape)",
      "unbroadcast(g * p, x_shape)")

# Attention

wrong("query's gradient without the scale", "factor", ATTENTION, "_score_gradients", "gq *= scale", "pass",
      op="scaled_dot_product_attention")
wrong("key's gradient with the unscaled query", "factor", ATTENTION, "_score_gradients",
      "_product(ga.swapaxes(-1, -2), q, k, out[1])",
      "_product(ga.swapaxes(-1, -2), q / scale, k)", op="scaled_dot_product_attention")
wrong("attention without softmax's sum", "missing_cross_term", ATTENTION, "scaled_dot_product_attention",
      'ga -= xp.einsum("...e,...e->...", g, y)[..., None] / total', "pass")
wrong("attention with softmax's diagonal alone", "diagonal_only", ATTENTION, "scaled_dot_product_attention",
      'ga -= xp.einsum("...e,...e->...", g, y)[..., None] / total', "ga -= ga * e / total")
wrong("attention with the weights' gradient, not the scores'", "wrong_factor", ATTENTION,
      "scaled_dot_product_attention",
      "ga *= e", "ga *= total")
wrong("value's gradient with the weights not transposed", "transpose", ATTENTION, "scaled_dot_product_attention",
      "_product(dropped.swapaxes(-1, -2), g_share, v, out[2])", "_product(dropped * (keep_scale / total), g, v)",
      sample=lambda s: call(s("ABC"), s("ABC"), s("AB7")))
wrong("key's gradient with the scores not transposed", "transpose", ATTENTION, "_score_gradients",
      "ga.swapaxes(-1, -2), q, k", "ga, q, k", sample=lambda s: call(s("ABC"), s("ABC"), s("AB7")),
      op="scaled_dot_product_attention")
wrong("attention without any gradient for the keys", "zero_gradient", ATTENTION, "scaled_dot_product_attention",
      "return gq, gk, gv, gmask", "return gq, None, gv, gmask")
wrong("value's gradient with unnormalised weights", "unclear", ATTENTION, "scaled_dot_product_attention",
      "g_share = g * (keep_scale / total)", "g_share = g * keep_scale")
wrong("one key head for all query heads: only the first counts", "unsummed_broadcast", ATTENTION, "_score_gradients",
      "gk = unbroadcast(_product(ga.swapaxes(-1, -2), q, k, out[1]), k.shape)",
      "gk = _product(ga.swapaxes(-1, -2), q, k)[..., :1, :, :]",
      op="scaled_dot_product_attention", sample=lambda s: call(s("ABCA"), s("A15A"), s("A157")))
wrong("attention weights without softmax's sum", "missing_cross_term", ATTENTION, "attention_weights",
      'g - xp.einsum("...s,...s->...", g, p)[..., None]', "g * 1")
wrong("attention weights with the sum over the queries", "wrong_axis", ATTENTION, "attention_weights",
      'xp.einsum("...s,...s->...", g, p)[..., None]', "(g * p).sum(axis=-2, keepdims=True)")

# Linear, embedding, convolution, pooling

wrong("gx = g W^T, not transposed back", "transpose", LINEAR, "linear", "matrix_product(g, w)",
      "xp.matmul(g, w.T)", sample=square)
wrong("the weight's gradient transposed", "transpose", LINEAR, "linear", "matrix_product(g.T, rows)",
      "xp.matmul(rows.T, g)")
wrong("the weight's gradient from the last row alone", "unsummed_broadcast", LINEAR, "linear",
      "matrix_product(g.T, rows)",
      "g[-1:].T @ rows[-1:]")
wrong("the bias's gradient as a mean", "factor", LINEAR, "linear", "sum_axes(g, (0,))[0]",
      "sum_axes(g, (0,))[0] / len(rows)")
wrong("the bias's gradient not summed", "unsummed_broadcast", LINEAR, "linear", "sum_axes(g, (0,))[0]",
      "g * 1")
wrong("the gradients in the order weight, input", "swapped", LINEAR, "linear", "compress((gx, gw, gb)",
      "compress((gw, gx, gb)",
      sample=square)
wrong("an id that occurs twice counts once", "lost_path", EMBEDDING, "embedding", "add_rows(gw, index, g)",
      "gw[index] = g")
wrong("the gradient one row too low", "misplaced", EMBEDDING, "embedding", "add_rows(gw, index, g)",
      "add_rows(gw, (index + 1) % rows, g)", sample=lambda s: call(s.ids("AD", 6), s("6B")))
wrong("conv2d's bias from one window alone", "unsummed_broadcast", CONV, "conv2d", "xp.matmul(g, xp.ones(L, g.dtype))",
      "g[:, :, 0].copy()")
wrong("conv2d with the kernel turned around", "misplaced", CONV, "conv2d", "xp.matmul(w.swapaxes(1, 2), g)",
      "xp.matmul(w[..., ::-1].swapaxes(1, 2), g)",
      sample=lambda s: call(s("A145"), s("3122")))
wrong("overlapping windows overwrite each other", "lost_path", CONV, "add_windows", "+= table", "= table",
      op="unfold", sample=lambda s: call(s("A245"), 2))
wrong("conv2d: overlapping windows overwrite each other", "lost_path", CONV, "add_windows", "+= table", "= table",
      op="conv2d")
wrong("average pooling without the division", "factor", CONV, "avg_pool2d", "(g.swapaxes(0, 1) / divisor)",
      "g.swapaxes(0, 1)")
wrong("max pooling that gives the whole window the gradient", "mask_ignored", CONV, "max_pool2d", "index == chosen",
      "index == index", sample=lambda s: call(s.apart("A144"), 2))
wrong("reflected padding overwrites", "lost_path", CONV, "pad_from_itself",
      "add_rows(gx, index, xp.moveaxis(g, axis, 0))",
      "gx[index] = xp.moveaxis(g, axis, 0)", op="pad",
      sample=OPERATIONS["pad: reflect"])

# Recurrent networks and dropout

wrong("rnn: no gradient through time", {"x": "diagonal_only", "h0": "lost_path", "*": "lost_path"}, RECURRENT, "rnn",
      "xp.multiply(g[t] + gh,", "xp.multiply(g[t],")
wrong("rnn without tanh's slope", "wrong_factor", RECURRENT, "rnn", "1 - y * y if", "0 * y + 1 if")
wrong("gru: no gradient through the reset gate",
      {"w_ih": "zero_gradient", "w_hh": "zero_gradient", "b_ih": "zero_gradient",
      "b_hh": "zero_gradient", "*": "lost_path"}, RECURRENT, "gru", "c_n * rest_r", "0 * rest_r",
      op="gru_cell")
wrong("gru: the update gate's gradient with the wrong sign", "sign", RECURRENT, "gru", "hs[:-1] - n, z", "n - hs[:-1], z",
      op="gru_cell")
wrong("lstm: no gradient to the state before", {"state 1": "zero_gradient", "*": "lost_path"}, RECURRENT, "lstm",
      "gc = gc * f[t]", "gc = gc * 0", op="lstm_cell")
wrong("lstm: the output gate's gradient lost",
      {**dict.fromkeys(("w_ih", "w_hh", "b_ih", "b_hh"), "zero_gradient"), "*": "lost_path"}, RECURRENT, "lstm",
      "by_a[3] *= tanh_c", "by_a[3] *= 0", op="lstm_cell")
wrong("dropout in the forward alone", "mask_ignored", DROPOUT, "drop", "g * factor", "g * factor.max()", op="dropout")
wrong("dropout without 1 / (1 - p)", "factor", DROPOUT, "drop", "g * factor", "g * (factor > 0)", op="dropout")


# Mistakes in how operations are put together: the same tensor used twice

class Composed(NamedTuple):
    """A wrong operation inside a larger function."""
    title: str
    cause: object
    make: object
    name: str = "composed"

    def build(self, seed=0):
        fn, arrays = self.make(Draw(seed))
        fn.__name__ = self.name
        return fn, tuple(mt.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays)


class Written(NamedTuple):
    """A wrong operation written by hand, as a beginner would: its result and backward(arrays, g)."""
    title: str
    cause: object
    forward: object
    backward: object
    arrays: object
    name: str = "written"

    def build(self, seed=0):
        def fn(*inputs):
            xs = [x.array for x in inputs]
            return mt.Tensor.from_op(self.name, numpy.asarray(self.forward(*xs)), inputs,
                                     lambda g: self.backward(xs, g))

        fn.__name__ = self.name
        return fn, tuple(mt.tensor(a, requires_grad=a.dtype.kind == "f") for a in self.arrays(Draw(seed)))


def relu(x):
    return numpy.maximum(x, 0)


def standardised(x):
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def looked_up(ids, w):
    return w[ids]


def added_to(a, g):
    gw = numpy.zeros_like(a[1])
    gw[a[0]] += g
    return None, gw


def residual(s):
    tanh = edited_module(ELEMENTWISE, "tanh", [("(g * (1 - y * y),)", "(None,)")]).tanh
    return (lambda x: x + tanh(x)), (s("AB"),)


def self_attention(s):
    sdpa = edited_module(ATTENTION, "scaled_dot_product_attention", [
        ("return gq, gk, gv, gmask", "return gq, None, gv, gmask")]).scaled_dot_product_attention
    return (lambda x: sdpa(x, x * 1.0, x)), (s("ABC"),)


def tied_weights(s):
    embedding = edited_module(EMBEDDING, "embedding", [("add_rows(gw, index, g)", "pass")]).embedding
    return (lambda ids, weight: F.linear(embedding(ids, weight), weight)), (s.ids("7", 5), s("53"))


ZOO += [
    Composed("a residual branch without gradient", "lost_path", residual, "residual"),
    Composed("self-attention: the path through the keys lost", "lost_path", self_attention, "self_attention"),
    Written("relu that looks at g, not at x", "unclear", relu, lambda a, g: (g * (g > 0),), lambda s: [s("BC")]),
    Written("relu with a slope where it is flat", "unclear", relu,
            lambda a, g: (g * numpy.where(a[0] > 0, 1, 0.01),), lambda s: [s("BC")]),
    Written("relu with another threshold", "unclear", relu, lambda a, g: (g * (a[0] > 0.5),), lambda s: [s("CD")]),
    Written("x + tanh x with the gradient of x alone", "passed_on", lambda x: x + numpy.tanh(x), lambda a, g: (g,),
            lambda s: [s("BC")]),
    Written("gw[ids] += g, which counts a repeated id once", "lost_path", looked_up, added_to,
            lambda s: [numpy.array([[0, 2, 2], [1, 2, 0]]), s("BC")]),
    Written("sine with the size of g", "unclear", numpy.sin, lambda a, g: (abs(g) * numpy.cos(a[0]),),
            lambda s: [s("BC")]),
    Written("sine with a constant added", "unclear", numpy.sin, lambda a, g: (g * numpy.cos(a[0]) + 1e-3,),
            lambda s: [s("BC")]),
    Written("exp times x", "wrong_factor", numpy.exp, lambda a, g: (g * numpy.exp(a[0]) * a[0],), lambda s: [s("BC")]),
    Written("every other entry, its gradient spread over two", "unclear", lambda x: x[::2] * 1,
            lambda a, g: (numpy.repeat(g, 2),), lambda s: [s("6")]),
    Written("the standard deviation as a constant", "missing_variance_path", standardised,
            lambda a, g: ((g - g.mean(-1, keepdims=True)) / a[0].std(-1, keepdims=True),), lambda s: [s("BC")]),
    Written("a product's gradient right at 1 alone", "wrong_factor", lambda x, w: x * w, lambda a, g: (g, g * a[0]),
            lambda s: [s("BC"), numpy.ones((3, 5))]),
    Written("the gradient of a cube that fits at 1 alone", "wrong_factor", lambda x: x ** 3,
            lambda a, g: (3 * g * a[0],), lambda s: [numpy.ones((3, 5))]),
    Written("half of a row forgotten", "zero_gradient", numpy.sin,
            lambda a, g: (g * numpy.cos(a[0]) * (numpy.arange(5) > 2),), lambda s: [s("BC")]),
    Composed("tied weights: only the output layer's gradient", "lost_path", tied_weights, "tied_weights"),
]

assert len({m.title for m in ZOO}) >= 80, "the zoo is too small"
