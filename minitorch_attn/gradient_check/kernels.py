"""Causes inside kernels whose form can be recognised: normalisations, softmax and its kin, attention.

The true Jacobian is taken apart into the terms that the derivation has; then each of them is left out. Nothing is
looked up by the function's name: if the terms do not add up to the measured Jacobian, there is no hypothesis.
"""
import itertools
import math

import numpy

__all__ = ["attention_parts", "coupled_parts", "normalization_parts"]

SAME = 1e-7  # how well a form must fit to count as recognised


def groups_of(J):
    """The sets of entries that act on each other, as an array (groups, n); None unless all are equally large, n > 2.

    For softmax along the last axis these are the rows.
    """
    linked = numpy.abs(J) > 1e-10 * numpy.abs(J).max(initial=0)
    linked |= linked.T
    label = numpy.arange(len(J))
    for _ in range(len(J)):
        nearest = numpy.minimum(label, numpy.where(linked, label, len(J)).min(axis=1, initial=len(J)))
        if (nearest == label).all():
            break
        label = nearest
    sizes = numpy.unique(label, return_counts=True)[1]
    if len(J) == 0 or sizes.min() != sizes.max() or sizes[0] < 3:
        return None
    return numpy.argsort(label, kind="stable").reshape(-1, sizes[0])


def other_groups(shape, groups):
    """Ways to group the entries of an array of `shape` along its axes, other than `groups`: (names, label array)."""
    label = numpy.zeros(math.prod(shape), int)
    label[groups] = numpy.arange(len(groups))[:, None]
    same = label[:, None] == label
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            rest = [numpy.indices(shape)[a].reshape(-1) for a in range(len(shape)) if a not in axes]
            together = numpy.ones_like(same)
            for index in rest:
                together &= index[:, None] == index
            if (together != same).any() and together.sum() > len(together):
                yield axes, together


def normalization_parts(case):
    """Forms like y = w (x - mean) / sqrt(variance + eps) + b, also without mean, or with a length in its place.

    With p = w r the Jacobian is J_ij = p_i (d_ij - alpha / n - s c_i c_j) in each group of n entries, where c is the
    centred x and alpha 1, or c is x and alpha 0.
    """
    groups = groups_of(case.J) if case.alike and len(case.point.uses(case.i)) < 2 else None
    for centred in (True, False) if groups is not None else ():
        found = fit_normalization(case, groups, centred)
        if found is None:
            continue
        p, c, s, mean, scale = found
        own = numpy.diag(p)
        if scale.any() and mean.any():
            yield "missing_mean_path", "", own + scale
            yield "missing_variance_path", "", own + mean
            yield "frozen_statistics", "", own
        elif scale.any():
            yield "missing_variance_path", "", own
        else:
            yield "missing_mean_path", "", own
            return
        r = numpy.sqrt(s * groups.shape[1])
        yield "wrong_factor", "1 / standard deviation (or root mean square, or length) is missing", case.J / r
        x_hat, w = c * r, p / r
        for axes, together in other_groups(case.x.shape, groups):
            n = together.sum(axis=0)
            wrong = together * (float(mean.any()) + x_hat[:, None] * x_hat) * (w[:, None] * r) / n
            yield "wrong_axis", f"means over axes {axes}", own - wrong
        return


def fit_normalization(case, groups, centred):
    """p, c, s for each entry and the two terms as matrices, if J has the form of `normalization_parts`; else None."""
    N, n = case.x.size, groups.shape[1]
    p, c, s = numpy.zeros(N), numpy.zeros(N), numpy.zeros(N)
    mean, scale = numpy.zeros((N, N)), numpy.zeros((N, N))
    for g in groups:
        block, x = case.J[numpy.ix_(g, g)], case.x.reshape(-1)[g]
        c[g] = x - x.mean() if centred else x
        terms = numpy.zeros((n, n))
        for i in range(n):
            rows = [numpy.eye(n)[i], c[g]] + ([numpy.ones(n)] if centred else [])
            p[g[i]], terms[i] = fit_row(numpy.stack(rows), block[i])
        if centred:
            m = -numpy.outer(p[g], numpy.ones(n)) / n
            terms -= m
            mean[numpy.ix_(g, g)] = m
        outer = numpy.outer(p[g] * c[g], c[g])
        s[g] = -(terms * outer).sum() / max((outer * outer).sum(), 1e-300)
        scale[numpy.ix_(g, g)] = -s[g[0]] * outer
    scale = scale if numpy.abs(scale).max() > SAME * case.size else numpy.zeros_like(scale)
    fitted = numpy.diag(p) + mean + scale
    if numpy.abs(fitted - case.J).max() > SAME * case.size or (s < -SAME).any() or not (mean.any() or scale.any()):
        return None
    return p, c, numpy.maximum(s, 0), mean, scale


def fit_row(parts, row):
    """The first part's coefficient in `row` as a sum of `parts`, by least squares, and what the others contribute."""
    coefficients = numpy.linalg.lstsq(parts.T, row, rcond=None)[0]
    return coefficients[0], coefficients[1:] @ parts[1:]


