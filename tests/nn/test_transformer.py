"""The Transformer against PyTorch's: same seed, same numbers; masks, order of norms, where dropout stands."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.twin import twins

INF = math.inf
B, T, S, C, HEADS, WIDE = 2, 5, 7, 6, 3, 11
SMALL = dict(dim_feedforward=WIDE, dropout=0.0)
STACK = dict(**SMALL, num_encoder_layers=2, num_decoder_layers=2)

OPTIONS = [{}, {"batch_first": True}, {"norm_first": True, "bias": False},
           {"activation": "gelu", "layer_norm_eps": 0.1},
           {"batch_first": True, "norm_first": True, "activation": "relu"}]
options_table = pytest.mark.parametrize("options", OPTIONS, ids=str)
training_table = pytest.mark.parametrize("training", [True, False])


def agree(ours, theirs, call, *arrays):
    """``call(layer, *arrays)`` here and in PyTorch: values and all gradients, of inputs and of parameters."""
    assert_like_torch(lambda *x: call(ours, *x), lambda *x: call(theirs, *x), *arrays)
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-7, err_msg=name)


def sequence(steps, options, batched=True, seed=0):
    shape = (B, steps, C) if options.get("batch_first") else (steps, B, C)
    return draw(*(shape if batched else (steps, C)), seed=seed)


def causal(steps, dtype=float):
    hidden = np.triu(np.ones((steps, steps), bool), 1)
    return hidden if dtype is bool else np.where(hidden, -INF, 0.0)


def padding(*lengths, width):
    """True at padding."""
    return np.arange(width) >= np.array(lengths)[:, None]


@options_table
@training_table
@pytest.mark.parametrize("batched", [True, False])
def test_encoder_layer_is_pytorchs(options, training, batched):
    ours, theirs = twins("TransformerEncoderLayer", C, HEADS, **SMALL, **options)
    agree(ours.train(training), theirs.train(training), lambda f, x: f(x), sequence(S, options, batched))


@options_table
@training_table
@pytest.mark.parametrize("batched", [True, False])
def test_decoder_layer_is_pytorchs(options, training, batched):
    ours, theirs = twins("TransformerDecoderLayer", C, HEADS, **SMALL, **options)
    agree(ours.train(training), theirs.train(training), lambda f, x, m: f(x, m), sequence(T, options, batched),
          sequence(S, options, batched, seed=1))


@options_table
@training_table
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformer_is_pytorchs(options, training):
    ours, theirs = twins("Transformer", C, HEADS, **STACK, **options)
    agree(ours.train(training), theirs.train(training), lambda f, x, y: f(x, y), sequence(S, options),
          sequence(T, options, seed=1))


MASKS = [
    dict(tgt_mask=causal(T)), dict(tgt_mask=causal(T, bool), src_mask=causal(S, bool)),
    dict(memory_mask=draw(T, S)), dict(src_mask=draw(B * HEADS, S, S), tgt_mask=draw(B * HEADS, T, T)),
    dict(src_key_padding_mask=padding(7, 4, width=S), memory_key_padding_mask=padding(7, 3, width=S)),
    dict(tgt_key_padding_mask=padding(5, 2, width=T), tgt_mask=causal(T, bool)),
    dict(src_key_padding_mask=np.where(padding(7, 4, width=S), -INF, 0.0), src_mask=draw(S, S)),
]


@pytest.mark.parametrize("masks", MASKS, ids=lambda m: " ".join(m))
@training_table
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_masks_are_pytorchs(masks, training):
    ours, theirs = twins("Transformer", C, HEADS, **STACK)

    def call(f, src, tgt, *given):
        return f(src, tgt, **dict(zip(masks, given)))
    arrays = [sequence(S, {}), sequence(T, {}, seed=1), *masks.values()]
    agree(ours.train(training), theirs.train(training), call, *arrays)


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_stacks_are_pytorchs(final):
    """Encoder and decoder copy the layer they are given: equal values, parameters of their own."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    made = []
    for lib in (mt, torch):
        lib.manual_seed(4)
        layers = lib.nn
        encoder = layers.TransformerEncoder(layers.TransformerEncoderLayer(C, HEADS, dtype=lib.float64, **SMALL), 2,
                                            layers.LayerNorm(C, dtype=lib.float64) if final else None)
        decoder = layers.TransformerDecoder(layers.TransformerDecoderLayer(C, HEADS, dtype=lib.float64, **SMALL), 3,
                                            layers.LayerNorm(C, dtype=lib.float64) if final else None)
        made.append(layers.ModuleList([encoder, decoder]))
    ours, theirs = made
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names and len(list(ours.parameters())) == len(names)
    agree(ours, theirs, lambda f, x, y: f[1](y, f[0](x)), sequence(S, {}), sequence(T, {}, seed=1))
    first, second = ours[0].layers
    assert mt.equal(first.linear1.weight, second.linear1.weight) and first.linear1.weight is not second.linear1.weight
    assert not mt.equal(first.linear1.weight.grad, second.linear1.weight.grad)


