"""A sample call of every differentiable operation and layer, for sizes and numbers to be drawn.

`OPERATIONS` and `LAYERS` are tables from a name to a function of a `Draw`. The same call is made of this package and
of PyTorch, which have the names in common. What stands behind a colon tells several samples of one operation apart.
"""
import numpy

__all__ = ["LAYERS", "NOT_DIFFERENTIABLE", "OPERATIONS", "Draw"]

PRIMES = {"A": 2, "B": 3, "C": 5, "D": 7}


class Draw:
    """Random arrays of named sizes: ``s("AB")`` is a normal array (A, B). In the shapes, digits stand for themselves.

    Without `sizes` these are distinct primes, A = 2, B = 3, C = 5, D = 7; else drawn from 1 to 5.
    """

    def __init__(self, seed=0, random_sizes=False):
        self.rng = numpy.random.default_rng(seed)
        self.sizes = {k: int(self.rng.integers(1, 6)) for k in PRIMES} if random_sizes else dict(PRIMES)

    def __getitem__(self, letter):
        return int(letter) if letter.isdigit() else self.sizes[letter]

    def shape(self, letters):
        """The sizes that letters stand for, as a tuple."""
        return tuple(self[c] for c in letters)

    def __call__(self, letters):
        return self.rng.standard_normal(self.shape(letters))

    def uniform(self, letters, low, high):
        """Uniform in [low, high)."""
        return self.rng.uniform(low, high, self.shape(letters))

    def positive(self, letters):
        """Uniform in [0.5, 2)."""
        return self.uniform(letters, 0.5, 2)

    def apart(self, letters):
        """Different numbers at least 0.1 apart, none near a whole number or 0: for kinks, jumps and sorting."""
        n = int(numpy.prod(self.shape(letters)))
        return ((self.rng.permutation(n) - n // 2 + self.rng.uniform(0.3, 0.7, n)) * 0.137 + 0.0113).reshape(
            self.shape(letters))

    def ids(self, letters, below):
        """Whole numbers in [0, below), the number that a letter stands for."""
        return self.rng.integers(0, self[below] if isinstance(below, str) else below, self.shape(letters))

    def truths(self, letters):
        """Truth values, the first of them True."""
        t = self.rng.random(self.shape(letters)) < 0.6
        t.reshape(-1)[:1] = True
        return t

    def lines(self, letters):
        """Truth values of which the first along the last axis is True: masks that hide no line altogether."""
        t = self.truths(letters)
        t[..., 0] = True
        return t

    def simplex(self, letters):
        """Positive numbers that sum to 1 along the last axis."""
        e = numpy.exp(self(letters))
        return e / e.sum(axis=-1, keepdims=True)


def call(*arrays, **kwargs):
    """A sample call with these arguments."""
    return arrays, kwargs


def same(names, build):
    """One sample for several functions."""
    return dict.fromkeys(names.split(), build)


OPERATIONS = {
    # element by element
    **same("neg negative sin cos sinh cosh tanh sigmoid exp exp2 expm1 erf square atan arctan clone contiguous",
           lambda s: call(s("AB"))),
    **same("log log2 log10 log1p sqrt rsqrt reciprocal", lambda s: call(s.positive("AB"))),
    **same("asin arcsin acos arccos erfinv", lambda s: call(s.uniform("AB", -0.8, 0.8))),
    **same("tan", lambda s: call(s.uniform("AB", -1, 1))),
    **same("abs absolute frac relu nan_to_num", lambda s: call(s.apart("AC"))),
    **same("relu6 hardtanh", lambda s: call(10 * s.apart("AC"))),
    **same("add sub subtract mul multiply rsub logaddexp", lambda s: call(s("ABC"), s("B1"))),
    **same("div divide true_divide", lambda s: call(s("ABC"), s.positive("B1"))),
    **same("pow float_power", lambda s: call(s.positive("ABC"), s("B1"))),
    "pow: to a number": lambda s: call(s.positive("AB"), 2.5),
    **same("remainder fmod", lambda s: call(s.apart("AB"), s.uniform("1B", 9.0, 10.0))),
    **same("maximum minimum", lambda s: call(s.apart("AC"), s.apart("1C") + 0.05)),
    "lerp": lambda s: call(s("AB"), s("1B"), s("A1")),
    **same("clamp clip", lambda s: call(s.apart("AC"), -0.2, 0.3)),
    "clamp_min": lambda s: call(s.apart("AC"), s.apart("1C") + 0.05),
    "clamp_max": lambda s: call(s.apart("AC"), s.apart("1C") + 0.05),
    "where": lambda s: call(s.truths("AB"), s("AB"), s("1B")),
    "masked_fill": lambda s: call(s("AB"), s.truths("1B"), 0.5),
    # reductions
    **same("sum mean", lambda s: call(s("ABC"), dim=(0, 2))),
    **same("var std var_mean std_mean", lambda s: call(s("A5C"), dim=1)),
    **same("amax amin", lambda s: call(s.apart("ABC"), dim=(0, 2))),
    **same("max min", lambda s: call(s.apart("ABC"), dim=1)),
    "logsumexp": lambda s: call(s("ABC"), dim=1),
    **same("prod cumsum cumprod", lambda s: call(s("ABC"), dim=1)),
    **{f"norm: p = {p}": lambda s, p=p: call(s.apart("ABC"), p, 1) for p in (1.0, 2.0, 3.0, numpy.inf)},
    # shapes
    **same("reshape view", lambda s: call(s("ABC"), (s["C"], s["A"] * s["B"]))),
    **same("reshape_as view_as", lambda s: call(s("ABC"), s("CBA"))),
    **same("flatten ravel T mT squeeze", lambda s: call(s("AB"))),
    "unflatten": lambda s: call(s("A6"), 1, (2, 3)),
    "unsqueeze": lambda s: call(s("AB"), 1),
    "permute": lambda s: call(s("ABC"), (2, 0, 1)),
    **same("transpose swapaxes swapdims", lambda s: call(s("ABC"), 0, 2)),
    "t": lambda s: call(s("AB")),
    **same("movedim moveaxis", lambda s: call(s("ABC"), 0, 2)),
    **same("cat concat concatenate", lambda s: call([s("AB"), s("CB")], dim=0)),
    **same("stack hstack vstack", lambda s: call([s("AB"), s("AB"), s("AB")])),
    "meshgrid": lambda s: call([s("A"), s("B")], indexing="ij"),
    "narrow": lambda s: call(s("A5C"), 1, 1, 3),
    "select": lambda s: call(s("A5C"), 1, 2),
    "split": lambda s: call(s("A5C"), 2, dim=1),
    "chunk": lambda s: call(s("A5C"), 2, dim=1),
    "unbind": lambda s: call(s("ABC"), dim=1),
    "diagonal": lambda s: call(s("45"), 1),
    "diag": lambda s: call(s("C"), 1),
    "unfold": lambda s: call(s("A7"), 1, 3, 2),
    "flip": lambda s: call(s("ABC"), (0, 2)),
    "roll": lambda s: call(s("ABC"), 2, 1),
    **same("repeat tile", lambda s: call(s("AB"), (2, 3))),
    **same("tril triu", lambda s: call(s("AB4"))),
    "expand": lambda s: call(s("A1C"), (s["A"], 3, s["C"])),
    "expand_as": lambda s: call(s("A1"), s("AB")),
    "broadcast_to": lambda s: call(s("A1"), s.shape("AB")),
    "broadcast_tensors": lambda s: call(s("A1"), s("1B")),
    # indices
    "getitem": lambda s: call(s("A5C"), index=(slice(None), [0, 2, 2], slice(None, None, 2))),
    "setitem": lambda s: call(s("A5C"), s("A1C"), index=(slice(None), slice(1, 3))),
    "index_select": lambda s: call(s("ABC"), 1, s.ids("D", "B")),
    "index_fill": lambda s: call(s("A5C"), 1, numpy.array([0, 3]), 0.5),
    "index_copy": lambda s: call(s("A5C"), 1, numpy.array([3, 0]), s("A2C")),
    "index_add": lambda s: call(s("A5C"), 1, numpy.array([3, 0, 3]), s("A3C")),
    "gather": lambda s: call(s("ABC"), 1, s.ids("ADC", "B")),
    "take_along_dim": lambda s: call(s("ABC"), s.ids("ADC", "B"), 1),
    "scatter": lambda s: call(s("A5"), 1, numpy.array([[3, 0]] * s["A"]), s("A2")),
    "scatter_add": lambda s: call(s("A5"), 1, s.ids("AC", 5), s("AC")),
    "take": lambda s: call(s("AB"), s.ids("D", s["A"] * s["B"])),
    "repeat_interleave": lambda s: call(s("AB"), 2, dim=1),
    "masked_select": lambda s: call(s("AB"), s.truths("AB")),
    **same("sort msort", lambda s: call(s.apart("AB"))),
    "topk": lambda s: call(s.apart("A5"), 3),
    "kthvalue": lambda s: call(s.apart("A5"), 2),
    # products
    "matmul": lambda s: call(s("ABC"), s("CD")),
    "mm": lambda s: call(s("AB"), s("BC")),
    "bmm": lambda s: call(s("ABC"), s("ACD")),
    "mv": lambda s: call(s("AB"), s("B")),
    "dot": lambda s: call(s("C"), s("C")),
    "outer": lambda s: call(s("A"), s("B")),
    "inner": lambda s: call(s("AC"), s("BC")),
    "addmm": lambda s: call(s("C"), s("AB"), s("BC"), beta=0.5, alpha=2.0),
    "baddbmm": lambda s: call(s("1C"), s("AAB"), s("ABC"), beta=0.5, alpha=2.0),
    "tensordot": lambda s: call(s("ABC"), s("CBD"), dims=([1, 2], [1, 0])),
    "einsum": lambda s: call(s("ABC"), s("CD"), equation="abc,cd->dab"),
    # activations
    **same("softmax log_softmax softmin", lambda s: call(s("ABC"), dim=1)),
    **same("elu gelu silu softplus logsigmoid leaky_relu", lambda s: call(s.apart("AC"))),
    "gelu_tanh": lambda s: call(s("AC"), approximate="tanh"),
    "glu": lambda s: call(s("A6"), dim=1),
    # normalisations
    "layer_norm": lambda s: call(s("AB5"), (5,), s("5"), s("5")),
    "rms_norm": lambda s: call(s("AB5"), (5,), s("5"), eps=1e-5),
    "group_norm": lambda s: call(s("A43"), 2, s("4"), s("4")),
    "batch_norm": lambda s: call(s("5BA"), s("B"), s.positive("B"), s("B"), s("B"), training=True, _fixed=(1, 2)),
    "batch_norm: evaluation": lambda s: call(s("5BA"), s("B"), s.positive("B"), s("B"), s("B"), _fixed=(1, 2)),
    "layer_norm: two axes": lambda s: call(s("AB4"), s.shape("B4"), s("B4")),
    "normalize": lambda s: call(s("ABC"), dim=1),
    "cosine_similarity": lambda s: call(s("ABC"), s("1BC"), dim=1),
    # losses
    "cross_entropy": lambda s: call(s("DC"), s.ids("D", "C"), s.positive("C"), label_smoothing=0.1, _fixed=(2,)),
    "cross_entropy: of probabilities": lambda s: call(s("DC"), s.simplex("DC")),
    "cross_entropy: images, ignored": lambda s: call(s("AC3"), numpy.full(s.shape("A3"), 0) - 100 * (
        numpy.arange(3) == 1), reduction="sum"),
    "nll_loss": lambda s: call(s("DC"), s.ids("D", "C"), s.positive("C"), _fixed=(2,)),
    **same("mse_loss", lambda s: call(s("AB"), s("AB"))),
    "l1_loss": lambda s: call(s.apart("AC"), s.apart("AC") + 0.05),
    **same("huber_loss smooth_l1_loss", lambda s: call(2 * s.apart("AC"), s.apart("AC") + 0.0313)),
    "binary_cross_entropy": lambda s: call(s.uniform("AB", 0.2, 0.8), s.uniform("AB", 0.2, 0.8)),
    "binary_cross_entropy_with_logits": lambda s: call(s.apart("AC"), s.uniform("AC", 0.2, 0.8)),
    "kl_div": lambda s: call(s("AB"), s.simplex("AB"), reduction="batchmean"),
    "kl_div: of logarithms": lambda s: call(s("AB"), s("AB"), log_target=True),
    # attention and the other kernels
    "scaled_dot_product_attention": lambda s: call(s("ABC"), s("ADC"), s("AD5"), s.lines("BD")),
    "scaled_dot_product_attention: bias": lambda s: call(s("ABC"), s("ADC"), s("AD5"), s("A1D")),
    "scaled_dot_product_attention: causal": lambda s: call(s("A5C"), s("A5C"), s("A5B"), is_causal=True, scale=0.5),
    "scaled_dot_product_attention: grouped": lambda s: call(s("A4BC"), s("A2DC"), s("A2D5"), enable_gqa=True),
    "packed_attention": lambda s: call(s("AB325"), s.lines("BB")),
    "packed_attention: bias": lambda s: call(s("AB325"), s("2BB"), is_causal=False, scale=0.5),
    "attention_weights": lambda s: call(s("ABC"), s("ADC"), s.lines("BD")),
    "tiled_attention": lambda s: call(s("A5C"), s("A5C"), s("A5B"), is_causal=True, window=3, tile=2),
    "linear_attention": lambda s: call(s("A5C"), s("A5C"), s("A5B"), is_causal=True, chunk=2),
    "tiled_attention: bias": lambda s: call(s("A4BC"), s("A2DC"), s("A2D5"), s("BD"), enable_gqa=True, tile=2),
    "linear_attention: masked": lambda s: call(s("ABC"), s("ADC"), s("AD5"), s.lines("AD")),
    "linear_attention_step": lambda s: call(s("AC"), s("AC"), s("A3"),
                                            s.positive("AC")[:, :, None] * s.positive("A14")),
    "joint_attention": lambda s: call([s("ABC"), s("A2C")], [s("ABC"), s("A2C")], [s("AB4"), s("A24")]),
    "stream_shares": lambda s: call([s("ABC"), s("A2C")], [s("ABC"), s("A2C")]),
    "additive_attention": lambda s: call(s("AB2"), s("AC3"), s("AC2"), s("42"), s("43"), s("4"), s.lines("BC")),
    "additive_scores": lambda s: call(s("AB4"), s("AC4"), s("4")),
    "kernel_pooling": lambda s: call(s("AB2"), s("AC2"), s("AC3"), s.positive("")),
    "kernel_weights": lambda s: call(s("AB2"), s("AC2"), s.positive("B1")),
    "masked_softmax": lambda s: call(s("ABC"), s.lines("BC")),
    "hopfield_update": lambda s: call(s("BC"), s("DC"), beta=0.5, steps=2),
    "hopfield_energy": lambda s: call(s("BC"), s("DC"), beta=0.5),
    "apply_rotary": lambda s: call(s("ABC6"), s("C3"), s("C3"), _fixed=(1, 2)),
    "rotary": lambda s: call(s("ABC6"), 2),
    "rotary: neighbours": lambda s: call(s("ABC6"), dim=4, interleaved=True),
    "resize_grid": lambda s: call(s("A34B"), 5, 2),
    "additive_mask": lambda s: call(s.truths("BC"), s("ABC")),
    "route_top": lambda s: call(s.apart("A5") + 3, 2),
    "balance_loss": lambda s: call(s.simplex("D5"), s.ids("D2", 5)),
    "swiglu": lambda s: call(s("AB"), s("AB")),
    "linear": lambda s: call(s("ABC"), s("DC"), s("D")),
    "embedding": lambda s: call(s.ids("AD", 5), s("6B"), padding_idx=5),
    "conv1d": lambda s: call(s("A47"), s("622"), s("6"), stride=2, padding=1, groups=2),
    "conv2d": lambda s: call(s("A345"), s("2322"), s("2"), stride=(1, 2), padding=1),
    "avg_pool1d": lambda s: call(s("AB7"), 3, stride=2, padding=1),
    "avg_pool2d": lambda s: call(s("AB45"), 2, stride=1),
    "max_pool1d": lambda s: call(s.apart("AB7"), 3, stride=2, padding=1),
    "max_pool2d": lambda s: call(s.apart("A145"), 2, stride=1),
    "pad": lambda s: call(s("AB5"), (1, 2, -1, 0)),
    "pad: reflect": lambda s: call(s("AB5"), (1, 2), mode="reflect"),
    "pad: circular": lambda s: call(s("AB5"), (1, 2), mode="circular"),
    "unfold_windows": lambda s: call(s("A245"), 2),
    "fold": lambda s: call(s("A86"), (3, 4), 2),
    **same("dropout", lambda s: call(s("AC"), 0.3)),
    "dropout1d": lambda s: call(s("ABC"), 0.3),
    "dropout2d": lambda s: call(s("ABC2"), 0.3),
    "rnn": lambda s: call(s("BAC"), s("A4"), s("4C"), s("44"), s("4"), s("4")),
    "gru": lambda s: call(s("BA2"), s("A2"), s("62"), s("62"), s("6"), s("6")),
    "lstm": lambda s: call(s("BA2"), s("A2"), s("A2"), s("82"), s("82"), s("8"), s("8")),
    "rnn_tanh_cell": lambda s: call(s("AC"), s("A4"), s("4C"), s("44"), s("4"), s("4")),
    "rnn_relu_cell": lambda s: call(s("AC"), s("A4"), s("4C"), s("44"), s("4"), s("4")),
    "gru_cell": lambda s: call(s("A2"), s("A2"), s("62"), s("62"), s("6"), s("6")),
    "lstm_cell": lambda s: call(s("A2"), [s("A2"), s("A2")], s("82"), s("82"), s("8"), s("8")),
    # in place, on a clone
    **same("exp_ expm1_ sin_ cos_ tanh_ sigmoid_ neg_ square_ erf_ zero_ abs_ relu_", lambda s: call(s.apart("AC"))),
    **same("log_ log1p_ sqrt_ rsqrt_ reciprocal_", lambda s: call(s.positive("AB"))),
    "erfinv_": lambda s: call(s.uniform("AB", -0.8, 0.8)),
    **same("add_ sub_ mul_ copy_", lambda s: call(s("AB"), s("1B"))),
    "div_": lambda s: call(s("AB"), s.positive("1B")),
    "pow_": lambda s: call(s.positive("AB"), s("1B")),
    **same("remainder_ fmod_", lambda s: call(s.apart("AB"), s.uniform("1B", 9.0, 10.0))),
    "lerp_": lambda s: call(s("AB"), s("1B"), s("A1")),
    **same("clamp_ clip_", lambda s: call(s.apart("AC"), -0.2, 0.3)),
    **same("clamp_min_ clamp_max_", lambda s: call(s.apart("AC"), 0.2)),
    "nan_to_num_": lambda s: call(s("AB")),
    "masked_fill_": lambda s: call(s("AB"), s.truths("1B"), 0.5),
    "fill_": lambda s: call(s("AB"), s("")),
    "index_fill_": lambda s: call(s("A5C"), 1, numpy.array([0, 3]), 0.5),
    "index_copy_": lambda s: call(s("A5C"), 1, numpy.array([3, 0]), s("A2C")),
    "index_add_": lambda s: call(s("A5C"), 1, numpy.array([3, 0, 3]), s("A3C")),
    "scatter_": lambda s: call(s("A5"), 1, numpy.array([[3, 0]] * s["A"]), s("A2")),
    "scatter_add_": lambda s: call(s("A5"), 1, s.ids("AC", 5), s("AC")),
    **same("tril_ triu_", lambda s: call(s("AB4"))),
    **same("squeeze_ t_", lambda s: call(s("AB"))),
    "transpose_": lambda s: call(s("ABC"), 0, 2),
    "unsqueeze_": lambda s: call(s("AB"), 1),
}

# A layer: how to make it from the package of layers, and its inputs.
LAYERS = {
    **{name: (lambda nn, s, name=name: getattr(nn, name)(), lambda s: call(s.apart("AC"))) for name in
       "ReLU ReLU6 SiLU LeakyReLU ELU Hardtanh GELU Sigmoid LogSigmoid Tanh Softplus Identity".split()},
    **{name: (lambda nn, s, name=name: getattr(nn, name)(dim=1), lambda s: call(s("ABC"))) for name in
       "Softmax LogSoftmax Softmin".split()},
    "GLU": (lambda nn, s: nn.GLU(), lambda s: call(s("A6"))),
    "Linear": (lambda nn, s: nn.Linear(s["B"], s["C"]), lambda s: call(s("AB"))),
    "LazyLinear": (lambda nn, s: nn.LazyLinear(s["C"]), lambda s: call(s("AB"))),
    "Bilinear": (lambda nn, s: nn.Bilinear(s["B"], s["C"], 2), lambda s: call(s("AB"), s("AC"))),
    "Flatten": (lambda nn, s: nn.Flatten(), lambda s: call(s("ABC"))),
    "Unflatten": (lambda nn, s: nn.Unflatten(1, (2, 3)), lambda s: call(s("A6"))),
    "LayerNorm": (lambda nn, s: nn.LayerNorm(5), lambda s: call(s("AB5"))),
    "RMSNorm": (lambda nn, s: nn.RMSNorm(5, eps=1e-5), lambda s: call(s("AB5"))),
    "GroupNorm": (lambda nn, s: nn.GroupNorm(2, 4), lambda s: call(s("A43"))),
    "BatchNorm1d": (lambda nn, s: nn.BatchNorm1d(s["B"]), lambda s: call(s("5B"))),
    "BatchNorm2d": (lambda nn, s: nn.BatchNorm2d(s["B"]), lambda s: call(s("AB33"))),
    "Embedding": (lambda nn, s: nn.Embedding(6, s["B"], padding_idx=5), lambda s: call(s.ids("AD", 5))),
    "Conv1d": (lambda nn, s: nn.Conv1d(4, 6, 3, padding=1, groups=2), lambda s: call(s("A47"))),
    "Conv2d": (lambda nn, s: nn.Conv2d(2, 3, 2, stride=2), lambda s: call(s("A245"))),
    "AvgPool1d": (lambda nn, s: nn.AvgPool1d(3), lambda s: call(s("AB7"))),
    "AvgPool2d": (lambda nn, s: nn.AvgPool2d(2), lambda s: call(s("AB45"))),
    "MaxPool1d": (lambda nn, s: nn.MaxPool1d(3), lambda s: call(s.apart("AB7"))),
    "MaxPool2d": (lambda nn, s: nn.MaxPool2d(2), lambda s: call(s.apart("A145"))),
    **{name: (lambda nn, s, name=name: getattr(nn, name)(0.3), build) for name, build in {
        "Dropout": lambda s: call(s("AC")), "Dropout1d": lambda s: call(s("ABC")),
        "Dropout2d": lambda s: call(s("ABC2"))}.items()},
    **{name: (lambda nn, s, name=name: getattr(nn, name)(s["C"], 2), lambda s: call(s("AC"), s("A2"))) for name in
       "RNNCell GRUCell".split()},
    "LSTMCell": (lambda nn, s: nn.LSTMCell(s["C"], 2), lambda s: call(s("AC"), [s("A2"), s("A2")])),
    **{name: (lambda nn, s, name=name: getattr(nn, name)(2, 2, num_layers=2, bidirectional=True, batch_first=True),
              lambda s: call(s("AB2"))) for name in "RNN GRU LSTM".split()},
    "MultiheadAttention": (lambda nn, s: nn.MultiheadAttention(6, 2, dropout=0.0, batch_first=True),
                           lambda s: call(s("AB6"), s("A46"), s("A46"))),
    "TransformerEncoderLayer": (lambda nn, s: nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, activation="gelu",
                                                                         batch_first=True), lambda s: call(s("AB6"))),
    "TransformerDecoderLayer": (lambda nn, s: nn.TransformerDecoderLayer(4, 2, 5, dropout=0.0, activation="gelu",
                                                                         batch_first=True),
                                lambda s: call(s("AB4"), s("A24"))),
    "TransformerEncoder": (lambda nn, s: nn.TransformerEncoder(nn.TransformerEncoderLayer(
        4, 2, 3, dropout=0.0, activation="gelu", batch_first=True), 2), lambda s: call(s("AB4"))),
    "TransformerDecoder": (lambda nn, s: nn.TransformerDecoder(nn.TransformerDecoderLayer(
        4, 2, 3, dropout=0.0, activation="gelu", batch_first=True), 1), lambda s: call(s("AB4"), s("A24"))),
    "Transformer": (lambda nn, s: nn.Transformer(4, 2, 1, 1, 3, dropout=0.0, activation="gelu", batch_first=True),
                    lambda s: call(s("AB4"), s("A24"))),
    "TransformerBlock": (lambda nn, s: nn.TransformerBlock(4, 2, nn.SwiGLU(4, 3), norm="rms", cross=True, bias=False),
                         lambda s: call(s("AB4"), s("A24"))),
    "FeedForward": (lambda nn, s: nn.FeedForward(s["B"], 5), lambda s: call(s("AB"))),
    "SwiGLU": (lambda nn, s: nn.SwiGLU(s["B"], 5), lambda s: call(s("AB"))),
    "GroupedQueryAttention": (lambda nn, s: nn.GroupedQueryAttention(8, 4, 2, qk_norm=True),
                              lambda s: call(s("AB8"))),
    "JointAttention": (lambda nn, s: nn.JointAttention((4, 6), 2), lambda s: call([s("AB4"), s("A26")])),
    "JointBlock": (lambda nn, s: nn.JointBlock((4, 6), 2), lambda s: call([s("AB4"), s("A26")])),
    "AdditiveAttention": (lambda nn, s: nn.AdditiveAttention(2, 3, 4), lambda s: call(s("AB2"), s("AC3"), s("AC2"))),
    "MixtureOfExperts": (lambda nn, s: nn.MixtureOfExperts(4, 3, 2, 5), lambda s: call(s("AB4"))),
    "LearnedPositions": (lambda nn, s: nn.LearnedPositions(7, s["B"]), lambda s: call(s("A5B"))),
    "GridPositions": (lambda nn, s: nn.GridPositions(2, 3, s["B"]), lambda s: call(s("A6B"))),
    "SinusoidalPositions": (lambda nn, s: nn.SinusoidalPositions(4), lambda s: call(s("AB4"))),
    "RotaryEmbedding": (lambda nn, s: nn.RotaryEmbedding(4), lambda s: call(s("ABC4"))),
    "CrossEntropyLoss": (lambda nn, s: nn.CrossEntropyLoss(), lambda s: call(s("DC"), s.ids("D", "C"))),
    "NLLLoss": (lambda nn, s: nn.NLLLoss(), lambda s: call(s("DC"), s.ids("D", "C"))),
    "MSELoss": (lambda nn, s: nn.MSELoss(), lambda s: call(s("AB"), s("AB"))),
    "L1Loss": (lambda nn, s: nn.L1Loss(), lambda s: call(s.apart("AC"), s.apart("AC") + 0.05)),
    **{name: (lambda nn, s, name=name: getattr(nn, name)(), lambda s: call(2 * s.apart("AC"), s.apart("AC") + 0.0313))
       for name in "HuberLoss SmoothL1Loss".split()},
    "BCELoss": (lambda nn, s: nn.BCELoss(), lambda s: call(s.uniform("AB", 0.2, 0.8), s.uniform("AB", 0.2, 0.8))),
    "BCEWithLogitsLoss": (lambda nn, s: nn.BCEWithLogitsLoss(),
                          lambda s: call(s.apart("AC"), s.uniform("AC", 0.2, 0.8))),
    "KLDivLoss": (lambda nn, s: nn.KLDivLoss(reduction="batchmean"), lambda s: call(s("AB"), s.simplex("AB"))),
    "CosineSimilarity": (lambda nn, s: nn.CosineSimilarity(), lambda s: call(s("ABC"), s("ABC"))),
}

