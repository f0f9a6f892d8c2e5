import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.generate import (
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    next_token,
    penalize_repetition,
    stream,
    temper,
    without_padding,
)
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.sequence import ConvolutionConfig, ConvolutionModel

V, BLOCK = 13, 7


def logits_of(probabilities, dtype="float64"):
    return mt.tensor(np.log(np.array(probabilities)).astype(dtype))


def kept(logits):
    """The ids of the last axis that are not refused."""
    return set(np.flatnonzero(np.isfinite(logits.numpy())))


def probabilities(logits):
    return mt.softmax(logits, -1).numpy()


def model_of(seed=0):
    """A tiny GPT with weights large enough that greedy generation does not stand still."""
    mt.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=V, block_size=BLOCK, n_layer=2, n_head=3, n_embd=15, tied=False))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.6 * mt.randn(w.shape)
    return model.eval()


# the filters

@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p, ids", [
    (0.8, {0, 1}),             # reached exactly by the first two
    (0.80001, {0, 1, 2}), (0.79, {0, 1}), (0.5, {0}), (0.51, {0, 1}), (0.0, {0}), (1e-9, {0}), (1.0, {0, 1, 2})])
def test_top_p_keeps_what_reaches_p_and_no_more(dtype, p, ids):
    logits = logits_of([0.5, 0.3, 0.2], dtype)
    left = keep_top_p(logits, p)
    assert kept(left) == ids and left.dtype == logits.dtype
    assert np.array_equal(left.numpy()[list(ids)], logits.numpy()[list(ids)])


def test_top_p_finds_its_tokens_wherever_they_stand_and_row_by_row():
    left = keep_top_p(logits_of([[0.2, 0.5, 0.3], [0.05, 0.05, 0.9]]), 0.8)
    assert [kept(row) for row in left] == [{1, 2}, {2}]


def test_top_p_1_keeps_even_the_least_likely():
    assert kept(keep_top_p(logits_of([1 - 1e-12, 1e-12]), 1.0)) == {0, 1}


def test_top_p_keeps_a_least_number_of_tokens():
    assert kept(keep_top_p(logits_of([0.99, 0.005, 0.005]), 0.9, min_tokens_to_keep=2)) == {0, 1}


@pytest.mark.parametrize("k, ids", [(1, {2}), (2, {0, 2}), (3, {0, 1, 2}), (5, set(range(5))), (6, set(range(5))),
                                    (10**9, set(range(5)))])
def test_top_k_keeps_exactly_k(k, ids):
    assert kept(keep_top_k(mt.tensor([2.0, 1.0, 3.0, 1.0, 1.0]), k)) == ids  # of equals the smaller id


@pytest.mark.parametrize("p, ids", [(0.2, {0, 1}), (0.1, {0, 1, 2}), (1.0, {0}), (0.0, {0, 1, 2}),
                                    (0.09 / 0.6652, {0, 1, 2})])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_min_p_compares_probabilities_not_logits(p, ids, dtype):
    left = keep_min_p(logits_of([0.6652, 0.2447, 0.0900], dtype), p)
    assert kept(left) == ids
    assert all(value == -math.inf for i, value in enumerate(left.numpy()) if i not in ids)


def test_min_p_keeps_a_least_number_of_tokens():
    assert kept(keep_min_p(logits_of([0.005, 0.99, 0.005]), 0.5, min_tokens_to_keep=2)) == {0, 1}


def test_temperature_divides_the_logits():
    logits = mt.tensor([[1.0, 3.0, 2.0]])
    np.testing.assert_allclose(probabilities(temper(logits, 0.5)), probabilities(2 * logits), rtol=1e-6)
    np.testing.assert_allclose(probabilities(temper(logits, 1.0)), probabilities(logits), rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 1e-200])
def test_tiny_temperature_is_greedy_and_finite(temperature):
    logits = mt.tensor([[1e3, 2e3, -math.inf]])
    assert np.array_equal(probabilities(temper(logits, temperature)), [[0, 1, 0]])
    assert next_token(logits, temperature=temperature).tolist() == [[1]]


def test_temperature_comes_before_top_p():
    logits = mt.tensor([[3.0, 2.0, 1.0]])
    mt.manual_seed(0)
    drawn = {next_token(logits, temperature=0.5, top_p=0.8).item() for _ in range(200)}
    assert drawn == {0}  # at temperature 0.5 the first has 0.87; at 1 it has 0.67, and the second would stay


