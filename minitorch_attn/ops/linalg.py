"""Products of vectors, matrices and tensors."""
import math
from collections import Counter

from ..autograd import Tensor
from ..backend import matrix_product, xp
from .broadcast import unbroadcast
from .elementwise import add, array_of, mul
from .reduce import axis_of, sum
from .shape import diagonal, permute, reshape, unsqueeze

__all__ = ["addmm", "baddbmm", "bmm", "dot", "einsum", "inner", "matmul", "mm", "mv", "outer", "tensordot"]


def matmul(x, y):
    """Matrix product, batch by batch: z[..., i, j] = sum_k x[..., i, k] y[..., k, j].

    Parameters
    ----------
    x : Tensor (..., M, K) or (K,)
    y : Tensor (..., K, N) or (K,)
        Of the same dtype. The leading axes broadcast. A vector stands for a matrix of one row or one column.

    Returns
    -------
    Tensor (..., M, N); without the axis M where `x` is a vector, without N where `y` is one.

    Raises
    ------
    RuntimeError
        If a tensor is 0-d, the dtypes differ, or the shapes do not fit.
    """
    A, B = array_of(x), array_of(y)
    x_shape, y_shape = A.shape, B.shape
    if A.dtype != B.dtype:
        raise RuntimeError(f"matmul needs tensors of one dtype, got {A.dtype} and {B.dtype}; convert with .to(dtype)")
    if not x_shape or not y_shape:
        raise RuntimeError(f"matmul needs tensors with at least one dim, got shapes {x_shape} and {y_shape}; "
                           "multiply by a number with *")
    if len(x_shape) == 1:
        A = A[None, :]  # (K,) -> (1, K)
    if len(y_shape) == 1:
        B = B[:, None]  # (K,) -> (K, 1)
    rows = A.shape[:-1]
    one_matrix = len(y_shape) <= 2 < len(x_shape)
    if one_matrix:
        A = A.reshape(math.prod(rows), A.shape[-1])  # (..., M, K) -> (R, K): one large product, not many small ones
    try:
        Z = xp.matmul(A, B)
    except ValueError:
        if fit(A.shape, B.shape):  # the library has another reason
            raise
        raise RuntimeError(f"shapes {x_shape} and {y_shape} do not fit in a matrix product: the last axis of the "
                           "first must be as long as the second-to-last of the second (or its only one), and the axes "
                           "before these must broadcast") from None
    shape = (*rows, Z.shape[-1]) if one_matrix else Z.shape
    if len(x_shape) == 1:
        shape = (*shape[:-2], shape[-1])
    if len(y_shape) == 1:
        shape = shape[:-1]
    A_shape, B_shape, Z_shape = A.shape, B.shape, Z.shape
    A, B = A if y.requires_grad else None, B if x.requires_grad else None  # each is kept for the other's gradient

    def backward(g):
        # dz_ij = sum_k dA_ik B_kj + A_ik dB_kj, so gA = g B^T and gB = A^T g; repeated batches add up
        G = g.reshape(Z_shape)
        gx = gy = None
        if B is not None:
            gx = unbroadcast(matrix_product(G, B.swapaxes(-1, -2)), A_shape).reshape(x_shape)
        if A is not None:
            gy = unbroadcast(matrix_product(A.swapaxes(-1, -2), G), B_shape).reshape(y_shape)
        return gx, gy

    return Tensor.from_op("matmul", Z.reshape(shape), (x, y), backward)


def fit(x_shape, y_shape):
    """Whether arrays of these shapes, of at least two dims, have a matrix product."""
    batches = zip(x_shape[-3::-1], y_shape[-3::-1])  # from the last on, as far as both have some
    return x_shape[-1] == y_shape[-2] and all(m == n or 1 in (m, n) for m, n in batches)


def check_same_dtype(name, *tensors):
    """RuntimeError unless all `tensors` have one dtype."""
    if len({x.dtype for x in tensors}) > 1:
        found = " and ".join(str(x.dtype) for x in tensors)
        raise RuntimeError(f"{name} needs tensors of one dtype, got {found}; convert with .to(dtype)")


