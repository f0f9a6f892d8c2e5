"""Sliding windows: convolution, pooling, unfolding, and the padding around them.

All of it rests on two functions on arrays, each the other's transpose: `windows` copies every window of an image into
a table, and `add_windows` adds such a table back to where its entries came from. A convolution is one copy and one
matrix product, its gradient the same two steps backwards. One-dimensional forms are images of height 1.
"""
import math
import numbers
from itertools import compress, product

from ...autograd import Partial, Tensor
from ...backend import add_rows, masked, xp
from ...ops.shape import squeeze, unsqueeze
from .activation import through_float32

__all__ = ["avg_pool1d", "avg_pool2d", "conv1d", "conv2d", "fold", "max_pool1d", "max_pool2d", "pad", "unfold"]


def windows(x, kernel, stride, dilation):
    """All windows of the images x (C, N, H, W) as an array (C, kh, kw, N, oh, ow).

    Entry [c, i, j, n, p, q] is x[c, n, sh p + dh i, sw q + dw j]: for each element (i, j) of a window one strided
    slice of the whole image. With i, j in front each slice is written in one piece.
    """
    oh, ow = (window_count(size, *step) for size, step in zip(x.shape[2:], zip(kernel, stride, dilation)))
    table = xp.empty((x.shape[0], *kernel, x.shape[1], oh, ow), x.dtype)
    for i, j in product(range(kernel[0]), range(kernel[1])):
        table[:, i, j] = x[(..., *slices((i, j), (oh, ow), stride, dilation))]
    return table


def add_windows(table, size, stride, dilation):
    """The transpose of `windows`: images (C, N, H, W) of that size, each entry the sum of its copies in the table."""
    channels, kh, kw, samples, *out = table.shape
    x = xp.zeros((channels, samples, *size), table.dtype)
    for i, j in product(range(kh), range(kw)):
        x[(..., *slices((i, j), out, stride, dilation))] += table[:, i, j]
    return x


def window_count(size, kernel, stride, dilation):
    """How many windows fit into an axis."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def slices(within, out, stride, dilation):
    """The slices of an image's two axes that hold element `within` = (i, j) of every window."""
    return tuple(slice(d * i, d * i + s * n, s) for i, n, s, d in zip(within, out, stride, dilation))


def padded(x, pads, value=0):
    """The array x with `value` around its last two axes: pads ((top, bottom), (left, right)), none negative."""
    (top, bottom), (left, right) = pads
    if not (top or bottom or left or right):
        return x
    *lead, height, width = x.shape
    y = xp.full((*lead, top + height + bottom, left + width + right), value, x.dtype)
    y[unpadded_index((height, width), pads)] = x
    return y


def unpadded_index(size, pads):
    """The index of what stood in the array of that size before `padded`."""
    return (..., *(slice(before, before + n) for n, (before, _) in zip(size, pads)))


def pair(value, name, least=1):
    """A number for height and width: one int for both, or a sequence of one or two; RuntimeError if it is neither."""
    values = (value,) if isinstance(value, numbers.Integral) else value
    if (not isinstance(values, (tuple, list)) or len(values) not in (1, 2)
            or not all(isinstance(n, numbers.Integral) and n >= least for n in values)):
        raise RuntimeError(f"{name} must be a whole number from {least} on, or two of them, got {value!r}")
    return tuple(values) * 2 if len(values) == 1 else tuple(values)


# Convolution

