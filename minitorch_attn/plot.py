"""Figures. matplotlib is imported inside the functions, so that using the library never loads it."""
import functools
import os

__all__ = ["attention", "attention_maps", "font_for", "loss_curve", "mask"]

# fonts that have Chinese characters, on the systems that come with them; every other installed font is tried after
CHINESE = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
           "PingFang SC", "Hiragino Sans GB", "Heiti SC", "Microsoft YaHei", "SimHei", "SimSun")


@functools.cache
def characters_of(path):
    """The code points that the font file at `path` has glyphs for; none if it cannot be read."""
    from matplotlib.font_manager import get_font
    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


@functools.lru_cache
def font_for(text):
    """The name of an installed font that has every character of `text`, or None.

    matplotlib's own font comes first, so that what needs nothing special looks like the rest of the figure.
    """
    from matplotlib.font_manager import FontProperties, findfont, fontManager
    needed = {ord(c) for c in text if not c.isspace()}
    usual = findfont(FontProperties())
    rank = {name: i for i, name in enumerate(CHINESE)}
    for font in sorted(fontManager.ttflist, key=lambda f: (f.fname != usual, rank.get(f.name, len(rank)), f.fname)):
        if not font.name.startswith("Last Resort") and needed <= characters_of(font.fname):  # that one draws boxes
            return font.name
    return None


def tick_labels(tokens):
    """What to write at an axis of `tokens`, and in which font: the tokens, or their places if no font has them."""
    shown = [{"\n": "\\n", "\t": "\\t", " ": "␣"}.get(token, token) for token in tokens]
    font = font_for("".join(sorted(set("".join(shown)))))
    return (shown, font) if font else ([str(i) for i in range(len(tokens))], "sans-serif")


def new_figure(width, height, rows=1, columns=1):
    """A figure in inches and its axes, (rows, columns); it belongs to no window and needs no screen."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure, path):
    """Write the figure as the PNG at `path`, making its folder, and return the path."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def loss_curve(losses, path, title="Training loss"):
    """Draw the loss (nats a token, logarithmic) over the steps, and its running mean, to the PNG at `path`.

    Parameters
    ----------
    losses : sequence of float, one a step
    path : str
    title : str

    Returns
    -------
    str
        `path`.

    Raises
    ------
    ValueError
        If there is no loss to draw.
    """
    import numpy
    losses = numpy.asarray(losses, dtype=float)
    if losses.size == 0:
        raise ValueError("a loss curve needs at least one loss")
    figure, ((axes,),) = new_figure(6, 3.5)
    axes.plot(losses, color="0.75", linewidth=0.8, label="each step")
    span = max(1, losses.size // 20)
    mean = numpy.convolve(losses, numpy.ones(span) / span, mode="valid")
    axes.plot(numpy.arange(mean.size) + (span - 1) / 2, mean, color="C0", label=f"mean of {span} steps")
    if (losses > 0).all():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="step", ylabel="loss (nats a token)", title=title)
    axes.legend(frameon=False)
    return save(figure, path)


def attention_maps(weights, tokens, path, title="What each head attends to"):
    """Draw every head's attention as a heat map to the PNG at `path`: a row of maps a layer, a column a head.

    Each line of a map is a query and sums to 1; its columns are the keys, left the first. The colours run from 0
    (white) to 1.

    Parameters
    ----------
    weights : list of arrays or Tensors (H, T, S), one for each layer
    tokens : sequence of str, S of them
        The axis labels. Where no installed font has the characters, their places 0, 1, ... are written instead.
    path : str
    title : str

    Returns
    -------
    str
        `path`.

    Raises
    ------
    ValueError
        If the number of tokens is not S.
    """
    import numpy
    maps = [numpy.asarray(w.detach() if hasattr(w, "detach") else w) for w in weights]
    (H, T, S), L = maps[0].shape, len(maps)
    if len(tokens) != S:
        raise ValueError(f"{len(tokens)} tokens cannot label {S} keys: weights are {maps[0].shape}")
    labels, font = tick_labels(tokens)
    side = max(1.9, 0.18 * S)
    figure, axes = new_figure(side * H + 0.8, side * L * T / S + 0.9, L, H)
    for layer in range(L):
        for head in range(H):
            ax = axes[layer, head]
            image = ax.imshow(maps[layer][head], cmap="Blues", vmin=0, vmax=1)
            ax.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            ax.set_xticks(range(S), labels, fontfamily=font, fontsize=7.5, verticalalignment="baseline")
            ax.set_yticks(range(T), labels[S - T:], fontfamily=font, fontsize=7.5)
            ax.tick_params(length=0)
            ax.tick_params("x", pad=10)
    figure.supxlabel("key: the token attended to", fontsize=9)
    figure.supylabel("query: the token that attends", fontsize=9)
    figure.suptitle(title, fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.8, label="weight")
    return save(figure, path)


