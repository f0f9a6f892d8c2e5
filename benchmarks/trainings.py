"""Whole trainings: a character GPT, a vision Transformer, a translator with attention, and a larger GPT.

Each is written once, in PyTorch's names, and run by both libraries; with the same seed they see the same batches.
"""
import dataclasses
import importlib

__all__ = ["LARGE", "MINI", "TRAININGS", "GPTSize", "gpt_parts", "make", "step_of"]


@dataclasses.dataclass(frozen=True)
class GPTSize:
    """The sizes of a GPT and of the batches that it learns from."""
    vocabulary: int
    longest: int  # how many positions have an embedding
    width: int
    heads: int
    layers: int
    batch: int
    tokens: int
    activation: str = "relu"


MINI = GPTSize(vocabulary=73, longest=32, width=64, heads=4, layers=2, batch=32, tokens=16)
LARGE = GPTSize(vocabulary=256, longest=128, width=256, heads=8, layers=4, batch=8, tokens=128, activation="gelu")


def gpt_parts(torch, size):
    """The parameters of a GPT, and the function from ids (B, T) to logits (B, T, V)."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(size.width, size.heads, 4 * size.width, dropout=0.0,
                                       activation=size.activation, batch_first=True, norm_first=True)
    parts = nn.ModuleDict({
        "tok": nn.Embedding(size.vocabulary, size.width), "pos": nn.Embedding(size.longest, size.width),
        "blocks": nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False),
        "ln": nn.LayerNorm(size.width), "head": nn.Linear(size.width, size.vocabulary),
    })
    mask = nn.Transformer.generate_square_subsequent_mask(size.tokens)

    def logits_of(x):
        h = parts["tok"](x) + parts["pos"](torch.arange(size.tokens))
        return parts["head"](parts["ln"](parts["blocks"](h, mask=mask, is_causal=True)))

    return parts, logits_of


def gpt(torch, size):
    """A GPT on windows of a random text, AdamW."""
    parts, logits_of = gpt_parts(torch, size)
    V, T = size.vocabulary, size.tokens
    data = torch.randint(0, V, (6 * T,))

    def loss():
        ix = torch.randint(0, len(data) - T, (size.batch,))
        x = torch.stack([data[i:i + T] for i in ix])
        y = torch.stack([data[i + 1:i + T + 1] for i in ix])
        return torch.nn.functional.cross_entropy(logits_of(x).reshape(-1, V), y.reshape(-1))

    return torch.optim.AdamW(parts.parameters(), lr=3e-3), loss


def mini_gpt(torch):
    """A character GPT of 2 layers, width 64: batch 32, 16 tokens, AdamW."""
    return gpt(torch, MINI)


def large_gpt(torch):
    """A GPT of 4 layers, width 256, 8 heads: batch 8, 128 tokens, AdamW."""
    return gpt(torch, LARGE)


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


TRAININGS = {"mini_gpt": mini_gpt, "vit": vit, "seq2seq": seq2seq, "large_gpt": large_gpt}


def step_of(optimizer, loss_of):
    """The function that does a training step and returns its loss."""
    def step():
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def make(name, library):
    """The step of the training called `name`, in `library`."""
    torch = importlib.import_module(library)
    torch.manual_seed(0)
    return step_of(*TRAININGS[name](torch))
