"""The search for causes, beyond the bug zoo: when it must keep silent, and what it sees of a graph."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import explain_gradients
from minitorch_attn.gradient_check import CAUSES
from minitorch_attn.gradient_check.evidence import Case
from minitorch_attn.gradient_check.hypotheses import GENERAL, explanations
from minitorch_attn.gradient_check.point import Point, second_point
from minitorch_attn.gradient_check.subject import Subject
from minitorch_attn.nn import functional as F
from tests.harness import draw
from tests.harness import operation as op


def tensor(*shape, seed=0):
    return mt.tensor(draw(*shape, seed=seed))


def cause_of(fn, *inputs):
    return explain_gradients(fn, inputs)[0]


def test_every_hypothesis_is_a_documented_cause():
    assert set(GENERAL) <= set(CAUSES)


def test_two_mistakes_at_once_are_unclear():
    found = cause_of(op(np.tanh, lambda a, g: (-g * (1 - np.tanh(a[0]) ** 2) + 1e-3 * a[0],)), tensor(3, 5))
    assert found.cause == "unclear" and not found.explanations


def test_a_nearly_constant_factor_is_unclear():
    wrong = op(np.exp, lambda a, g: (2 * g * np.exp(a[0]) * (1 + 1e-4 * np.cos(a[0])),))
    assert cause_of(wrong, tensor(3, 5)).cause == "unclear"


def test_a_factor_that_is_constant_at_one_point_only_is_unclear():
    """At the given inputs all rows have length 1, so that the missing division looks like no mistake or a factor."""
    x = draw(4, 3)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    wrong = op(lambda a: a ** 3, lambda a, g: (g * 3 * a[0] ** 2 * 2 * (a[0] ** 2).sum(axis=1, keepdims=True),))
    assert cause_of(wrong, mt.tensor(x)).cause == "unclear"


def test_two_descriptions_that_both_fit_are_unclear_and_listed():
    """x - y with the gradients exchanged: each has the wrong sign, too."""
    found = cause_of(op(np.subtract, lambda a, g: (-g, g)), tensor(3, 5), tensor(3, 5, seed=1))
    assert found.cause == "unclear" and {c for c, _ in found.explanations} == {"sign", "swapped"}
    assert "candidates" in "\n".join(found.lines())


def test_factor_of_a_square():
    found = cause_of(op(np.square, lambda a, g: (g * a[0],)), tensor(3, 5))
    assert found.cause == "factor" and abs(found.factor - 0.5) < 1e-9 and found.detail == "1/2"


def test_a_cause_in_one_part_of_the_argument():
    def backward(a, g):
        g = np.cos(a[0]) * g
        g[:, -1] *= -1
        return (g,)
    found = cause_of(op(np.sin, backward), tensor(3, 5))
    assert found.cause == "sign" and found.where == "only index 4 of axis 1" and found.factor == -1


def test_ignored_upstream_in_a_scalar():
    wrong = op(lambda a: (a ** 2).mean(), lambda a, g: (2 * a[0] / a[0].size,))
    assert cause_of(wrong, tensor(3, 5)).cause == "ignored_upstream"


def test_composed_layer_norm_with_detached_mean_is_a_lost_path():
    """What a fused kernel calls the mean's path is, in composed code, one of the uses of x."""
    def layer_norm(x):
        centred = x - op(lambda a: a.mean(axis=1, keepdims=True), lambda a, g: (np.zeros_like(a[0]),))(x)
        return centred / (centred * centred).mean(1, keepdim=True).sqrt()
    found = cause_of(layer_norm, tensor(3, 5))
    assert found.cause == "lost_path" and "use" in found.detail


def test_the_same_tensor_as_query_key_and_value():
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, op(lambda a: a * 1, lambda a, g: (0 * g,))(k), v)
    x = tensor(2, 3, 5)
    report = explain_gradients(attention, (x, x, x))
    assert report[0].name == "q = k = v" and report[0].cause == "lost_path" and "k" in report[0].detail


def test_what_one_use_contributes():
    subject = Subject(lambda x: x * 2 + mt.exp(x), (tensor(3),))
    subject.graph(subject.arrays)
    point = Point(subject, subject.arrays, {}, np.random.default_rng(0))
    assert point.uses(0) == ["mul", "exp"]
    np.testing.assert_allclose(point.by_use(0, 0), 2 * np.eye(3), atol=1e-8)
    np.testing.assert_allclose(point.by_use(0, 1), np.diag(np.exp(subject.arrays[0])), atol=1e-8)
    np.testing.assert_allclose(point.true(0), point.wrong(0), atol=1e-8)