def check_dims(name, **tensors):
    """RuntimeError unless each tensor has the number of dims that its keyword ends with: ``x2=x``."""
    for key, x in tensors.items():
        if array_of(x).ndim != int(key[-1]):
            raise RuntimeError(f"{name} needs {key[:-1]} with {key[-1]} dims, got shape {x.shape}; matmul takes any")


def mm(x, y):
    """`matmul` of two matrices: (M, K), (K, N) -> (M, N)."""
    check_dims("mm", x2=x, y2=y)
    return matmul(x, y)


def bmm(x, y):
    """`matmul` of two batches of B matrices, which do not broadcast: (B, M, K), (B, K, N) -> (B, M, N)."""
    check_dims("bmm", x3=x, y3=y)
    if x.shape[0] != y.shape[0]:
        raise RuntimeError(f"bmm needs as many matrices on both sides, got shapes {x.shape} and {y.shape}")
    return matmul(x, y)


def mv(x, y):
    """`matmul` of a matrix and a vector: (M, K), (K,) -> (M,)."""
    check_dims("mv", x2=x, y1=y)
    return matmul(x, y)


def dot(x, y):
    """`matmul` of two vectors: (K,), (K,) -> ()."""
    check_dims("dot", x1=x, y1=y)
    return matmul(x, y)


def outer(x, y):
    """Each product of an entry of one vector and one of the other, z_ij = x_i y_j: (M,), (N,) -> (M, N)."""
    check_dims("outer", x1=x, y1=y)
    return mul(unsqueeze(x, 1), y)


def weighted_sum(x, y, beta, alpha):
    """beta x + alpha y; at beta = 0 not even a NaN in `x` counts."""
    if y.dtype.kind != "f":
        beta, alpha = int(beta), int(alpha)  # as PyTorch
    if beta == 0:
        return mul(y, alpha)
    return add(x if beta == 1 else mul(x, beta), y, alpha=alpha)


def addmm(x, mat1, mat2, *, beta=1, alpha=1):
    """beta x + alpha mat1 mat2: (N,), (M, K), (K, N) -> (M, N); `x` broadcasts, `beta` and `alpha` are numbers."""
    return weighted_sum(x, mm(mat1, mat2), beta, alpha)


def baddbmm(x, batch1, batch2, *, beta=1, alpha=1):
    """beta x + alpha batch1 batch2, `addmm` for batches of matrices: (N,), (B, M, K), (B, K, N) -> (B, M, N)."""
    return weighted_sum(x, bmm(batch1, batch2), beta, alpha)


def inner(x, y):
    """Sum over the last axis of both: (..., K), (..., K) -> the axes of the first, then those of the second."""
    return tensordot(x, y, ([-1], [-1])) if x.ndim and y.ndim else mul(x, y)


