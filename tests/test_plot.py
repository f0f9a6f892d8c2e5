import subprocess
import sys
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import plot
from minitorch_attn.nn import functional as F


def causal_maps(L, H, T, S):
    scores = np.random.default_rng(0).random((L, H, T, S))
    scores *= np.tri(T, S, S - T)
    return list(scores / scores.sum(-1, keepdims=True))


def read_png(path):
    from matplotlib.image import imread
    return imread(path)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("tokens", [list("白日依山尽，黄"), list("a\nb\tc d"), list("$\\_^{}%")])
def test_attention_maps_are_drawn_whatever_the_characters(tmp_path, tokens):
    path = plot.attention_maps(causal_maps(2, 3, 7, 7), tokens, str(tmp_path / "made" / "maps.png"))
    height, width, _ = read_png(path).shape
    assert height > 300 and width > 500


def test_maps_show_the_weights_given(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    maps = causal_maps(2, 3, 5, 7)  # the last 5 of 7 tokens ask
    plot.attention_maps([mt.tensor(m, requires_grad=True) for m in maps], list("abcdefg"), "unused")
    drawn = [ax for ax in figures[0].axes if ax.images]
    assert [ax.get_title() for ax in drawn] == [f"layer {i}, head {h}" for i in (1, 2) for h in (1, 2, 3)]
    for ax, wanted in zip(drawn, np.concatenate(maps)):
        np.testing.assert_allclose(ax.images[0].get_array(), wanted)
        assert ax.images[0].get_clim() == (0, 1)
        assert [t.get_text() for t in ax.get_xticklabels()] == list("abcdefg")
        assert [t.get_text() for t in ax.get_yticklabels()] == list("cdefg")


def test_without_a_font_the_places_are_written(monkeypatch):
    monkeypatch.setattr(plot, "font_for", lambda text: None)
    assert plot.tick_labels(list("白日依")) == (["0", "1", "2"], "sans-serif")


def test_white_space_is_made_visible():
    labels, font = plot.tick_labels(list("a \n\t"))
    assert labels == ["a", "␣", "\\n", "\\t"] and font is not None


def test_font_has_what_is_asked_of_it():
    usual = plot.font_for("plain text")
    assert usual == "DejaVu Sans"
    assert plot.font_for(chr(0x10FFFE)) is None  # no font has a glyph for what is no character


def test_loss_curve(tmp_path):
    for losses in ([3.0], np.geomspace(4, 0.01, 300), [0.0, 0.0], [1.0, -1.0]):
        assert read_png(plot.loss_curve(losses, str(tmp_path / "loss.png"))).shape[1] > 500


def test_running_mean_stands_at_the_middle_of_what_it_averages(monkeypatch):
    figures = []
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    plot.loss_curve(np.arange(1.0, 101), "unused")
    each, mean = figures[0].axes[0].lines
    assert len(each.get_xdata()) == 100
    np.testing.assert_allclose(mean.get_ydata(), mean.get_xdata() + 1)  # of a straight line it is that line


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="3 tokens cannot label 7 keys"):
        plot.attention_maps(causal_maps(1, 1, 7, 7), list("abc"), str(tmp_path / "x.png"))
    with pytest.raises(ValueError, match="at least one loss"):
        plot.loss_curve([], str(tmp_path / "x.png"))
    assert not list(tmp_path.iterdir())


def test_matplotlib_is_loaded_when_something_is_drawn():
    code = "import sys, minitorch_attn.plot; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_attention_shows_queries_down_and_keys_across(monkeypatch):
    figures, weights = [], np.random.default_rng(0).random((2, 5))
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    plot.attention(mt.tensor(weights, requires_grad=True), list("ab"), list("vwxyz"), "unused")
    ax = figures[0].axes[0]
    np.testing.assert_allclose(ax.images[0].get_array(), weights)
    assert [t.get_text() for t in ax.get_xticklabels()] == list("vwxyz")
    assert [t.get_text() for t in ax.get_yticklabels()] == list("ab")
    with pytest.raises(ValueError, match="2 queries and 3 keys"):
        plot.attention(weights, list("ab"), list("xyz"), "unused")


def test_masks_are_drawn_side_by_side(monkeypatch, tmp_path):
    causal = F.causal_mask(5)
    masks = {"causal": causal, "padding": causal & F.padding_mask([3], 5), "long": F.causal_mask(64)}
    assert read_png(plot.mask(masks, str(tmp_path / "masks.png"))).shape[1] > 600
    figures = []
    monkeypatch.setattr(plot, "save", lambda figure, path: figures.append(figure))
    plot.mask(masks, "unused")
    assert [ax.get_title() for ax in figures[0].axes] == list(masks)
    for ax, wanted in zip(figures[0].axes, masks.values()):
        assert np.array_equal(ax.images[0].get_array(), wanted.numpy().reshape(wanted.shape[-2:]))
    for wrong in ({}, {"numbers": np.ones((2, 2))}, {"two": np.ones((2, 1, 3, 3), bool)}):
        with pytest.raises(ValueError, match="must be boolean"):
            plot.mask(wrong, "unused")