def test_gradients():
    layer = nn.TransformerDecoderLayer(C, HEADS, norm_first=True, activation="gelu", dtype=mt.float64, **SMALL)
    assert_gradients(lambda x, m: layer(x, m, tgt_mask=mt.tensor(causal(T))), draw(T, 1, C), draw(S, 1, C, seed=1))


def test_float32_stays():
    layer = nn.Transformer(C, HEADS, 1, 1, WIDE)
    src, tgt = (mt.tensor(draw(n, B, C).astype("f4"), requires_grad=True) for n in (S, T))
    y = layer(src, tgt, tgt_mask=layer.generate_square_subsequent_mask(T))
    (y * y).sum().backward()
    assert y.dtype == src.grad.dtype == mt.float32 and all(p.grad.dtype == mt.float32 for p in layer.parameters())


def test_the_causal_mask_is_zero_or_minus_infinity():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0, -INF, -INF], [0, 0, -INF], [0, 0, 0]] and mask.dtype == mt.float32
    assert nn.Transformer.generate_square_subsequent_mask(2, device="cpu", dtype=mt.float64).dtype == mt.float64


def test_hints_change_nothing_but_need_their_mask():
    model = nn.Transformer(C, HEADS, **STACK, batch_first=True).eval()
    src, tgt = mt.tensor(draw(B, S, C).astype("f4")), mt.tensor(draw(B, T, C, seed=1).astype("f4"))
    masks = dict(src_mask=model.generate_square_subsequent_mask(S), tgt_mask=model.generate_square_subsequent_mask(T))
    assert mt.equal(model(src, tgt, **masks), model(src, tgt, **masks, src_is_causal=True, tgt_is_causal=True))
    for hint in ("src_is_causal", "tgt_is_causal", "memory_is_causal"):
        with pytest.raises(RuntimeError, match="hint"):
            model(src, tgt, **{hint: True})


@training_table
def test_padding_as_truth_values_and_as_floats(training):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(C, HEADS, batch_first=True, **SMALL), 2)
    encoder.train(training)
    x, hidden = mt.tensor(draw(B, S, C).astype("f4")), padding(7, 4, width=S)
    one = encoder(x, src_key_padding_mask=mt.tensor(hidden))
    two = encoder(x, src_key_padding_mask=mt.tensor(np.where(hidden, -INF, 0).astype("f4")))
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), rtol=1e-6, atol=1e-6)
    alone = encoder(x[1:, :4])
    np.testing.assert_allclose(one[1, :4].detach().numpy(), alone[0].detach().numpy(), rtol=1e-5, atol=1e-6)
    with mt.no_grad():
        assert mt.equal(encoder.eval()(x, src_key_padding_mask=mt.tensor(hidden)), one)