def tensordot(x, y, dims=2):
    """Sum of products over pairs of axes: (2, 3, 5), (5, 3, 7), ([1, 2], [1, 0]) -> (2, 7).

    Parameters
    ----------
    x, y : Tensor
    dims : int or pair of sequences of int
        How many of the last axes of `x` meet as many first axes of `y`; or the axes of each, pair by pair.

    Returns
    -------
    Tensor: the other axes of `x`, then the other axes of `y`.

    Raises
    ------
    RuntimeError
        If paired axes differ in length, or `dims` does not name as many axes of `x` as of `y`.
    IndexError
        If an axis does not exist.
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(x.ndim, y.ndim):
            raise RuntimeError(f"tensordot over {dims} dims does not fit shapes {x.shape} and {y.shape}")
        dims = range(x.ndim - dims, x.ndim), range(dims)
    x_dims, y_dims = ([axis_of(d, z.ndim) for d in ds] for z, ds in zip((x, y), dims))
    if len(x_dims) != len(y_dims):
        raise RuntimeError(f"tensordot needs as many dims of one tensor as of the other, got {x_dims} and {y_dims}")
    x_labels = list(range(x.ndim))
    y_labels = list(range(x.ndim, x.ndim + y.ndim))
    for i, j in zip(x_dims, y_dims):
        y_labels[j] = x_labels[i]
    out = [label for label in x_labels + y_labels if label not in {x_labels[i] for i in x_dims}]
    return labelled_product([x, y], [x_labels, y_labels], out)


# einsum

def einsum(equation, *operands):
    """Sum of products over named axes: "bthd,bshd->bhts" is q k^T of every head.

    z[out] = sum over every label that is not in out of x1[labels1] x2[labels2] ... Operands are multiplied from left
    to right, each time by one matrix product. In the gradient the labels change places: for "ij,jk->ik" that of the
    first operand is "ik,jk->ij".

    Parameters
    ----------
    equation : str
        A letter for each axis of each operand, a comma between operands, then optionally "->" and the axes of the
        result. The same letter is the same index: within one operand it reads the diagonal, and a letter missing
        from the result is summed over. "..." stands for any further axes, which broadcast. Without "->" the result
        has the axes of "..." and then each letter that occurs once, in alphabetical order.
    operands : Tensor ..., of one dtype
        Also as PyTorch's sublists: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``, with Ellipsis for "...".

    Returns
    -------
    Tensor

    Raises
    ------
    RuntimeError
        If letters and axes do not match in number, axes with one letter differ in length, or the result names a
        letter twice or one that no operand has.
    """
    if not isinstance(equation, str):
        equation, operands = from_sublists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(f"equation {equation!r} has {len(terms)} operands, got {len(operands)} tensors")
    labels = [axis_labels(term, array_of(x).ndim) for term, x in zip(terms, operands)]
    known = {label for found in labels for label in found}
    dots = sorted(label for label in known if isinstance(label, int))
    if arrow:
        head, ellipsis, tail = result.partition("...")
        out = [*head, *(dots if ellipsis else ()), *tail]
    else:
        times = Counter(inputs)
        out = dots + sorted(letter for letter in times if letter.isalpha() and times[letter] == 1)
    if len(set(out)) < len(out) or not known.issuperset(out):
        raise RuntimeError(f"the result of {equation!r} may name each letter of the operands once, and no other")
    return labelled_product(operands, labels, out)


def from_sublists(arguments):
    """An equation and its operands from ``x, [0, 1], y, [1, 2], [0, 2]``; the last list may be missing."""
    def term(sublist):
        return "".join("..." if i is Ellipsis else chr(ord("A") + i if i < 26 else ord("a") + i - 26) for i in sublist)

    pairs = len(arguments) // 2
    equation = ",".join(term(sublist) for sublist in arguments[1:2 * pairs:2])
    if len(arguments) % 2:
        equation += "->" + term(arguments[-1])
    return equation, arguments[:2 * pairs:2]


def axis_labels(term, ndim):
    """The label of each axis: "b...c" with four axes is b, -2, -1, c; axes under "..." count from their end."""
    head, dots, tail = term.partition("...")
    hidden = ndim - len(head) - len(tail)
    if not (head + tail).isalpha() and head + tail:
        raise RuntimeError(f"a term of an equation consists of letters and at most one '...', got {term!r}")
    if hidden < 0 or (hidden and not dots):
        raise RuntimeError(f"the term {term!r} does not fit a tensor with {ndim} dims")
    return [*head, *range(-hidden, 0), *tail]


def labelled_product(tensors, labels, out):
    """The product of `tensors` whose axes have these `labels`, summed over every label that is not in `out`."""
    check_same_dtype("einsum", *tensors)
    sizes = {}
    for x, found in zip(tensors, labels):
        for label, n in zip(found, x.shape):
            if sizes.setdefault(label, n) == 1:
                sizes[label] = n  # a size 1 broadcasts, so any other size replaces it
            elif n not in (1, sizes[label]):
                raise RuntimeError(f"axis {label!r} is {sizes[label]} long in one place and {n} in another")
    pairs = [simplified(x, found, sizes) for x, found in zip(tensors, labels)]
    if len(pairs) == 1:
        x, found = pairs[0]
        gone = [i for i, label in enumerate(found) if label not in out]
        x = sum(x, gone) if gone else x
        found = [label for label in found if label in out]
        return permute(x, [found.index(label) for label in out])
    (x, found), *rest = pairs
    for i, (y, y_labels) in enumerate(rest):
        later = {*out}.union(*(z_labels for _, z_labels in rest[i + 1:]))
        kept = [label for label in dict.fromkeys(found + y_labels) if label in later] if i + 1 < len(rest) else out
        x, found = product(x, found, y, y_labels, kept), kept
    return x


def simplified(x, labels, sizes):
    """`x` and its `labels`, each once: of an axis named twice the diagonal, without axes of size 1 that broadcast."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        if x.shape[i] != x.shape[j]:
            raise RuntimeError(f"axis {label!r} is {x.shape[i]} and {x.shape[j]} long in one tensor")
        x = diagonal(x, 0, i, j)  # (..., n, ..., n, ...) -> (..., n)
        labels = [other for k, other in enumerate(labels) if k not in (i, j)] + [label]
    full = [i for i, label in enumerate(labels) if x.shape[i] == sizes[label]]
    if len(full) < x.ndim:
        x = reshape(x, [x.shape[i] for i in full])
    return x, [labels[i] for i in full]