def values_of(x):
    """A Tensor or array as a NumPy array."""
    import numpy
    return numpy.asarray(x.detach() if hasattr(x, "detach") else x)


def attention(weights, queries, keys, path, title="Who reads from whom"):
    """Draw one attention map to the PNG at `path`: a line a query, a column a key, such as a translation's alignment.

    Parameters
    ----------
    weights : array or Tensor (T, S)
        Colours run from 0 (white) to 1.
    queries, keys : sequences of T and of S str
        The axis labels.
    path : str
    title : str

    Returns
    -------
    str
        `path`.

    Raises
    ------
    ValueError
        If `weights` is not (T, S).
    """
    shown = values_of(weights)
    if shown.shape != (len(queries), len(keys)):
        raise ValueError(f"{len(queries)} queries and {len(keys)} keys label a map of that size, got {shown.shape}")
    figure, ((axes,),) = new_figure(max(3, 0.28 * len(keys)) + 1.6, max(2, 0.28 * len(queries)) + 1.2)
    image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for set_ticks, tokens in ((axes.set_xticks, keys), (axes.set_yticks, queries)):
        labels, font = tick_labels(tokens)
        set_ticks(range(len(tokens)), labels, fontfamily=font, fontsize=8)
    axes.tick_params(length=0)
    axes.set(xlabel="key", ylabel="query", title=title)
    figure.colorbar(image, ax=axes, shrink=0.8, label="weight")
    return save(figure, path)


def mask(masks, path, title="What each query may see"):
    """Draw masks side by side to the PNG at `path`: dark cells may be seen.

    Parameters
    ----------
    masks : dict from a name to an array or Tensor (T, S) of bool; leading axes of size 1 are left out
    path : str
    title : str

    Returns
    -------
    str
        `path`.

    Raises
    ------
    ValueError
        If there is no mask, or one is not boolean or has more than two axes.
    """
    shown = {name: values_of(m) for name, m in masks.items()}
    shown = {name: m.reshape(m.shape[-2:]) if m.ndim > 2 and m.size == m[(0,) * (m.ndim - 2)].size else m
             for name, m in shown.items()}
    wrong = [f"{name} {m.dtype}{m.shape}" for name, m in shown.items() if m.dtype != bool or m.ndim != 2]
    if wrong or not shown:
        raise ValueError(f"masks must be boolean (T, S), one at least, got {', '.join(wrong) or 'none'}")
    figure, (row,) = new_figure(2.3 * len(shown) + 0.4, 2.9, 1, len(shown))
    for axes, (name, m) in zip(row, shown.items()):
        axes.imshow(m, cmap="Blues", vmin=0, vmax=1.4)
        for side, n in ((axes.xaxis, m.shape[1]), (axes.yaxis, m.shape[0])):
            side.set_ticks([i - 0.5 for i in range(n + 1)] if n <= 40 else [])
            side.set_tick_params(length=0, labelbottom=False, labelleft=False)
        axes.grid(color="0.85", linewidth=0.5)
        axes.set_title(name, fontsize=9)
    figure.supxlabel("key", fontsize=9)
    figure.supylabel("query", fontsize=9)
    figure.suptitle(title, fontsize=11)
    return save(figure, path)
