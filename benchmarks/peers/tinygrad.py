"""tinygrad: the whole step is compiled (TinyJit), and so needs the compiler that tinygrad uses, clang."""
from tinygrad import Context, Tensor, TinyJit, nn

from .shared import LEARNING_RATE, batches, weights

__all__ = ["training"]


def training(size):
    """The step of a GPT's training."""
    B, T, C, H = size.batch, size.tokens, size.width, size.heads
    p = {name: Tensor(array).contiguous().realize() for name, array in weights(size).items()}
    optimizer, count = nn.optim.AdamW(list(p.values()), lr=LEARNING_RATE, eps=1e-8, weight_decay=0.01), 0
    data = [[Tensor(ids).realize() for ids in batch] for batch in batches(size)]

    def linear(x, name, joint="."):
        return x.linear(p[f"{name}{joint}weight"].T, p[f"{name}{joint}bias"])

    def norm(x, name):
        return x.layernorm(eps=1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(x, block):
        qkv = linear(x, block + "self_attn.in_proj", "_").reshape(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], is_causal=True)
        return linear(y.transpose(1, 2).reshape(B, T, C), block + "self_attn.out_proj")

    def loss_of(x, y):
        h = p["tok.weight"][x] + p["pos.weight"][:T]
        for i in range(size.layers):
            block = f"blocks.layers.{i}."
            h = h + attention(norm(h, block + "norm1"), block)
            h = h + linear(linear(norm(h, block + "norm2"), block + "linear1").relu(), block + "linear2")
        return linear(norm(h, "ln"), "head").reshape(B * T, -1).sparse_categorical_crossentropy(y.reshape(-1))

    @TinyJit
    def jitted(x, y):
        optimizer.zero_grad()
        loss = loss_of(x, y).backward()
        return loss.realize(*optimizer.schedule_step())  # together, or the loss would be computed anew afterwards

    def step():
        nonlocal count
        with Context(TRAINING=1):
            loss = jitted(*data[count % len(data)])
        count += 1
        return float(loss.item())

    return step