def product(x, x_labels, y, y_labels, out):
    """The product of two tensors summed over every label not in `out`: one step of `einsum`."""
    a, b = x.array, y.array
    z = array_product(a, x_labels, b, y_labels, out)
    x_shape, y_shape = a.shape, b.shape
    a, b = a if y.requires_grad else None, b if x.requires_grad else None

    def gradient(g, other, other_labels, labels, shape):
        # sum the product of g and the other factor over what this factor lacks; an axis that neither of them has
        # was summed away in forward, so the gradient is the same all along it
        known = [label for label in labels if label in out or label in other_labels]
        part = array_product(g, out, other, other_labels, known)
        part = part.reshape([n if label in known else 1 for label, n in zip(labels, shape)])
        return xp.broadcast_to(part, shape)

    def backward(g):
        gx = gy = None
        if b is not None:
            gx = gradient(g, other=b, other_labels=y_labels, labels=x_labels, shape=x_shape)
        if a is not None:
            gy = gradient(g, other=a, other_labels=x_labels, labels=y_labels, shape=y_shape)
        return gx, gy

    return Tensor.from_op("einsum", z, (x, y), backward)


def array_product(a, a_labels, b, b_labels, out):
    """The product of two arrays over labelled axes, as one of matrices: (batch, rows, inner), (batch, inner, columns).

    A label is in the batch if it is in both arrays and in `out`, inner if it is in both and not in `out`.
    """
    a, a_labels = sum_out(a, a_labels, {*b_labels, *out})
    b, b_labels = sum_out(b, b_labels, {*a_labels, *out})
    sizes = dict(zip(a_labels, a.shape)) | dict(zip(b_labels, b.shape))
    batch = [label for label in a_labels if label in b_labels and label in out]
    inner = [label for label in a_labels if label in b_labels and label not in out]
    rows = [label for label in a_labels if label not in b_labels]
    columns = [label for label in b_labels if label not in a_labels]

    def matrices(array, labels, first, second):
        shape = [sizes[label] for label in batch] + [math.prod(sizes[i] for i in group) for group in (first, second)]
        return array.transpose([labels.index(label) for label in batch + first + second]).reshape(shape)

    A = matrices(a, a_labels, rows, inner)     # (batch..., rows, inner)
    B = matrices(b, b_labels, inner, columns)  # (batch..., inner, columns)
    # no inner axis: A is (..., rows, 1), B (..., 1, columns), so broadcasting is the outer product
    C = xp.matmul(A, B) if inner else A * B    # (batch..., rows, columns)
    order = batch + rows + columns
    c = C.reshape([sizes[label] for label in order])
    return c.transpose([order.index(label) for label in out])


def sum_out(a, labels, needed):
    """The array summed over its axes whose label is not in `needed`, and the labels left."""
    gone = tuple(i for i, label in enumerate(labels) if label not in needed)
    return xp.sum(a, axis=gone, dtype=a.dtype) if gone else a, [label for label in labels if label in needed]