NOT_DIFFERENTIABLE = {
    "their result is of whole numbers or truth values": """
        all any argmax argmin argsort argwhere bincount bitwise_and bitwise_not bitwise_or bitwise_xor
        count_nonzero eq equal allclose ge greater greater_equal gt isclose isfinite isinf isnan le less less_equal
        logical_and logical_not logical_or logical_xor lt ne nonzero not_equal unique one_hot bitwise_and_
        bitwise_or_ bitwise_xor_ expert_counts within_capacity""",
    "their derivative is zero wherever there is one": """
        ceil floor floor_divide round sign trunc ceil_ floor_ floor_divide_ round_ sign_ trunc_""",
    "they make tensors from numbers": """
        BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor
        arange as_tensor asarray bernoulli empty empty_like eye from_numpy full full_like is_floating_point
        is_tensor linspace logspace multinomial normal numel ones ones_like rand rand_like randint randint_like
        randn randn_like randperm scalar_tensor tensor tril_indices triu_indices zeros zeros_like""",
    "they make masks and tables from numbers": """
        alibi_bias alibi_slopes block_causal_mask block_mask causal_mask dilated_mask padding_mask
        sliding_window_mask rotary_tables rotary_tables_2d sinusoidal_table sinusoidal_table_2d ALiBi""",
    "they switch recording": """
        detach_ requires_grad_""",
    "they hold other layers or are base classes": """
        Module Sequential ModuleList ModuleDict ParameterList ParameterDict Parameter UninitializedParameter
        KVCache""",
}
