import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.datasets import quadrants
from minitorch_attn.models.vit import ViT, ViTConfig, patchify
from minitorch_attn.optim import AdamW
from tests.harness import assert_gradients, draw

SIZE, PATCH, CHANNELS, CLASSES, L, H, C = (6, 15), (2, 3), 2, 7, 2, 3, 15


def small(pool="cls", dtype=mt.float64, **changes):
    """A tiny ViT whose weights are large enough for its attention to be far from uniform."""
    mt.manual_seed(0)
    model = ViT(ViTConfig(**{**dict(image_size=SIZE, patch_size=PATCH, channels=CHANNELS, classes=CLASSES, n_layer=L,
                                    n_head=H, n_embd=C, pool=pool), **changes}))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def test_patches_are_cut_row_by_row_and_channel_by_channel():
    image = mt.arange(48).view(1, 2, 4, 6)
    patches = patchify(image, (2, 3))
    assert patches.shape == (1, 4, 12)
    assert patches[0, 0].tolist() == [0, 1, 2, 6, 7, 8, 24, 25, 26, 30, 31, 32]
    assert patches[0, 1, :3].tolist() == [3, 4, 5] and patches[0, 2, :3].tolist() == [12, 13, 14]
    square = patchify(mt.arange(16).view(1, 1, 4, 4), 2)
    assert square.tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    with pytest.raises(ValueError, match="4 x 6 pixels cannot be cut into patches of 3 x 3"):
        patchify(image, 3)


def test_patches_and_a_linear_layer_are_a_strided_convolution():
    model, images = small(), mt.tensor(draw(3, CHANNELS, *SIZE))
    kernel, bias = model.patchify.weight, model.patchify.bias
    linear = patchify(images, PATCH) @ kernel.flatten(1).T + bias
    convolved = model.patchify(images).flatten(2).transpose(1, 2)
    assert convolved.shape == (3, 15, C)
    np.testing.assert_allclose(convolved.detach().numpy(), linear.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert_gradients(lambda x: patchify(x, 2), draw(2, 2, 4, 6))


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_equals_pytorch_spelled_out(pool):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, images = small(pool), draw(3, CHANNELS, *SIZE)
    w = {name: torch.from_numpy(p.detach().numpy()) for name, p in model.named_parameters()}
    x = torch.nn.functional.conv2d(torch.from_numpy(images), w["patchify.weight"], w["patchify.bias"], stride=PATCH)
    x = x.flatten(2).mT
    if pool == "cls":
        x = torch.cat([w["cls"].expand(3, 1, C), x], 1)
    x = x + w["pos"]
    names = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj.": "attn.proj.", "linear1.": "mlp.0.",
             "linear2.": "mlp.2.", "norm1.": "ln_1.", "norm2.": "ln_2."}
    for i in range(L):
        layer = torch.nn.TransformerEncoderLayer(C, H, 4 * C, 0.0, "gelu", batch_first=True, norm_first=True).double()
        layer.load_state_dict({theirs + kind: w[f"blocks.{i}.{ours}{kind}"] for theirs, ours in names.items()
                               for kind in ("weight", "bias")})
        x = layer(x)
    x = torch.nn.functional.layer_norm(x, (C,), w["ln.weight"], w["ln.bias"])
    wanted = (x[:, 0] if pool == "cls" else x.mean(1)) @ w["head.weight"].T + w["head.bias"]
    labels = np.array([0, 6, 3])
    logits, loss = model(mt.tensor(images), mt.tensor(labels))
    np.testing.assert_allclose(logits.detach().numpy(), wanted.detach().numpy(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(loss.item(), torch.nn.functional.cross_entropy(wanted, torch.from_numpy(labels)).item(),
                               rtol=1e-9)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_gradients_of_every_parameter_along_random_directions(pool):
    model, images, h = small(pool), mt.tensor(draw(2, CHANNELS, *SIZE)), 1e-6
    cotangent = mt.tensor(draw(2, CLASSES))
    (model(images)[0] * cotangent).sum().backward()
    for i, (name, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), []
        with mt.no_grad():
            for sign in (1, -1):
                w.copy_(start + sign * h * direction)
                values.append((model(images)[0] * cotangent).sum().item())
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[0] - values[1]) / (2 * h), rtol=1e-6,
                                   err_msg=name)


def test_float32_stays_and_every_parameter_learns():
    model = small(dtype=mt.float32)
    _, loss = model(mt.tensor(draw(5, CHANNELS, *SIZE).astype("f4")), mt.tensor([0, 1, 2, 3, 6]))
    loss.backward()
    assert loss.dtype == mt.float32
    for name, w in model.named_parameters():
        assert w.grad.dtype == mt.float32 and (np.abs(w.grad.numpy()) > 0).any(), name


def test_only_positions_tell_where_a_patch_is():
    model, images = small("mean"), draw(3, CHANNELS, *SIZE)
    moved = np.roll(images, 3, axis=3)  # whole patches change places

    def logits(x):
        return model(mt.tensor(x))[0].detach().numpy()

    assert np.abs(logits(images) - logits(moved)).max() > 1e-3
    with mt.no_grad():
        model.pos.zero_()
    np.testing.assert_allclose(logits(images), logits(moved), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("pool, tokens", [("cls", 16), ("mean", 15)])
def test_weights_are_what_each_head_attends_to(pool, tokens):
    model = small(pool)
    assert model.grid == (3, 5)
    _, loss, weights = model(mt.tensor(draw(2, CHANNELS, *SIZE)), need_weights=True)
    assert loss is None and [w.shape for w in weights] == [(2, H, tokens, tokens)] * L
    np.testing.assert_allclose(weights[1].sum(-1).detach().numpy(), 1, rtol=1e-9)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_it_learns_where_the_square_is(pool):
    mt.manual_seed(0)
    model = ViT(ViTConfig(image_size=16, patch_size=8, channels=1, classes=4, n_layer=1, n_embd=32, pool=pool))
    optimizer = AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        _, loss = model(*quadrants(64, 16, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, labels = quadrants(400, 16, 1)
    with mt.no_grad():
        assert (model(images)[0].argmax(1) == labels).float().mean().item() > 0.95


def test_mistakes_are_named():
    for changes, words in [(dict(n_embd=10), "n_embd=10 .* n_head=3"), (dict(pool="max"), "got 'max'"),
                           (dict(patch_size=4), r"\(6, 15\) pixels cannot be cut into patches of \(4, 4\)")]:
        with pytest.raises(ValueError, match=words):
            small(**changes)
    model = small()
    for shape in [(CHANNELS, *SIZE), (1, CHANNELS, 15, 6), (1, 1, *SIZE)]:
        with pytest.raises(ValueError, match=r"with \(2, 6, 15\), got"):
            model(mt.zeros(shape))