def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Slide kernels over images.

    y[n, o, p, q] = b[o] + sum over c, i, j of w[o, c, i, j] x[n, c, s p + d i - padding, s q + d j - padding], where x
    is 0 outside; with groups, x's channel is c + g C / groups for an o of group g. The kernel is not turned around:
    it is a cross-correlation.

    Parameters
    ----------
    x : Tensor (N, C, H, W) or (C, H, W)
    weight : Tensor (O, C / groups, kh, kw)
    bias : Tensor (O,), optional
    stride, dilation : int or two
        Steps between windows, and within a window.
    padding : int or two, or "valid" for none, or "same" for as many zeros as keep the size (stride 1)
    groups : int
        The g-th part of the output channels sees only the g-th part of the input channels.

    Returns
    -------
    Tensor (N, O, oh, ow) with oh = (H + 2 padding - d (kh - 1) - 1) // s + 1, or (O, oh, ow)

    Raises
    ------
    RuntimeError
        If the shapes or dtypes do not fit together, the window is larger than the padded image, or padding is "same"
        with a stride.

    References
    ----------
    Chellapilla, Puri and Simard, "High performance convolutional neural networks for document processing", IWFHR 2006
    (the table of windows, which turns a convolution into a matrix product).
    """
    if x.ndim == 3:
        return squeeze(conv2d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups), 0)
    check_conv(x, weight, bias, groups)
    stride, dilation = pair(stride, "stride"), pair(dilation, "dilation")
    kernel, size = weight.shape[2:], x.shape[2:]
    pads = pads_of(padding, kernel, stride, dilation)
    check_fits(size, pads, kernel, dilation)
    images = padded(x.array.swapaxes(0, 1), pads)  # (N, C, H, W) -> (C, N, H', W')
    table = windows(images, kernel, stride, dilation)  # -> (C, kh, kw, N, oh, ow)
    padded_size, table_shape, (samples, *out) = images.shape[2:], table.shape, table.shape[3:]
    # G groups of o outputs each; K = C / G kh kw numbers make one output; L = N oh ow windows
    G, o, K, L = groups, weight.shape[0] // groups, math.prod(weight.shape[1:]), samples * math.prod(out)
    columns = table.reshape(G, K, L)  # (C, kh, kw, N, oh, ow) -> (G, K, L)
    w = weight.array.reshape(G, o, K)  # (O, C / G, kh, kw) -> (G, o, K)
    y = xp.matmul(columns.swapaxes(1, 2), w.swapaxes(1, 2))  # -> (G, L, o)
    if bias is not None:
        y += bias.array.reshape(G, 1, o)
    y = y.reshape(G, samples, *out, o).transpose(1, 0, 4, 2, 3)  # (G, L, o) -> (N, G, o, oh, ow)
    y = y.reshape(samples, G * o, *out)  # -> (N, O, oh, ow)
    needs, weight_shape, present = x.requires_grad, weight.shape, (True, True, bias is not None)

    def backward(g):
        # y^T = w columns for each group, so gw = g columns^T and the columns' gradient is w^T g
        g = g.reshape(samples, G, o, *out).transpose(1, 2, 0, 3, 4)  # (N, O, oh, ow) -> (G, o, N, oh, ow)
        g = g.reshape(G, o, L)  # -> (G, o, L)
        gw = xp.matmul(g, columns.swapaxes(1, 2)).reshape(weight_shape)  # (G, o, K) -> (O, C / G, kh, kw)
        gb = xp.matmul(g, xp.ones(L, g.dtype)).reshape(G * o)
        gx = None
        if needs:
            gx = add_windows(xp.matmul(w.swapaxes(1, 2), g).reshape(table_shape), padded_size, stride, dilation)
            gx = gx[unpadded_index(size, pads)].swapaxes(0, 1)  # (C, N, H', W') -> (N, C, H, W)
        return tuple(compress((gx, gw, gb), present))

    return Tensor.from_op("conv2d", y, tuple(compress((x, weight, bias), present)), backward)


def conv1d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Slide kernels over sequences: y[n, o, p] = b[o] + sum over c, i of w[o, c, i] x[n, c, s p + d i - padding].

    Parameters
    ----------
    x : Tensor (N, C, L) or (C, L)
    weight : Tensor (O, C / groups, k)
    bias : Tensor (O,), optional
    stride, padding, dilation, groups
        As in `conv2d`, for one axis.

    Returns
    -------
    Tensor (N, O, l) with l = (L + 2 padding - d (k - 1) - 1) // s + 1, or (O, l)

    Raises
    ------
    RuntimeError
        As in `conv2d`.
    """
    if weight.ndim != 3 or x.ndim not in (2, 3):
        raise RuntimeError(f"conv1d needs x (N, C, L) or (C, L) and weight (O, C / groups, k), got {x.shape} and "
                           f"{weight.shape}")
    padding = padding if isinstance(padding, str) else as_2d(padding, 0, "padding")
    steps = as_2d(stride, 1, "stride"), padding, as_2d(dilation, 1, "dilation")
    return squeeze(conv2d(unsqueeze(x, -2), unsqueeze(weight, -2), bias, *steps, groups), -2)