def test_top_k_comes_before_top_p():
    mt.manual_seed(0)
    logits = logits_of([[0.4, 0.3, 0.2, 0.1]])
    drawn = {next_token(logits, top_k=2, top_p=0.5).item() for _ in range(200)}
    assert drawn == {0}  # among two it has 4/7 and suffices; among four it has 0.4, and the second would stay


def test_repetition_penalty_lowers_both_signs():
    left = penalize_repetition(mt.tensor([[2.0, -2.0, 0.5, -0.5]]), mt.tensor([[1, 0, 1]]), 2.0)
    assert left.tolist() == [[1.0, -4.0, 0.5, -0.5]]


def test_repetition_penalty_takes_each_row_for_itself():
    left = penalize_repetition(mt.tensor([[2.0, 2.0], [2.0, 2.0]]), mt.tensor([[0], [1]]), 4.0)
    assert left.tolist() == [[0.5, 2.0], [2.0, 0.5]]


# the choice

def test_greedy_takes_the_first_of_equals():
    assert next_token(mt.tensor([[1.0, 3.0, 3.0], [5.0, 5.0, 0.0]]), temperature=0).tolist() == [[1], [0]]


def test_greedy_obeys_the_repetition_penalty():
    token = next_token(mt.tensor([[1.0, 3.0]]), mt.tensor([[1]]), temperature=0, repetition_penalty=4.0)
    assert token.tolist() == [[0]]


def test_draws_follow_the_probabilities():
    wanted = np.array([0.5, 0.3, 0.15, 0.05])
    logits = logits_of(np.tile(wanted, (20000, 1)))
    drawn = next_token(logits, generator=mt.Generator().manual_seed(0)).numpy()
    share = np.bincount(drawn.ravel(), minlength=4) / 20000
    np.testing.assert_allclose(share, wanted, atol=4 * np.sqrt(wanted * (1 - wanted) / 20000).max())


def test_a_refused_token_is_never_drawn():
    logits = logits_of(np.tile([0.1] * 10 + [1e-300], (5000, 1)))
    drawn = next_token(logits, top_k=10, generator=mt.Generator().manual_seed(0)).numpy()
    assert drawn.max() == 9 and len(np.unique(drawn)) == 10


def test_generator_decides_the_draws():
    logits = mt.zeros(50, 9)
    a, b, c = (next_token(logits, generator=mt.Generator().manual_seed(s)).tolist() for s in (1, 1, 2))
    assert a == b != c


@pytest.mark.parametrize("choice, message", [
    (dict(temperature=-1), "temperature"), (dict(temperature=math.nan), "temperature"),
    (dict(top_k=0), "top_k must be at least 1"),
    (dict(top_p=-0.1), "top_p"), (dict(top_p=1.1), "top_p"), (dict(min_p=1.5), "min_p"), (dict(min_p=-1), "min_p"),
    (dict(repetition_penalty=0), "repetition_penalty"), (dict(temperature=0, top_k=0), "top_k")])
def test_settings_out_of_range_raise(choice, message):
    with pytest.raises(ValueError, match=message):
        next_token(mt.zeros(1, 5), mt.tensor([[1]]), **choice)


# the loop

def plain_greedy(model, ids, n):
    """Without cache, window or batch: the definition."""
    ids = list(ids)
    for _ in range(n):
        with mt.no_grad():
            logits, _ = model(mt.tensor([ids[-BLOCK:]]))
        ids.append(int(logits.numpy()[0, -1].argmax()))
    return ids


@pytest.mark.parametrize("length", [1, 3, BLOCK, BLOCK + 2])
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_equals_the_definition_beyond_the_context_too(length, use_cache):
    for seed in (0, 1, 3):
        model, start = model_of(seed), [(5 * i + seed) % V for i in range(length)]
        wanted = plain_greedy(model, start, 20)
        assert len(set(wanted[length:])) > 3, "a test on one repeated token would show nothing"
        assert generate(model, mt.tensor([start]), 20, temperature=0, use_cache=use_cache).tolist() == [wanted]


@pytest.mark.parametrize("choice", [dict(temperature=0.9), dict(top_k=4), dict(top_p=0.8), dict(min_p=0.1),
                                    dict(repetition_penalty=1.3)])
def test_cache_changes_no_token(choice):
    model, ids = model_of(), mt.tensor([[1, 2, 3], [4, 5, 6]])

    def run(use_cache):
        generator = mt.Generator().manual_seed(3)
        return generate(model, ids, 20, use_cache=use_cache, generator=generator, **choice).tolist()

    assert run(True) == run(False)


