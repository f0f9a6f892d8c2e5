"""The demonstration: train a GPT on four poems, let it continue them, check its gradients, draw its attention."""
import copy
import os
import sys
import tempfile
import time

from . import optim
from .datasets import tang_poems
from .generate import generate
from .grad_mode import no_grad
from .models.gpt import GPT, GPTConfig
from .ops import arange, randint, randn, tensor
from .plot import attention_maps, loss_curve
from .random import Generator, manual_seed
from .text.characters import CharacterTokenizer

__all__ = ["demo"]

BATCH, LENGTH = 32, 16  # windows a step, characters a window
RULES = {
    "greedy": dict(temperature=0),
    "temperature 0.8": dict(temperature=0.8),
    "top-k 5": dict(top_k=5),
    "top-p 0.9": dict(top_p=0.9),
}


def read_text(path):
    """The text to learn: the file at `path`, or the poems; ValueError, a sentence, if it will not do."""
    if path is None:
        return tang_poems()
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise ValueError(f"cannot read the text {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"the text {path} is not UTF-8: byte {error.start} cannot be decoded") from None
    if len(text) <= LENGTH:
        raise ValueError(f"the text {path} is {'too short' if text else 'empty'}: it has {len(text)} characters, and "
                         f"training takes windows of {LENGTH + 1}")
    return text


def make_folder(path):
    """Make the folder for the figures; ValueError, a sentence, if nothing can be written there."""
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to the folder {path}: {error.strerror}") from None


def make_batch(data):
    """Random windows of the text and, one character on, what comes next: two of (BATCH, LENGTH)."""
    starts = randint(0, len(data) - LENGTH, (BATCH,))
    windows = starts[:, None] + arange(LENGTH)                                # (BATCH,) -> (BATCH, LENGTH)
    return data[windows], data[windows + 1]


def train(model, data, steps):
    """Train with AdamW and a progress bar; returns the loss of each step and the tokens read a second."""
    from tqdm import tqdm
    optimizer, losses = optim.AdamW(model.parameters(), lr=3e-3), []
    began = time.perf_counter()
    with tqdm(total=steps, unit=" steps", desc="training", mininterval=0.5) as bar:
        for _ in range(steps):
            _, loss = model(*make_batch(data))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            bar.update()
    return losses, steps * BATCH * LENGTH / (time.perf_counter() - began)


def beginnings(text):
    """Where to continue from: the first character of three poems, or three places of another text."""
    if text == tang_poems():
        return ["白", "春", "红"]
    return [text[i:i + 4] for i in (0, len(text) // 3, 2 * len(text) // 3)]


def one_line(text):
    """`text` with its line ends shown, so that it fits a line of the table."""
    return text.replace("\n", "\\n")


def continuations(model, tokenizer, text):
    """Lines of a table: every beginning continued by every rule, with a star where the text has it so."""
    for start in beginnings(text):
        for rule, choice in RULES.items():
            ids = generate(model, tensor([tokenizer.encode(start)]), 12 - len(start), **choice)
            line = tokenizer.decode(ids[0])
            yield f"  {rule:16} {'*' if line in text else ' '} {one_line(line)}"


def gradient_check(model, x, y):
    """Hold the gradients of a float64 copy of `model` against finite differences, a group of layers at a time.

    For a random direction d over the parameters w of the group, the slope of the loss L along d is <grad L, d>, and

        (8 (L(w + h d) - L(w - h d)) - (L(w + 2h d) - L(w - 2h d))) / 12 h

    up to O(h^4).

    Returns
    -------
    list of (name, number of parameters, slope by backward, slope by differences)
    """
    model = copy.deepcopy(model).double()
    model.zero_grad()
    model(x, y)[1].backward()
    groups = {}
    for name, w in model.named_parameters():
        parts = name.split(".")[:-1]
        groups.setdefault(".".join(parts[:3] if parts[0] == "blocks" else parts[:1]), []).append(w)
    h, rows, generator = 1e-4, [], Generator().manual_seed(0)
    for name, weights in groups.items():
        d = [randn(w.shape, dtype=w.dtype, generator=generator) / w.numel() ** 0.5 for w in weights]
        slope = sum((w.grad * direction).sum().item() for w, direction in zip(weights, d))
        start, loss = [w.detach().clone() for w in weights], {}
        with no_grad():
            for step in (-2, -1, 1, 2):
                for w, w0, direction in zip(weights, start, d):
                    w.copy_(w0 + step * h * direction)
                loss[step] = model(x, y)[1].item()
            for w, w0 in zip(weights, start):
                w.copy_(w0)
        differences = (8 * (loss[1] - loss[-1]) - (loss[2] - loss[-2])) / (12 * h)
        rows.append((name, sum(w.numel() for w in weights), slope, differences))
    return rows


def demo(steps=400, seed=0, text=None, out="out"):
    """Train, continue, check and draw; prints as it goes.

    Parameters
    ----------
    steps : int
        Training steps, at least 1.
    seed : int
        The same seed gives the same run.
    text : str, optional
        Path of a UTF-8 file to learn instead of the poems.
    out : str
        Folder for the figures.

    Returns
    -------
    int
        The exit status: 0, or 2 if `text` or `out` will not do, which one sentence on stderr says.
    """
    try:
        corpus = read_text(text)
        make_folder(out)
    except ValueError as error:
        print(f"minitorch-attn demo: {error}", file=sys.stderr)
        return 2
    manual_seed(seed)
    tokenizer = CharacterTokenizer(corpus)
    data = tensor(tokenizer.encode(corpus))
    model = GPT(GPTConfig(vocab_size=len(tokenizer), block_size=2 * LENGTH))
    print(f"text      {text or 'four Tang poems'}: {len(corpus):,} characters, {len(tokenizer):,} different")
    print(f"model     GPT, 2 layers of 4 heads, width 64: {sum(w.numel() for w in model.parameters()):,} parameters",
          flush=True)

    losses, speed = train(model, data, steps)
    last = losses[-20:]
    print(f"training  {steps} steps, {speed:,.0f} tokens a second, "
          f"final loss {sum(last) / len(last):.3f} (mean of the last {len(last)} steps)")

    model.eval()
    print(f"\nContinuing {one_line(', '.join(beginnings(corpus)))} (* marks what stands in the text just so)")
    for line in continuations(model, tokenizer, corpus):
        print(line)

    print("\nGradients of the trained model against finite differences, along a random direction in float64")
    print(f"  {'layer':14} {'parameters':>10} {'backward':>13} {'differences':>13} {'relative error':>15}")
    for name, count, slope, differences in gradient_check(model, *make_batch(data)):
        error = abs(slope - differences) / max(abs(slope), abs(differences), 1e-12)
        print(f"  {name:14} {count:10,} {slope:13.6e} {differences:13.6e} {error:15.1e}")

    shown = generate(model, tensor([tokenizer.encode(beginnings(corpus)[0])]), 11, temperature=0)[:, :12]
    with no_grad():
        weights = model(shown, need_weights=True)[2]
    print("\nFigures")
    print(" ", loss_curve(losses, os.path.join(out, "loss.png")))
    print(" ", attention_maps([w[0] for w in weights], list(tokenizer.decode(shown[0])),
                              os.path.join(out, "attention.png")))
    return 0