def test_a_sample_that_is_all_padding_leaves_the_loss_finite():
    model = nn.Transformer(C, HEADS, **STACK, batch_first=True)
    src, tgt = mt.tensor(draw(B, S, C).astype("f4")), mt.tensor(draw(B, T, C, seed=1).astype("f4"))
    hidden = mt.tensor(padding(7, 0, width=S))
    y = model(src, tgt, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    (y * y).mean().backward()
    assert y.isfinite().all() and all(p.grad.isfinite().all() for p in model.parameters())
    np.testing.assert_allclose(y[:1].detach().numpy(), model(src[:1], tgt[:1]).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_later_token_does_not_change_an_earlier_result():
    model = nn.Transformer(C, HEADS, **STACK, batch_first=True).eval()
    src, tgt = draw(B, S, C).astype("f4"), draw(B, T, C, seed=1).astype("f4")
    mask = model.generate_square_subsequent_mask(T)
    before = model(mt.tensor(src), mt.tensor(tgt), tgt_mask=mask)
    tgt[:, 3] += 1
    after = model(mt.tensor(src), mt.tensor(tgt), tgt_mask=mask)
    assert mt.equal(before[:, :3], after[:, :3]) and not mt.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("name, wanted", [
    ("TransformerEncoderLayer", ["self_attn", "dropout1", "dropout", "dropout2"]),
    ("TransformerDecoderLayer", ["self_attn", "dropout1", "multihead_attn", "dropout2", "dropout", "dropout3"])])
@pytest.mark.parametrize("norm_first", [True, False])
def test_where_dropout_stands(name, wanted, norm_first, monkeypatch):
    layer = getattr(nn, name)(C, HEADS, WIDE, dropout=0.25, norm_first=norm_first)
    seen = []
    labels = {module: label for label, module in layer.named_children()}
    for kind in (nn.Dropout, nn.MultiheadAttention):
        def noted(self, *args, plain=kind.forward, **kwargs):
            seen.append((labels[self], self.dropout if isinstance(self, nn.MultiheadAttention) else self.p))
            return plain(self, *args, **kwargs)
        monkeypatch.setattr(kind, "forward", noted)
    layer(*[mt.zeros(T, B, C)] * (2 if "Decoder" in name else 1))
    assert seen == [(label, 0.25) for label in wanted]


def test_dropout_only_while_training():
    layer = nn.TransformerEncoderLayer(C, HEADS, WIDE, dropout=0.5)
    x = mt.tensor(draw(S, B, C).astype("f4"))
    assert not mt.equal(layer(x), layer(x))
    layer.eval()
    assert mt.equal(layer(x), layer(x))


def test_activations():
    x = mt.tensor(draw(S, B, C).astype("f4"))
    mt.manual_seed(0)
    named = nn.TransformerEncoderLayer(C, HEADS, activation="gelu", **SMALL)
    mt.manual_seed(0)
    given = nn.TransformerEncoderLayer(C, HEADS, activation=F.gelu, **SMALL)
    mt.manual_seed(0)
    own = nn.TransformerEncoderLayer(C, HEADS, activation=lambda a: a * 0, **SMALL)
    assert mt.equal(named(x), given(x)) and not mt.equal(named(x), own(x))
    with pytest.raises(RuntimeError, match="'swish'"):
        nn.TransformerEncoderLayer(C, HEADS, activation="swish")


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True},
                                     {"bias": False, "layer_norm_eps": 0.1}])
def test_layer_of_torch_is_taken_over(activation, options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function = getattr(torch.nn.functional, activation)
    theirs = torch.nn.TransformerEncoderLayer(C, HEADS, WIDE, 0.0, function, dtype=torch.float64, **options).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    mine = nn.TransformerEncoder(theirs, 2)
    assert not mine.layers[0].training
    x = draw(S, B, C)
    wanted = torch.nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False)(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(mine(mt.tensor(x)).detach().numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_custom_encoder_and_decoder():
    class Coder(nn.Module):
        def __init__(self, *names):
            super().__init__()
            self.linear, self.names = nn.Linear(C, C), {*names}

        def forward(self, x, memory=0, **masks):
            assert set(masks) == self.names
            return self.linear(x) + memory

    encoder = Coder("mask", "src_key_padding_mask", "is_causal")
    decoder = Coder("tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "tgt_is_causal",
                    "memory_is_causal")
    model = nn.Transformer(C, HEADS, custom_encoder=encoder, custom_decoder=decoder)
    x = mt.tensor(draw(T, B, C).astype("f4"))
    assert mt.equal(model(x, x), decoder.linear(x) + encoder.linear(x))
    half = nn.Transformer(C, HEADS, custom_decoder=decoder, num_encoder_layers=1)
    assert [name for name, _ in half.named_children()] == ["encoder", "decoder"]


@pytest.mark.parametrize("call, error, message", [
    (lambda m: m(mt.zeros(S, B, C), mt.zeros(T, 3, C)), RuntimeError, "batch number"),
    (lambda m: m(mt.zeros(S, B, C), mt.zeros(T, B, C + 1)), RuntimeError, "width 6"),
    (lambda m: m(mt.zeros(S, B, C), mt.zeros(T, B, C), memory_mask=mt.zeros(T, T)), RuntimeError, r"\(5, 7\)"),
    (lambda m: nn.TransformerEncoderLayer(C, 4), ValueError, "multiple of num_heads"),
])
def test_mistakes(call, error, message):
    with pytest.raises(error, match=message):
        call(nn.Transformer(C, HEADS, **STACK))
