"""Training speed side by side with PyTorch: ``python -m benchmarks``.

Three small trainings, each written once and run by both libraries: a character GPT, a vision Transformer and a
recurrent translator with attention. Each library works in a process of its own with the same number of threads. The
two take turns, a handful of steps each, and what is reported is the median over the turns of the ratio of their
times, so that a machine that is busy for a while is busy for both.
"""
import argparse
import contextlib
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time


def mini_gpt(torch):
    """A character GPT of 2 layers, width 64: batch 32, 16 tokens, AdamW."""
    nn, V, T = torch.nn, 73, 16
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    parts = nn.ModuleDict({
        "tok": nn.Embedding(V, 64), "pos": nn.Embedding(32, 64),
        "blocks": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "ln": nn.LayerNorm(64), "head": nn.Linear(64, V),
    })
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    data = torch.randint(0, V, (96,))

    def loss():
        ix = torch.randint(0, len(data) - T, (32,))
        x = torch.stack([data[i:i + T] for i in ix])
        y = torch.stack([data[i + 1:i + T + 1] for i in ix])
        h = parts["tok"](x) + parts["pos"](torch.arange(T))
        logits = parts["head"](parts["ln"](parts["blocks"](h, mask=mask, is_causal=True)))
        return nn.functional.cross_entropy(logits.reshape(-1, V), y.reshape(-1))

    return torch.optim.AdamW(parts.parameters(), lr=3e-3), loss


def vit(torch):
    """A vision Transformer of 2 layers, width 64, dropout 0.1: batch 64 of (3, 32, 32), patches of 4, AdamW."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
    parts = nn.ModuleDict({
        "patchify": nn.Conv2d(3, 64, kernel_size=4, stride=4),
        "encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "head": nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 4)),
    })
    cls, pos = nn.Parameter(torch.zeros(1, 1, 64)), nn.Parameter(torch.randn(1, 65, 64) * 0.02)

    def loss():
        x, y = torch.randn(64, 3, 32, 32), torch.randint(0, 4, (64,))
        h = parts["patchify"](x).flatten(2).transpose(1, 2)                   # (B, 3, 32, 32) -> (B, 64, 64)
        h = torch.cat([cls.expand(64, -1, -1), h], 1) + pos                   # -> (B, 65, 64)
        return nn.functional.cross_entropy(parts["head"](parts["encoder"](h)[:, 0]), y)

    return torch.optim.AdamW([*parts.parameters(), cls, pos], lr=1e-3), loss


def seq2seq(torch):
    """A GRU translator with additive attention, hidden 64: batch 64 of 8 digits to reverse, Adam."""
    nn, F, E, H, V, L = torch.nn, torch.nn.functional, 32, 64, 11, 8
    parts = nn.ModuleDict({
        "emb": nn.Embedding(V, E), "encoder": nn.GRU(E, H, batch_first=True, bidirectional=True),
        "cell": nn.GRUCell(E + 2 * H, H), "of_state": nn.Linear(H, H), "of_source": nn.Linear(2 * H, H),
        "score": nn.Linear(H, 1), "out": nn.Linear(3 * H, V),
    })

    def loss():
        source = torch.randint(0, 10, (64, L))
        target = source.flip(1)
        shifted = torch.cat([torch.full((64, 1), 10), target[:, :-1]], 1)
        encoded, _ = parts["encoder"](parts["emb"](source))
        state, logits = encoded.new_zeros(64, H), []
        for t in range(L):
            score = parts["score"](torch.tanh(parts["of_state"](state)[:, None] + parts["of_source"](encoded)))
            context = (F.softmax(score.squeeze(-1), -1)[..., None] * encoded).sum(1)
            state = parts["cell"](torch.cat([parts["emb"](shifted[:, t]), context], -1), state)
            logits.append(parts["out"](torch.cat([state, context], -1)))
        return F.cross_entropy(torch.stack(logits, 1).reshape(-1, V), target.reshape(-1))

    return torch.optim.Adam(parts.parameters(), lr=3e-3), loss


TRAININGS = {"mini_gpt": mini_gpt, "vit": vit, "seq2seq": seq2seq}


def work(name, library, threads):
    """In a process of its own: for each number read from stdin, do so many steps and print the seconds they took."""
    torch = importlib.import_module(library)
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    optimizer, loss_of = TRAININGS[name](torch)
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(time.perf_counter() - began, loss.item(), flush=True)


@contextlib.contextmanager
def worker(name, library, threads):
    """A process that trains; gives a function from a number of steps to their seconds."""
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [sys.executable, "-m", "benchmarks", "--worker", name, library, "--threads", str(threads)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, **variables})

    def seconds(steps):
        with contextlib.suppress(BrokenPipeError):  # it ended already
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        answer = process.stdout.readline().split()
        if not answer:
            raise SystemExit(f"benchmarks: {library} failed on {name}; its error is above")
        return float(answer[0])

    try:
        yield seconds
    finally:
        process.kill()
        process.wait()


def compare(name, threads, turns, steps):
    """Milliseconds a step of both libraries, and the median and quartiles of the ratio, turn by turn."""
    with worker(name, "minitorch_attn", threads) as ours, worker(name, "torch", threads) as theirs:
        ours(2 * steps), theirs(2 * steps)  # the first steps allocate
        pairs = [(ours(steps), theirs(steps)) for _ in range(turns)]
    low, ratio, high = statistics.quantiles([a / b for a, b in pairs], n=4)
    ms_ours, ms_theirs = (1000 * statistics.median(column) / steps for column in zip(*pairs))
    return {"training": name, "ms": round(ms_ours, 2), "torch_ms": round(ms_theirs, 2), "ratio": round(ratio, 3),
            "quartiles": [round(low, 3), round(high, 3)]}


def processors():
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def main():
    ask = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    ask.add_argument("which", nargs="*", metavar="NAME", help=f"of {', '.join(TRAININGS)} (default: all)")
    ask.add_argument("--threads", type=int, default=processors(), help="for both libraries")
    ask.add_argument("--turns", type=int, default=15, help="how often each library has its turn, at least 2")
    ask.add_argument("--steps", type=int, default=10, help="training steps a turn")
    ask.add_argument("--json", metavar="FILE", help="also write the figures there")
    ask.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    asked = ask.parse_args()
    if asked.worker:
        return work(*asked.worker, asked.threads)
    unknown = [name for name in asked.which if name not in TRAININGS]
    if unknown or asked.turns < 2 or asked.steps < 1 or asked.threads < 1:
        ask.error(f"no training is called {unknown[0]}" if unknown else "the numbers are too small")
    if importlib.util.find_spec("torch") is None:
        ask.error("PyTorch is not installed, and without it there is nothing to compare with: "
                  "python -m pip install --editable '.[test]'")
    print(f"{asked.threads} threads, {asked.turns} turns of {asked.steps} steps; "
          "a ratio below 1 is faster than PyTorch")
    print(f"{'training':10} {'ms a step':>10} {'PyTorch':>10} {'ratio':>7}   middle half")
    rows = []
    for name in asked.which or TRAININGS:
        rows.append(row := compare(name, asked.threads, asked.turns, asked.steps))
        low, high = row["quartiles"]
        print(f"{name:10} {row['ms']:10.2f} {row['torch_ms']:10.2f} {row['ratio']:7.2f}   {low:.2f} to {high:.2f}",
              flush=True)
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean of the ratios {mean:.2f}")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump({"threads": asked.threads, "machine": platform.machine(), "python": platform.python_version(),
                       "geometric_mean": round(mean, 3), "trainings": rows}, file, indent=1)


if __name__ == "__main__":
    main()