def coupled_parts(case):
    """Forms like softmax, where in each group J = diag(a) - b c^T: a part of its own and one through a common sum."""
    groups = groups_of(case.J) if case.alike and len(case.point.uses(case.i)) < 2 else None
    if groups is None or any(fit_normalization(case, groups, centred) for centred in (True, False)):
        return
    N = case.x.size
    a, coupling = numpy.zeros(N), numpy.zeros((N, N))
    for g in groups:
        block = case.J[numpy.ix_(g, g)]
        inner = off_diagonal_product(block)
        if inner is None:
            return
        coupling[numpy.ix_(g, g)], a[g] = inner, numpy.diag(block - inner)
    own = numpy.diag(a)
    yield "missing_cross_term", "", own
    y = case.y.reshape(-1)
    for b in (numpy.ones(N), y, a):
        with numpy.errstate(all="ignore"):
            c = -numpy.array([coupling[g[0], g] / b[g[0]] for g in groups])
        column = numpy.zeros(N)
        column[groups] = c
        form = -numpy.outer(b, column) * (coupling != 0)
        if not numpy.isfinite(c).all() or numpy.abs(coupling - form).max() > SAME * case.size:
            continue
        for axes, together in other_groups(case.x.shape, groups):
            yield "wrong_axis", f"sum over axes {axes}", own - together * numpy.outer(b, column)
        return


def off_diagonal_product(block):
    """The matrix b c^T that agrees with `block` off the diagonal, or None if there is none."""
    n = len(block)
    full = block.copy()
    for i in range(n):
        j, k = [m for m in range(n) if m != i][:2]
        if block[k, j] == 0:
            return None
        full[i, i] = block[i, j] * block[k, i] / block[k, j]
    first = full[:1] if full[0, 0] else None
    if first is None:
        return None
    product = full[:, :1] @ first / full[0, 0]
    return product if numpy.abs(product - full).max() <= SAME * numpy.abs(block).max() else None


# Attention

def attention_parts(case):
    """y = softmax(scale q k^T + mask) v, or the weights alone: what a mistake in its backward gives for each input."""
    found = recognise_attention(case)
    if found is None or not set(case.argument.slots) & set(range(4)):
        return
    q, k, v, scale, P, free = found
    U = numpy.eye(len(case.J)).reshape(len(case.J), *case.y.shape)
    gP = U if v is None else U @ v.swapaxes(-1, -2)
    delta = (P * gP).sum(axis=-1, keepdims=True)
    scores = {
        ("missing_cross_term", "softmax's sum over the keys"): P * gP,
        ("diagonal_only", "of softmax's Jacobian"): P * (1 - P) * gP,
        ("wrong_axis", "softmax's sum runs over the queries"): P * (gP - (P * gP).sum(axis=-2, keepdims=True)),
        ("wrong_factor", "the attention weights are missing"): gP - delta,
        ("wrong_factor", "softmax's derivative is missing altogether"): gP + numpy.zeros_like(P),
    }
    right, gv = P * (gP - delta), P.swapaxes(-1, -2) @ U
    if q.shape[-2] == k.shape[-2]:
        scores["transpose", "the scores' gradient"] = right.swapaxes(-1, -2)
    for (cause, detail), gS in scores.items():
        yield cause, detail, attention_gradient(case, q, k, scale, gS, gv)
    if free is not None:
        gS = free * (gP - (free * gP).sum(axis=-1, keepdims=True))
        yield "mask_ignored", "", attention_gradient(case, q, k, scale, gS, free.swapaxes(-1, -2) @ U)


def attention_gradient(case, q, k, scale, gS, gv):
    """The Jacobian by the case's argument, from the gradients gS of the scores (M, ..., T, S) and gv of v."""
    total = numpy.zeros_like(case.J)
    for slot in case.argument.slots:
        g = {0: lambda: scale * gS @ k, 1: lambda: scale * gS.swapaxes(-1, -2) @ q,
             2: lambda: gv}.get(slot, lambda: gS)()
        shape = (len(case.J), *case.x.shape)
        while g.ndim > len(shape):
            g = g.sum(axis=1)
        spread = tuple(a for a, n in enumerate(shape) if n == 1 != g.shape[a])
        total = total + g.sum(axis=spread, keepdims=True).reshape(len(case.J), -1)
    return total


def recognise_attention(case):
    """q, k, v, scale, the weights, and the weights without any mask (or None); None if this is not attention."""
    inputs = [case.subject.input_array(slot, case.point) for slot in range(len(case.subject.inputs))]
    floats = [a is not None and a.dtype.kind == "f" and a.ndim > 1 for a in inputs]
    if case.y is None or floats[:2] != [True, True] or inputs[0].shape[-1] != inputs[1].shape[-1]:
        return None
    q, k = inputs[:2]
    with_v = floats[2:3] == [True] and inputs[2].shape[-2] == k.shape[-2]
    T, S = q.shape[-2], k.shape[-2]
    rest = [a for a in inputs[3 if with_v else 2:] if a is not None]
    masks = [None, numpy.tri(T, S, dtype=bool), *rest]
    for mask, scale in itertools.product(masks, (1 / math.sqrt(q.shape[-1]), 1.0)):
        try:
            P = weights(q, k, scale, mask)
            y = P @ inputs[2] if with_v else P
        except ValueError:
            continue
        if y.shape == case.y.shape and numpy.allclose(y, case.y, rtol=1e-9, atol=1e-9):
            return q, k, inputs[2] if with_v else None, scale, P, None if mask is None else weights(q, k, scale, None)
    return None


@numpy.errstate(all="ignore")
def weights(q, k, scale, mask):
    """softmax(scale q k^T + mask), zero in rows that see nothing."""
    scores = scale * q @ k.swapaxes(-1, -2)
    if mask is not None:
        scores = numpy.where(mask, scores, -numpy.inf) if mask.dtype.kind == "b" else scores + mask
    top = scores.max(axis=-1, keepdims=True)
    e = numpy.exp(scores - numpy.where(numpy.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / numpy.where(total == 0, 1, total)