def as_2d(value, height, name):
    """A number for one axis as one for height and width; `height` is also the least that it may be."""
    return height, pair(value, name, least=height)[-1]


def pads_of(padding, kernel, stride, dilation):
    """((top, bottom), (left, right)) for a convolution's `padding`."""
    if padding == "valid":
        padding = 0
    if padding != "same":
        return on_both_sides(padding)
    if stride != (1, 1):
        raise RuntimeError(f"padding='same' keeps the size only with stride 1, got {stride}")
    totals = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return tuple((total // 2, total - total // 2) for total in totals)


def on_both_sides(padding):
    """((p, p), (q, q)) for a padding of p rows and q columns."""
    return tuple((n, n) for n in pair(padding, "padding", least=0))


def check_conv(x, weight, bias, groups):
    """RuntimeError unless x (N, C, H, W), weight (O, C / groups, kh, kw) and bias (O,) or None fit together."""
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise RuntimeError(f"conv needs x (N, C, H, W) and weight (O, C / groups, kh, kw) with O divisible by "
                           f"groups, got {x.shape}, {weight.shape} and {groups} groups")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"conv needs bias ({weight.shape[0]},) for weight {weight.shape}, got {bias.shape}")
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != weight.dtype):
        raise RuntimeError(f"conv needs one dtype, got x {x.dtype} and weight {weight.dtype}; convert one with "
                           "to(dtype)")


def check_fits(size, pads, kernel, dilation):
    """RuntimeError if a window is larger than the padded image."""
    for n, (before, after), k, d in zip(size, pads, kernel, dilation):
        if d * (k - 1) + 1 > n + before + after:
            raise RuntimeError(f"a window of {kernel} with dilation {dilation} is larger than the image {tuple(size)} "
                               f"with padding {pads}")


# Windows as columns