def test_rows_of_a_batch_do_not_meet():
    model, rows = model_of(), [[1, 2, 3], [4, 5, 6], [7, 7, 7]]
    together = generate(model, mt.tensor(rows), 15, temperature=0).tolist()
    assert together == [generate(model, mt.tensor([row]), 15, temperature=0).tolist()[0] for row in rows]


def test_with_the_cache_each_step_reads_one_token():
    model, read = model_of(), []
    forward = model.forward

    def counted(ids, **rest):
        read.append(ids.shape[1])
        return forward(ids, **rest)

    model.forward = counted
    generate(model, mt.tensor([[1, 2, 3]]), 8, temperature=0)
    assert read == [3, 1, 1, 1, 1, BLOCK, BLOCK, BLOCK]  # from the end of the context on, the window slides
    read.clear()
    generate(model, mt.tensor([[1, 2, 3]]), 8, temperature=0, use_cache=False)
    assert read == [3, 4, 5, 6, 7, BLOCK, BLOCK, BLOCK]


def test_stream_gives_the_tokens_one_by_one():
    model, ids = model_of(), mt.tensor([[1, 2, 3], [4, 5, 6]])
    tokens = stream(model, ids, 9, temperature=0)
    first = next(tokens)
    assert first.shape == (2, 1) and mt.is_grad_enabled()
    whole = generate(model, ids, 9, temperature=0).tolist()
    assert mt.cat([ids, first, *tokens], dim=1).tolist() == whole


def test_stop_id_ends_a_row_and_fills_it():
    model, ids = model_of(), mt.tensor([[1, 2, 3], [4, 5, 6]])
    free = generate(model, ids, 20, temperature=0).numpy()[:, 3:]
    stop = int(free[0, 2])
    ends = [list(row).index(stop) if stop in row else 19 for row in free]
    assert ends[0] != ends[1], "the rows should end at different times"
    got = generate(model, ids, 20, temperature=0, stop_id=stop).numpy()[:, 3:]
    assert got.shape[1] == max(ends) + 1
    for row, wanted, end in zip(got, free, ends):
        assert list(row[:end + 1]) == list(wanted[:end + 1]) and set(row[end + 1:]) <= {stop}


def test_nothing_to_generate_returns_the_start():
    assert generate(model_of(), mt.tensor([[1, 2]]), 0).tolist() == [[1, 2]]


def test_no_graph_is_recorded():
    model, recorded = model_of(), []
    forward = model.forward

    def watched(ids, **rest):
        result = forward(ids, **rest)
        recorded.append(result[0].requires_grad)
        return result

    model.forward = watched
    generate(model, mt.tensor([[1]]), 3)
    assert recorded == [False] * 3


@pytest.mark.parametrize("ids", [[1, 2], [[]]])
def test_start_must_be_a_batch_of_at_least_one_token(ids):
    with pytest.raises(ValueError, match=r"\(batch, time\) with at least one token"):
        generate(model_of(), mt.tensor(ids, dtype=mt.int64), 2)


def test_counts_that_make_no_sense_are_refused():
    model, ids = model_of(), mt.tensor([[1]])
    with pytest.raises(ValueError, match="max_new_tokens"):
        mt.generate.generate(model, ids, -5)
    with pytest.raises(TypeError, match="top_k"):
        mt.generate.generate(model, ids, 1, top_k=2.5)


def test_a_repetition_penalty_needs_the_tokens():
    with pytest.raises(ValueError, match="needs `ids`"):
        next_token(mt.zeros(1, 5), repetition_penalty=2.0)


def test_the_smallest_temperatures_of_all():
    """Logits far apart, divided by a denormal number: the differences are divided, and 0 / T is 0."""
    for temperature in (1e-306, 5e-324):
        assert next_token(mt.tensor([[700.0, 900.0, -3.0]]), temperature=temperature).tolist() == [[1]]


def test_a_model_without_a_cache_is_read_without_one():
    model = ConvolutionModel(ConvolutionConfig(7, n_embd=5))
    ids = mt.tensor([[1, 2, 3]])
    assert generate(model, ids, 5, temperature=0).tolist() == generate(model, ids, 5, temperature=0,
                                                                       use_cache=False).tolist()


def test_padding_before_the_text_does_not_occur():
    ids = mt.tensor([[0, 0, 4, 0, 5], [3, 0, 1, 2, 2], [0, 0, 0, 0, 6]])
    assert without_padding(ids, 0).tolist() == [[5, 5, 4, 0, 5], [3, 0, 1, 2, 2], [6, 6, 6, 6, 6]]
