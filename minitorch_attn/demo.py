"""The demonstration: train a GPT on four poems, let it continue them, check its gradients, draw its attention."""
import copy
import os
import sys
import tempfile
import time

from . import distributed, optim
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
LINE = 12  # characters of a continued line, with its beginning
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
    """Train with AdamW and a progress bar; returns the loss of each step and the tokens read a second.

    Where several processes train together, each draws the same windows and takes its part of them.
    """
    from tqdm import tqdm
    model = distributed.DistributedDataParallel(model)  # in one process: the model, no more
    optimizer, losses = optim.AdamW(model.parameters(), lr=3e-3), []
    began = time.perf_counter()
    with tqdm(total=steps, unit=" steps", desc="training", mininterval=0.5, disable=distributed.get_rank() > 0) as bar:
        for _ in range(steps):
            x, y = distributed.shard(make_batch(data))
            _, loss = model(x, y)
            model.count = len(y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(distributed.average(loss.item(), count=len(y)))
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
            ids = generate(model, tensor([tokenizer.encode(start)]), LINE - len(start), **choice)
            line = tokenizer.decode(ids[0])
            yield f"  {rule:16} {'*' if line in text else ' '} {one_line(line)}"


def parameter_groups(model):
    """A GPT's parameters by the layer they belong to: {"tok_emb": [...], "blocks.0.ln_1": [...], ...}."""
    groups = {}
    for name, w in model.named_parameters():
        parts = name.split(".")[:-1]
        groups.setdefault(".".join(parts[:3] if parts[0] == "blocks" else parts[:1]), []).append(w)
    return groups


@no_grad()
def slope_by_differences(loss, weights, directions, h=1e-4):
    """The slope of the function ``loss()`` as `weights` move along `directions`; they are put back afterwards.

    (8 (L(w + h d) - L(w - h d)) - (L(w + 2h d) - L(w - 2h d))) / 12 h, which is right up to O(h^4).
    """
    start, found = [w.detach().clone() for w in weights], {}
    for step in (-2, -1, 1, 2):
        for w, w0, d in zip(weights, start, directions):
            w.copy_(w0 + step * h * d)
        found[step] = loss().item()
    for w, w0 in zip(weights, start):
        w.copy_(w0)
    return (8 * (found[1] - found[-1]) - (found[2] - found[-2])) / (12 * h)


def gradient_check(model, x, y):
    """Hold the gradients of a float64 copy of `model` against finite differences, a group of layers at a time.

    The slope of the loss L along a random direction d of the group's parameters is <grad L, d>.

    Returns
    -------
    list of (name, number of parameters, slope by backward, slope by differences)
    """
    model = copy.deepcopy(model).double()
    model.zero_grad()
    model(x, y)[1].backward()
    rows, generator = [], Generator().manual_seed(0)
    for name, weights in parameter_groups(model).items():
        directions = [randn(w.shape, dtype=w.dtype, generator=generator) / w.numel() ** 0.5 for w in weights]
        slope = sum((w.grad * d).sum().item() for w, d in zip(weights, directions))
        differences = slope_by_differences(lambda: model(x, y)[1], weights, directions)
        rows.append((name, sum(w.numel() for w in weights), slope, differences))
    return rows


def demo(steps=400, seed=0, text=None, out="out", data_parallel=False):
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
    data_parallel : bool
        Train together with the other processes that mpiexec started; one of them prints.

    Returns
    -------
    int
        The exit status: 0, or 2 if `text` or `out` will not do or MPI is missing, which one sentence on stderr says.
    """
    try:
        if data_parallel:
            distributed.init_process_group()
        corpus = read_text(text)
        make_folder(out)
    except (ValueError, ImportError, RuntimeError) as error:
        print(f"minitorch-attn demo: {error}", file=sys.stderr)
        return 2
    manual_seed(seed)
    tokenizer = CharacterTokenizer(corpus)
    data = tensor(tokenizer.encode(corpus))
    model = GPT(GPTConfig(vocab_size=len(tokenizer), block_size=2 * LENGTH))
    if distributed.get_rank() > 0:
        train(model, data, steps)
        distributed.destroy_process_group()
        return 0
    print(f"text      {text or 'four Tang poems'}: {len(corpus):,} characters, {len(tokenizer):,} different")
    sizes = model.config
    print(f"model     GPT, {sizes.n_layer} layers of {sizes.n_head} heads, width {sizes.n_embd}: "
          f"{sum(w.numel() for w in model.parameters()):,} parameters", flush=True)

    losses, speed = train(model, data, steps)
    distributed.destroy_process_group()
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

    start = tokenizer.encode(beginnings(corpus)[0])
    shown = generate(model, tensor([start]), LINE - len(start), temperature=0)
    with no_grad():
        weights = model(shown, need_weights=True)[2]
    print("\nFigures")
    print(" ", loss_curve(losses, os.path.join(out, "loss.png")))
    print(" ", attention_maps([w[0] for w in weights], list(tokenizer.decode(shown[0])),
                              os.path.join(out, "attention.png")))
    return 0
