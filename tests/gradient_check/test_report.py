"""What reports say: text, HTML, figure, words for places, names for constants."""
import pathlib

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import Tensor, explain_gradients
from minitorch_attn.gradient_check import CAUSES, GUARDS
from minitorch_attn.gradient_check.constants import name_of
from minitorch_attn.gradient_check.subject import Argument, fit_axes, names_in_docstring
from minitorch_attn.gradient_check.where import where_in_words
from minitorch_attn.nn import functional as F
from tests.bug_zoo.zoo import ZOO
from tests.harness import draw


def without_mean_path():
    mistake = next(m for m in ZOO if m.title == "layer_norm without the path through the mean")
    fn, inputs = mistake.build()
    return explain_gradients(fn, inputs, names=fn.names)


def test_layer_norm_without_the_mean_path_fits_on_a_screen_and_says_what_to_do():
    report = without_mean_path()
    text = str(report)
    assert len(text.splitlines()) <= 20 and max(map(len, text.splitlines())) <= 80
    assert not report.ok and not report["x"].ok and report["weight"].ok and report["bias"].ok
    assert report["x"].cause == "missing_mean_path" and "Add the term with mean(g_hat)" in " ".join(text.split())
    worst = report["x"].worst_index
    assert f"x[{', '.join(map(str, worst))}]" in text and "what to do" in text and "true value" in text


def test_html_and_plot(tmp_path):
    report = without_mean_path()
    page = report._repr_html_()
    assert page.startswith("<div>") and "missing_mean_path" in page and "<table" in page and "<script" not in page
    pytest.importorskip("matplotlib")
    path = report.plot(str(tmp_path / "errors.png"))
    assert (tmp_path / "errors.png").stat().st_size > 5000 and path.endswith("errors.png")
    assert len(report.plot().axes) == 4  # three maps and the colours' scale


def test_html_escapes_names():
    report = explain_gradients(mt.tanh, mt.tensor(draw(3)), names=["<b>"])
    assert "<b>" not in report._repr_html_().split("</b>", 1)[1]


def test_causes_are_documented():
    for name, cause in CAUSES.items():
        assert cause.meaning and cause.advice.endswith((".", "?")), name


def test_named_axes():
    assert names_in_docstring(F.scaled_dot_product_attention)["query"] == ("...", "T", "D")
    assert fit_axes(("...", "T", "D"), 4) == ("axis 0", "axis 1", "T", "D") and fit_axes(("B",), 2) is None

    def wrong(x):
        def backward(g):
            g = g.copy()
            g[:, 2] *= 3
            return (g,)
        return Tensor.from_op("op", x.array * 1, (x,), backward)
    report = explain_gradients(wrong, mt.tensor(draw(2, 3, 5)), axes={"x": ("B", "H", "T")})
    assert report["x"].where == "only head 2" or report["x"].where == "only the last head"
    assert report["x"].cause == "factor" and abs(report["x"].factor - 3) < 1e-9
    assert report["x"].worst_index[1] == 2 and "H 2" in str(report)


def words(wrong, axes=None, numeric=None, masks=None, x=None):
    wrong = np.array(wrong)
    argument = Argument("x", mt.tensor(np.zeros(wrong.shape) if x is None else np.array(x)), axes=axes)
    numeric = np.ones(wrong.shape) if numeric is None else np.array(numeric)
    return where_in_words(wrong, argument, argument.array, numeric, masks or {})


def at(shape, *places):
    wrong = np.zeros(shape, bool)
    for place in places:
        wrong[place] = True
    return wrong


@pytest.mark.parametrize("wrong, axes, said", [
    (at((3, 5), ...), None, "everywhere"), (at((3, 5), 0), None, "only index 0 of axis 0"),
    (at((3, 5), (slice(None), -1)), ("B", "T"), "only the last time step"),
    (at((2, 4, 3), (slice(None), 2)), ("B", "H", "T"), "only head 2"),
    (at((3, 6), (slice(None), slice(3, 6))), None, "only the second half of axis 1"),
    (at((3, 6), (slice(None), slice(0, 6, 2))), None, "only the even places along axis 1"),
    (at((3, 7), (slice(None), slice(2, 5))), ("B", "T"), "only time step 2 to 4"),
    (at((3, 5), 0, 2), None, "only index other than 1 of axis 0"),
    (at((4, 5), (0, 1), (2, 3), (3, 0), (1, 4)), None, "4 of 20 entries, only index other than 2 of axis 1")])
def test_where_in_words(wrong, axes, said):
    assert words(wrong, axes) == said


def test_where_by_values_and_masks():
    x = np.array([[-1.0, 2.0, -3.0], [4.0, 5.0, -6.0]])
    assert words(x < 0, x=x) == "only where x is negative"
    assert words([[False, True, True], [True, False, False]],
                 numeric=[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]) == "only where the true gradient is zero"
    mask = np.array([[True, False], [False, True]])
    assert words(~mask, masks={"mask": mask}) == "only where mask is False"
    keys = at((2, 3, 4), (slice(None), 1))
    hidden = np.array([[True, False, True], [True, False, True]])
    assert words(keys, ("B", "S", "D"), masks={"attn_mask": hidden}) == "only masked keys"


@pytest.mark.parametrize("c, said", [
    (1 / 7, "1/7: 7 may be the size of axis 0 of x"), (5.0, "5: 5 may be the size of axis C of x"),
    (2.0, "2"), (-0.5, "-1/2"), (7 / 5, "7/5: 7 may be the size of axis 0 of x, 5 may be the size of axis C of x"),
    (5 ** 0.5, "sqrt(5): 5 may be the size of axis C of x"), (7 / 6, "7/(7 - 1): 7 may be the size of axis 0 of x"),
    (1 / 35, "1/35: 35 may be 7 x 5 from the shape of x"), (0.123, "")])
def test_constants_are_named_from_the_shapes(c, said):
    assert name_of(c, {"x": ((7, 5), ("axis 0", "C"))}) == said


def test_n_over_n_minus_1_is_no_name_where_entries_do_not_act_on_each_other():
    assert name_of(7 / 6, {"x": ((7, 5), ("axis 0", "C"))}, mixes=False) == ""


def test_the_page_lists_every_cause_and_guard():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "gradcheck.md").read_text(encoding="utf-8")
    for name in [*CAUSES, *GUARDS]:
        assert f"| `{name}` |" in page, f"docs/gradcheck.md does not tell of {name}"
    assert f"{len(ZOO)} wrong backward functions" in page
    assert all(cause.meaning in page and cause.advice in page for cause in CAUSES.values())