def unfold(x, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of each image as columns: (N, C, H, W) -> (N, C kh kw, oh ow).

    Parameters
    ----------
    x : Tensor (N, C, H, W) or (C, H, W)
    kernel_size, dilation, padding, stride : int or two
        As in `conv2d`.

    Returns
    -------
    Tensor (N, C kh kw, oh ow) or (C kh kw, oh ow), windows in reading order

    Raises
    ------
    RuntimeError
        If a window is larger than the padded image.
    """
    if x.ndim == 3:
        return squeeze(unfold(unsqueeze(x, 0), kernel_size, dilation, padding, stride), 0)
    kernel, size = pair(kernel_size, "kernel_size"), x.shape[2:]
    dilation, stride = pair(dilation, "dilation"), pair(stride, "stride")
    pads = on_both_sides(padding)
    check_fits(size, pads, kernel, dilation)
    images = padded(x.array.swapaxes(0, 1), pads)  # (N, C, H, W) -> (C, N, H', W')
    table = windows(images, kernel, stride, dilation)  # -> (C, kh, kw, N, oh, ow)
    shape, padded_size = table.shape, images.shape[2:]
    y = table.reshape(math.prod(shape[:3]), shape[3], math.prod(shape[4:]))  # -> (C kh kw, N, oh ow)

    def backward(g):
        gx = add_windows(g.swapaxes(0, 1).reshape(shape), padded_size, stride, dilation)
        return (gx[unpadded_index(size, pads)].swapaxes(0, 1),)

    return Tensor.from_op("unfold", y.swapaxes(0, 1), (x,), backward)


def fold(x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The transpose of `unfold`: add columns back into images, (N, C kh kw, oh ow) -> (N, C, H, W).

    Parameters
    ----------
    x : Tensor (N, C kh kw, oh ow) or (C kh kw, oh ow)
    output_size : int or two
        H and W.
    kernel_size, dilation, padding, stride : int or two
        As in `unfold`.

    Raises
    ------
    RuntimeError
        If x does not have as many rows and columns as such windows.
    """
    if x.ndim == 2:
        return squeeze(fold(unsqueeze(x, 0), output_size, kernel_size, dilation, padding, stride), 0)
    size, kernel = pair(output_size, "output_size"), pair(kernel_size, "kernel_size")
    dilation, stride = pair(dilation, "dilation"), pair(stride, "stride")
    pads = on_both_sides(padding)
    padded_size = tuple(n + 2 * p for n, (p, _) in zip(size, pads))
    out = tuple(window_count(*step) for step in zip(padded_size, kernel, stride, dilation))
    if x.shape[1] % math.prod(kernel) or x.shape[2] != math.prod(out):
        raise RuntimeError(f"fold needs x (N, C {math.prod(kernel)}, {math.prod(out)}) for windows {kernel} of images "
                           f"{size}, got {x.shape}")
    samples, rows, count = x.shape
    channels = rows // math.prod(kernel)
    table = x.array.swapaxes(0, 1).reshape(channels, *kernel, samples, *out)  # -> (C, kh, kw, N, oh, ow)
    y = add_windows(table, padded_size, stride, dilation)[unpadded_index(size, pads)]  # -> (C, N, H, W)

    def backward(g):
        table = windows(padded(g.swapaxes(0, 1), pads), kernel, stride, dilation)
        return (table.reshape(rows, samples, count).swapaxes(0, 1),)

    return Tensor.from_op("fold", y.swapaxes(0, 1), (x,), backward)


# Pooling

@through_float32
def avg_pool2d(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    """The mean of each window.

    Parameters
    ----------
    x : Tensor (N, C, H, W) or (C, H, W)
    kernel_size, stride, padding : int or two
        The stride is the kernel size unless given; what is padded counts as 0.
    ceil_mode : bool
        Keep a last window that reaches over the edge, as long as it starts inside.
    count_include_pad : bool
        Whether the padding asked for counts in the mean; what `ceil_mode` reaches over the edge never does.
    divisor_override : int, optional
        Divide the sums by this instead.

    Returns
    -------
    Tensor (N, C, oh, ow) or (C, oh, ow)

    Raises
    ------
    RuntimeError
        If the padding is more than half a window, or a window is larger than the padded image.
    """
    if divisor_override == 0:
        raise RuntimeError("divisor_override must not be 0")
    if x.ndim == 3:
        arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return squeeze(avg_pool2d(unsqueeze(x, 0), *arguments), 0)
    kernel, stride, pads, pads_with_overhang = pooling(x.shape[2:], kernel_size, stride, padding, (1, 1), ceil_mode)
    images = padded(x.array.swapaxes(0, 1), pads_with_overhang)  # (N, C, H, W) -> (C, N, H', W')
    table = windows(images, kernel, stride, (1, 1))  # -> (C, kh, kw, N, oh, ow)
    size, shape, padded_size, dtype = x.shape[2:], table.shape, images.shape[2:], table.dtype
    divisor = divisor_override
    if divisor is None:
        # 1 at what counts: the image, the padding asked for if wished, never ceil_mode's overhang
        counted = padded(xp.ones((1, 1, *size)), pads, int(count_include_pad))
        overhang = tuple((0, whole - after) for (_, whole), (_, after) in zip(pads_with_overhang, pads))
        divisor = windows(padded(counted, overhang), kernel, stride, (1, 1)).sum(axis=(1, 2)).astype(dtype)
    y = (table.sum(axis=(1, 2)) / divisor).astype(dtype)  # -> (C, N, oh, ow)

    def backward(g):
        share = (g.swapaxes(0, 1) / divisor)[:, None, None]
        gx = add_windows(xp.broadcast_to(share, shape), padded_size, stride, (1, 1))
        return (gx[unpadded_index(size, pads_with_overhang)].swapaxes(0, 1),)

    return Tensor.from_op("avg_pool2d", y.swapaxes(0, 1), (x,), backward)


def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The largest element of each window; the gradient goes to the first of several equal ones.

    Parameters
    ----------
    x : Tensor (N, C, H, W) or (C, H, W)
    kernel_size, stride, padding, dilation : int or two
        The stride is the kernel size unless given; what is padded counts as -inf.
    ceil_mode : bool
        Keep a last window that reaches over the edge, as long as it starts inside.
    return_indices : bool
        Also return where in the image each came from: row W + column.

    Returns
    -------
    Tensor (N, C, oh, ow) or (C, oh, ow); with `return_indices` two of them

    Raises
    ------
    RuntimeError
        If the padding is more than half a window, or a window is larger than the padded image.
    """
    if x.ndim == 3:
        found = max_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return tuple(squeeze(r, 0) for r in found) if return_indices else squeeze(found, 0)
    dilation = pair(dilation, "dilation")
    kernel, stride, pads, pads_with_overhang = pooling(x.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)
    lowest = -math.inf if x.dtype.kind == "f" else xp.iinfo(x.dtype).min
    images = padded(x.array.swapaxes(0, 1), pads_with_overhang, lowest)  # (N, C, H, W) -> (C, N, H', W')
    table = windows(images, kernel, stride, dilation)  # -> (C, kh, kw, N, oh, ow)
    size, shape, padded_size = x.shape[2:], table.shape, images.shape[2:]
    elements = table.reshape(shape[0], math.prod(kernel), *shape[3:])  # -> (C, kh kw, N, oh, ow)
    chosen = elements.argmax(axis=1)[:, None]  # -> (C, 1, N, oh, ow), the index of one in its window
    y = xp.take_along_axis(elements, chosen, axis=1)[:, 0]
    if images.shape != (*images.shape[:2], *size):
        # where the maximum is that of the padding, choose the first element that is not padding
        real = windows(padded(xp.ones((1, 1, *size), bool), pads_with_overhang, False), kernel, stride, dilation)
        first = real.reshape(1, math.prod(kernel), 1, *shape[4:]).argmax(axis=1)[:, None]  # -> (1, 1, 1, oh, ow)
        chosen = xp.where(y[:, None] == lowest, first, chosen)

    def backward(g):
        index = xp.arange(math.prod(kernel)).reshape(-1, 1, 1, 1)
        table = masked(g.swapaxes(0, 1)[:, None], index == chosen)  # -> (C, kh kw, N, oh, ow)
        gx = add_windows(table.reshape(shape), padded_size, stride, dilation)
        return (gx[unpadded_index(size, pads_with_overhang)].swapaxes(0, 1),)

    result = Tensor.from_op("max_pool2d", y.swapaxes(0, 1), (x,), backward)
    if not return_indices:
        return result
    row = stride[0] * xp.arange(shape[4])[:, None] + dilation[0] * (chosen[:, 0] // kernel[1]) - pads[0][0]
    column = stride[1] * xp.arange(shape[5]) + dilation[1] * (chosen[:, 0] % kernel[1]) - pads[1][0]
    return result, Tensor.from_op("max_pool2d", (row * size[1] + column).swapaxes(0, 1), (x,))


def pooling(size, kernel_size, stride, padding, dilation, ceil_mode):
    """A pooling's sizes.

    Returns
    -------
    kernel, stride : two ints each
    pads : ((top, bottom), (left, right)), the padding asked for
    pads_with_overhang : likewise, with as much more at the end as the last windows of `ceil_mode` need
    """
    kernel = pair(kernel_size, "kernel_size")
    stride = kernel if stride is None or stride == () or stride == [] else pair(stride, "stride")
    pads = on_both_sides(padding)
    if any(2 * p > k for (p, _), k in zip(pads, kernel)):
        raise RuntimeError(f"padding {padding} is more than half a window {kernel}")
    check_fits(size, pads, kernel, dilation)
    pads_with_overhang = []
    for n, k, s, d, (p, _) in zip(size, kernel, stride, dilation, pads):
        count = window_count(n + 2 * p, k, s, d)
        if ceil_mode and (n + 2 * p - d * (k - 1) - 1) % s and count * s < n + p:
            count += 1
        pads_with_overhang.append((p, max(p, (count - 1) * s + d * (k - 1) + 1 - n - p)))
    return kernel, stride, pads, tuple(pads_with_overhang)


def avg_pool1d(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """`avg_pool2d` of sequences: x (N, C, L) or (C, L)."""
    stride = stride if stride is None else as_2d(stride, 1, "stride")
    y = avg_pool2d(unsqueeze(x, -2), as_2d(kernel_size, 1, "kernel_size"), stride, as_2d(padding, 0, "padding"),
                   ceil_mode, count_include_pad)
    return squeeze(y, -2)


def max_pool1d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """`max_pool2d` of sequences: x (N, C, L) or (C, L); indices are positions."""
    stride = stride if stride is None else as_2d(stride, 1, "stride")
    found = max_pool2d(unsqueeze(x, -2), as_2d(kernel_size, 1, "kernel_size"), stride, as_2d(padding, 0, "padding"),
                       as_2d(dilation, 1, "dilation"), ceil_mode, return_indices)
    return tuple(squeeze(r, -2) for r in found) if return_indices else squeeze(found, -2)


# Padding

def pad(x, pad, mode="constant", value=None):
    """Add elements before and after the last axes, or with negative numbers take some away.

    (1, 2, 3) with pad 1, 2 gives 0 1 2 3 0 0; "reflect" 2 1 2 3 2 1; "replicate" 1 1 2 3 3 3; "circular" 3 1 2 3 1 2.

    Parameters
    ----------
    x : Tensor
    pad : sequence of ints
        Before and after the last axis, then before and after the one before it, and so on.
    mode : {"constant", "reflect", "replicate", "circular"}
    value : float, optional
        What "constant" adds; 0 by default.

    Raises
    ------
    RuntimeError
        If `pad` is no list of pairs, has more pairs than x axes, or asks for more than an axis has to reflect (n - 1)
        or to repeat (n), or takes away more than there is.
    NotImplementedError
        If `mode` is none of the four.
    """
    pads = [(int(before), int(after)) for before, after in zip(pad[::2], pad[1::2])][::-1]
    if len(pad) % 2 or len(pads) > x.ndim:
        raise RuntimeError(f"pad needs a pair of numbers for each of the last axes of {x.shape}, got {tuple(pad)}")
    pads = [(0, 0)] * (x.ndim - len(pads)) + pads
    if any(before + n + after < 0 for n, (before, after) in zip(x.shape, pads)):
        raise RuntimeError(f"pad {tuple(pad)} takes away more than there is in {x.shape}")
    if mode == "constant":
        return pad_constant(x, pads, 0 if value is None else value)
    return pad_from_itself(x, pads, mode)


def pad_constant(x, pads, value):
    """`pad` with a constant: what remains of x is copied into an array that is full of it."""
    y = xp.full([before + n + after for n, (before, after) in zip(x.shape, pads)], value, x.dtype)
    taken = tuple(slice(max(-before, 0), n - max(-after, 0)) for n, (before, after) in zip(x.shape, pads))
    put = tuple(slice(max(before, 0), n - max(after, 0)) for n, (before, after) in zip(y.shape, pads))
    y[put] = x.array[taken]

    def backward(g):
        return (Partial(taken, g[put]),)

    return Tensor.from_op("pad", y, (x,), backward)


def pad_from_itself(x, pads, mode):
    """`pad` with elements of x: each axis is read at computed indices, and backward adds up at these indices."""
    y, sources, sizes = x.array, [], x.shape
    for axis, (n, (before, after)) in enumerate(zip(sizes, pads)):
        if before or after:
            sources.append((axis, n, source_index(mode, n, before, after)))
            y = xp.take(y, sources[-1][2], axis=axis)

    def backward(g):
        for axis, n, index in sources:
            gx = xp.zeros((n, *g.shape[:axis], *g.shape[axis + 1:]), g.dtype)
            add_rows(gx, index, xp.moveaxis(g, axis, 0))
            g = xp.moveaxis(gx, 0, axis)
        return (g,)

    return Tensor.from_op("pad", y, (x,), backward, view=True)  # where nothing is padded, y is x's array


def source_index(mode, n, before, after):
    """Where in an axis of n elements each element of the padded axis comes from."""
    index = xp.arange(-before, n + after)
    most = {"reflect": n - 1, "replicate": math.inf if n else 0, "circular": n}
    if mode not in most:
        raise NotImplementedError(f"pad has the modes 'constant', 'reflect', 'replicate' and 'circular', got {mode!r}")
    if max(before, after) > most[mode]:
        raise RuntimeError(f"pad in mode {mode!r} can add at most {most[mode]} to an axis of {n}, got {before} and "
                           f"{after}")
    if mode == "reflect":
        return n - 1 - abs(n - 1 - abs(index))  # a triangle wave of period 2 (n - 1), as far as it is needed
    if mode == "replicate":
        return xp.clip(index, 0, n - 1)
    first, end = max(-before, 0), n - max(-after, 0)  # what is taken away goes first
    return first + (index - first) % (end - first)