def test_a_right_gradient_has_no_explanations():
    subject = Subject(lambda x: F.softmax(x, 1), (tensor(3, 5),))
    subject.graph(subject.arrays)
    point = Point(subject, subject.arrays, {}, np.random.default_rng(0))
    assert explanations(Case(point, 0)) == {}


@pytest.mark.parametrize("fn, low, high", [(mt.log, 0.01, 0.1), (F.logsigmoid, -1, 1), (mt.acos, -0.99, 0.99)])
def test_the_second_point_lies_in_the_domain(fn, low, high):
    x = draw(7, 5, low=low, high=high)
    subject = Subject(fn, (mt.tensor(x),))
    subject.graph(subject.arrays)
    (moved,), _ = second_point(subject, np.random.default_rng(0))
    assert np.isfinite(subject.values([moved])).all() and (moved != x).all()


def a_point(fn, *inputs):
    subject = Subject(fn, inputs)
    subject.graph(subject.arrays)
    return second_point(subject, np.random.default_rng(0))


def only_whole_numbers(x):
    if (x != x.round()).any():
        raise ValueError("whole numbers only")
    return x * 2


def test_there_may_be_no_second_point():
    assert a_point(op(only_whole_numbers, lambda a, g: (2 * g,)), mt.tensor(np.arange(3.0))) is None
    assert a_point(op(lambda x: np.where(x == x.round(), x, np.nan), lambda a, g: (g,)), mt.tensor([1.0, 2.0])) is None


def test_the_second_point_moves_all_floats_but_masks():
    mask = np.array([[0.0, -np.inf, 0.0]])
    x, w = tensor(2, 3).requires_grad_(), tensor(2, 3, seed=1)
    (moved,), constants = a_point(lambda x, w, m: (x * w + m).exp(), x, w, mt.tensor(mask))
    assert (moved != x.detach().numpy()).all() and (constants[1] != w.numpy()).all() and (constants[2] == mask).all()
    assert np.isfinite(moved).all()


def test_a_point_that_is_zero_or_one_is_left():
    (zeros, ones), _ = a_point(mt.mul, mt.tensor(np.zeros((2, 3))), mt.tensor(np.ones((2, 3))))
    assert (zeros != 0).all() and (ones != 1).all()


@pytest.mark.parametrize("by, fn", [(1e-7, lambda y: y), (1e-3, lambda y: y.float())], ids=["float64", "float32"])
def test_a_cause_must_fit_as_near_as_the_differences_allow(by, fn):
    """Nearly the wrong sign: no constant is measured here that would differ at the second point."""
    nearly = op(np.exp, lambda a, g: (-g * np.exp(a[0]) * (1 + by * a[0]),))
    exactly = op(np.exp, lambda a, g: (-g * np.exp(a[0]),))
    assert cause_of(lambda x: fn(nearly(x)), tensor(3, 5)).cause == "unclear"
    assert by > 1e-6 or cause_of(exactly, tensor(3, 5)).cause == "sign"


def test_each_entry_is_held_against_its_own_error():
    """The wrong sign in the large entries, something else in the small one."""
    wrong = op(np.exp, lambda a, g: (np.where(a[0] < 2, 4, -1) * g * np.exp(a[0]),))
    assert cause_of(wrong, mt.tensor(np.array([0.5, 15.0, 20.0]))).cause == "unclear"


def test_what_is_infinite_elsewhere_is_unclear():
    """At a second point log x is NaN in backward alone; the search ends without a cause and without an exception."""
    def backward(a, g):
        bad = np.where(np.abs(a[0] - a[0].round()) < 1e-12, 2.0, np.nan)  # NaN but at the given whole numbers
        return (g * bad * np.cos(a[0]),)
    found = cause_of(op(np.sin, backward), mt.tensor(np.arange(1.0, 7).reshape(2, 3)))
    assert not found.ok and found.cause == "unclear"


def test_a_bias_of_minus_infinity_is_no_obstacle():
    bias = mt.tensor(np.array([[0.0, -np.inf, 0.0], [0.0, 0.0, -np.inf]]))
    wrong = op(lambda x, b: np.exp(x) * (b == 0), lambda a, g: (g * np.exp(a[0]), None))
    x = tensor(2, 3).requires_grad_()
    assert explain_gradients(wrong, (x, bias))[0].cause == "mask_ignored"
