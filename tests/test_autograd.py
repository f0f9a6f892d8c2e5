"""The engine: graphs, the walk back, accumulation, freeing, and what writing in place may and may not do."""
import gc
import weakref

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.autograd import Partial, Tensor, grad
from minitorch_attn.backend import shares_memory, xp

LONG = 100_000 if xp.name == "numpy" else 2000  # operations; a device takes longer for each, recursion ends at 1000


def leaf(*values):
    return mt.tensor(list(values), dtype=mt.float64, requires_grad=True)


class TestGraph:
    def test_reused_inner_node_counts_once_a_path(self):
        a = leaf(1.0)
        b = a + a
        (b + b).backward()
        assert a.grad.tolist() == [4.0]

    def test_gradient_of_a_product_of_paths(self):
        a, b = leaf(3.0), leaf(2.0)
        c = a * b
        (c * c + a).backward()
        assert a.grad.tolist() == [2 * 6.0 * 2.0 + 1.0] and b.grad.tolist() == [2 * 6.0 * 3.0]

    def test_leaves_that_need_no_gradient_get_none(self):
        a, b = leaf(3.0), mt.tensor([2.0], dtype=mt.float64)
        (a * b).backward()
        assert a.grad.tolist() == [2.0] and b.grad is None

    def test_backward_accumulates_over_graphs(self):
        a = leaf(3.0)
        for _ in range(3):
            (a * 2.0).backward()
        assert a.grad.tolist() == [6.0]

    def test_backward_of_a_leaf(self):
        a = leaf(3.0)
        seed = mt.tensor([5.0], dtype=mt.float64)
        a.backward(seed)
        assert a.grad.tolist() == [5.0]
        a.grad += 1
        assert seed.tolist() == [5.0]

    def test_weighted_backward(self):
        a = leaf(1.0, 2.0, 3.0)
        (a * a).backward(mt.tensor([1.0, 0.5, -1.0]))
        assert a.grad.tolist() == [2.0, 2.0, -6.0]

    @pytest.mark.parametrize("count", [1, 3])
    def test_another_number_of_gradients_than_inputs_names_the_operation(self, count):
        a, b = leaf(3.0), leaf(2.0)
        y = Tensor.from_op("careless", a.array * b.array, (a, b), lambda g: (g,) * count)
        with pytest.raises(RuntimeError, match=f"careless has 2 inputs, and its backward returned {count}"):
            y.backward()

    def test_second_backward_raises_and_names_the_way_out(self):
        a = leaf(3.0)
        y = a * a
        y.backward()
        with pytest.raises(RuntimeError, match="retain_graph=True"):
            y.backward()
        assert a.grad.tolist() == [6.0]

    def test_retained_graph_can_be_walked_twice(self):
        a, b, d = leaf(3.0), leaf(2.0), leaf(1.0)
        c = a + b
        e = c * d
        e.backward(retain_graph=True)
        assert [a.grad.item(), b.grad.item(), d.grad.item()] == [1.0, 1.0, 5.0]
        e.backward()
        assert [a.grad.item(), b.grad.item(), d.grad.item()] == [2.0, 2.0, 10.0]

    def test_part_of_a_graph_freed_by_another_result(self):
        a = leaf(3.0)
        shared = a * a
        (shared * 2.0).backward()
        with pytest.raises(RuntimeError, match="freed"):
            (shared * 3.0).backward()

    def test_integer_results_cut_the_graph(self):
        a = leaf(1.0, 3.0, 2.0)
        assert not (mt.argmax(a) + 2).requires_grad
        with pytest.raises(RuntimeError, match="requires grad"):
            (mt.argmax(a) + 2).backward()

    def test_backward_of_many_numbers_needs_a_gradient(self):
        with pytest.raises(RuntimeError, match=r"single number.*\(2,\)"):
            (leaf(1.0, 2.0) * 2.0).backward()
        with pytest.raises(RuntimeError, match=r"\(3,\).*\(2,\)"):
            (leaf(1.0, 2.0) * 2.0).backward(mt.ones(3))

    def test_retain_grad_fills_in_an_inner_gradient(self):
        a = leaf(3.0)
        b = a * 2.0
        b.retain_grad()
        (b * b).backward()
        assert b.grad.tolist() == [12.0] and a.grad.tolist() == [24.0]

    def test_grad_returns_instead_of_storing(self):
        a, b = leaf(3.0), leaf(2.0)
        c = a * b
        ga, gc_ = grad(c * c, (a, c))
        assert ga.tolist() == [2 * 6.0 * 2.0] and gc_.tolist() == [12.0] and a.grad is None
        with pytest.raises(RuntimeError, match="allow_unused"):
            grad(a * a, (b,))
        assert grad(a * a, (b,), allow_unused=True) == (None,)

    def test_only_floats_can_require_grad(self):
        with pytest.raises(RuntimeError, match="int64"):
            mt.tensor([1, 2]).requires_grad = True

    def test_wrong_shape_or_dtype_from_backward_is_caught(self):
        for wrong in (np.ones(3), np.ones(2, "float32")):
            a = leaf(1.0, 2.0)
            y = Tensor.from_op("wrong", a.array * 1, (a,), lambda g, wrong=wrong: (wrong,))
            with pytest.raises(AssertionError, match="wrong returned a gradient"):
                y.backward(mt.ones(2))


class TestPartial:
    def test_pieces_of_one_tensor_share_one_buffer(self):
        a = leaf(1.0, 2.0, 3.0)
        b = a * 1.0

        def piece(x, i):
            def backward(g):
                return (Partial(i, g),)
            return Tensor.from_op("piece", x.array[i], (x,), backward)

        # a whole gradient first, then pieces, then a whole one again
        total = (b * 10.0).sum() + piece(b, 0) * 2.0 + piece(b, 0) * 3.0 + piece(b, 2) * 4.0 + b.sum()
        total.backward()
        assert a.grad.tolist() == [16.0, 11.0, 15.0]


class TestMemory:
    def test_gradients_never_share_memory(self):
        a, b = leaf(1.0), leaf(2.0)
        c = a + b
        seed = mt.tensor([1.0], dtype=mt.float64)
        c.backward(seed)
        with mt.no_grad():
            a.grad += 1
        assert b.grad.tolist() == [1.0] and seed.tolist() == [1.0]

    def test_one_array_given_to_two_inputs(self):
        a, b = leaf(1.0), leaf(2.0)

        def backward(g):
            both = g * 3
            return both, both

        Tensor.from_op("both", a.array + b.array, (a, b), backward).backward()
        with mt.no_grad():
            a.grad += 1
        assert a.grad.tolist() == [4.0] and b.grad.tolist() == [3.0]

    def test_same_gradient_for_two_uses(self):
        a = leaf(1.0)
        b = a + a
        c = b + b
        c.backward()
        assert a.grad.tolist() == [4.0]

    def test_gradient_through_views_is_a_copy(self):
        a = mt.zeros(2, 3, requires_grad=True)
        seed = mt.ones(3, 2)
        a.transpose(0, 1).backward(seed)
        a.grad += 1
        assert seed.tolist() == [[1.0, 1.0]] * 3

    def test_chain_of_many_operations(self):
        a = leaf(1.0)
        x = a
        for _ in range(LONG):
            x = x + 1.0
        x.backward()
        assert a.grad.tolist() == [1.0]

    def test_long_chain_can_be_dropped_without_backward(self):
        x = leaf(1.0)
        for _ in range(LONG):
            x = x + 1.0
        del x

    def test_graph_of_many_reused_nodes(self):
        a = leaf(1.0)
        x = a
        for _ in range(LONG // 10):
            x = (x + x) * 0.5  # two paths each: 2^10,000 paths in all
        x.backward()
        assert a.grad.tolist() == [1.0]

    def test_graph_goes_without_the_collector(self):
        gc.collect()
        gc.disable()
        try:
            a = leaf(1.0, 2.0)
            y = (a * a).exp()
            array = weakref.ref(y.array)
            y.sum().backward()
            del y
            assert array() is None
            z = (a * a).exp() * 2.0
            kept = weakref.ref(z.node.backward)
            del z
            assert kept() is None
        finally:
            gc.enable()

    def test_values_no_backward_needs_are_freed_at_once(self):
        a = leaf(1.0, 2.0)
        inner = a + 1.0
        alive = weakref.ref(inner)
        y = inner + 1.0
        array = weakref.ref(inner.array)
        del inner
        assert alive() is None and array() is None
        y.backward(mt.ones(2))
        assert a.grad.tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("operation", [lambda x, y: x * y, lambda x, y: y * x, lambda x, y: x / y,
                                           lambda x, y: y @ x, lambda x, y: x @ y])
    def test_a_factor_of_a_constant_is_freed_at_once(self, operation):
        a, constant = leaf(1.0, 2.0), leaf(3.0, 5.0).detach()
        inner = a + 1.0
        array = weakref.ref(inner.array)
        y = operation(inner, constant)  # the gradient of inner needs the constant alone
        del inner
        assert array() is None
        y.backward(mt.ones(y.shape))
        assert a.grad.numpy().min() > 0

    def test_a_retained_gradient_is_nobody_elses_memory(self):
        a = leaf(1.0, 2.0)
        y = a + 0.0
        y.retain_grad()
        z = y + 0.0
        z.retain_grad()
        (z * 2.0 + z * 3.0).sum().backward()
        assert not any(shares_memory(p.grad.array, q.grad.array) for p, q in ((a, y), (y, z), (a, z)))
        assert [x.grad.tolist() for x in (a, y, z)] == [[5.0, 5.0]] * 3


class TestInPlace:
    def test_assignment_after_use_keeps_the_old_value_for_the_old_use(self):
        x = leaf(1.0, 2.0)
        y = x * 1.0
        z = y * y
        y[0] = 5.0
        (z + y).sum().backward()
        assert x.grad.tolist() == [1 * 2.0 + 0.0, 2 * 2.0 + 1.0]

    def test_slice_assignment_blocks_the_gradient(self):
        x = leaf(1.0, 2.0, 3.0, 4.0)
        y = x * 3.0
        y[:2] = 0.0
        y.sum().backward()
        assert x.grad.tolist() == [0.0, 0.0, 3.0, 3.0]

    def test_assigned_value_gets_its_gradient(self):
        v = leaf(2.0)
        out = mt.zeros(3, dtype=mt.float64)
        out[1] = v[0] * 5.0
        (out * mt.tensor([7.0, 11.0, 13.0], dtype=mt.float64)).sum().backward()
        assert out.tolist() == [0.0, 10.0, 0.0] and v.grad.tolist() == [55.0]

    def test_leaf_write_raises_before_it_changes_anything(self):
        x = leaf(1.0, 2.0)
        for write in (lambda: x.add_(1.0), lambda: x.__setitem__(0, 9.0), lambda: x.zero_()):
            with pytest.raises(RuntimeError, match="leaf"):
                write()
        assert x.tolist() == [1.0, 2.0]
        with mt.no_grad():
            x.add_(1.0)
        assert x.tolist() == [2.0, 3.0] and x.requires_grad and x.is_leaf

    def test_overwriting_what_a_pending_backward_needs_raises(self):
        w, x = leaf(1.0, 2.0), mt.tensor([3.0, 4.0], dtype=mt.float64)
        y = w * x
        x[0] = 7.0
        with pytest.raises(RuntimeError, match="modified in place"):
            y.sum().backward()

    def test_overwriting_what_it_does_not_need_is_fine(self):
        w, x = leaf(1.0, 2.0), mt.tensor([3.0, 4.0], dtype=mt.float64)
        y = w + x
        x[0] = 7.0
        y.backward(mt.tensor([1.0, 2.0]))
        assert w.grad.tolist() == [1.0, 2.0]

    def test_overwriting_a_result_that_its_own_backward_needs_raises(self):
        x = leaf(1.0, 2.0)
        y = x.exp()
        with mt.no_grad():
            y.mul_(2.0)
        with pytest.raises(RuntimeError, match=r"exp.*modified in place"):
            y.backward(mt.ones(2))

    def test_write_through_detached_alias_is_noticed(self):
        x = leaf(1.0, 2.0)
        y = x * x
        x.data[0] = 5.0
        with pytest.raises(RuntimeError, match="modified in place"):
            y.backward(mt.ones(2))

    def test_views_outside_a_graph_share_memory(self):
        base = mt.zeros(2, 3)
        base[1].fill_(5.0)
        base.t()[0, 0] = 7.0
        assert base.tolist() == [[7.0, 0.0, 0.0], [5.0, 5.0, 5.0]]

    def test_view_of_a_tensor_written_in_a_graph_is_out_of_date(self):
        x = mt.ones(2, 3, requires_grad=True)
        y = x * 2.0
        row = y[0]
        other = y[1]
        y[0] = 0.0
        with pytest.raises(RuntimeError, match="out of date"):
            row * 1.0
        with pytest.raises(RuntimeError, match="out of date"):
            row.detach()
        assert (y + 0.0)[0].tolist() == [0.0] * 3
        del other

    def test_base_of_a_view_written_in_a_graph_is_out_of_date(self):
        x = mt.ones(2, 3, requires_grad=True)
        y = x * 2.0
        row, rest = y[0], y[1]
        row.fill_(0.0)
        with pytest.raises(RuntimeError, match="out of date"):
            y + 1.0
        assert (rest * 1.0).tolist() == [2.0] * 3  # shares no entry with what was written

    def test_result_must_fit(self):
        with pytest.raises(RuntimeError, match=r"float32.*int64"):
            mt.tensor([1, 2]).add_(mt.tensor([0.5, 0.5]))
        with pytest.raises(RuntimeError, match=r"\(2, 2\)"):
            mt.ones(2).add_(mt.ones(2, 2))

    def test_replacing_data(self):
        p = leaf(1.0, 2.0)
        p.data = mt.tensor([5.0, 6.0, 7.0], dtype=mt.float64)
        (p * p).backward(mt.ones(3))
        assert p.grad.tolist() == [10.0, 12.0, 14.0]

    @pytest.mark.parametrize("select", [lambda mask, x: mt.where(mask, x * 2, x * 3),
                                        lambda mask, x: x.masked_fill(mask, 7)])
    def test_overwritten_mask_raises(self, select):
        x, mask = leaf(1.0, 2.0, 3.0), mt.tensor([True, False, True])
        y = select(mask, x)
        mask[0] = False
        with pytest.raises(RuntimeError, match="modified in place"):
            y.sum().backward()

    def test_view_of_leaf_stays_one_after_the_graph_is_freed(self):
        x = leaf(1.0, 2.0, 3.0)
        view = x[:2][1:]
        view.sum().backward()
        with pytest.raises(RuntimeError, match="view of one"):
            view.add_(1)
        assert (x * 2).tolist() == [2.0, 4.0, 6.0]

    def test_accumulated_grad_counts_as_written(self):
        x, w = leaf(1.0, 1.0), leaf(1.0, 1.0)
        (x * 2).sum().backward()
        loss = (x.grad * w).sum()
        (x * 5).sum().backward()
        with pytest.raises(RuntimeError, match="modified in place"):
            loss.backward()

    def test_part_of_expanded_tensor_is_not_written(self):
        base = mt.ones(3)
        rows = base.expand(2, 3)
        if xp.name == "numpy":
            with pytest.raises(RuntimeError, match="read-only"):
                rows[1].add_(1)
            assert base.tolist() == [1.0, 1.0, 1.0]


class TestGrad:
    @pytest.mark.parametrize("wrong", [mt.ones(1, dtype=mt.float64), mt.ones(3)])
    def test_grad_of_wrong_shape_or_dtype_raises(self, wrong):
        x = leaf(1.0, 2.0, 3.0)
        x.grad = wrong
        with pytest.raises(RuntimeError, match=r"\.grad was set to"):
            (x * 2).sum().backward()

    def test_leaf_that_no_longer_requires_grad_gets_none(self):
        x, w = leaf(1.0), leaf(2.0)
        y = x * w
        x.requires_grad_(False)
        y.backward()
        assert x.grad is None
        assert w.grad.tolist() == [1.0]

    def test_several_outputs_and_their_gradients(self):
        x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
        gx, gw = grad([(x * w).sum(), x * 5, x], (x, w), grad_outputs=[None, leaf(1.0, 10.0), leaf(2.0, 3.0)],
                      create_graph=False)
        assert gx.tolist() == [3.0 + 5 + 2, 4.0 + 50 + 3]
        assert gw.tolist() == [1.0, 2.0]
        (gx,) = grad(outputs=x * 2, inputs=x, grad_outputs=mt.ones(2, dtype=mt.float64))
        assert gx.tolist() == [2.0, 2.0]

    def test_output_named_twice_counts_twice_and_comes_as_an_array(self):
        came = []
        x = mt.tensor(3.0, requires_grad=True)
        y = Tensor.from_op("noted", 5 * x.array, (x,), lambda g: (came.append(g), (5 * g,))[1])
        g, = grad((y, y), x, (mt.tensor(2.0), mt.tensor(7.0)))
        assert g.item() == 45
        assert [type(a) for a in came] == [xp.ndarray]

    def test_input_named_twice_gets_two_tensors(self):
        x = leaf(1.0, 2.0)
        first, second = grad((x * 3).sum(), [x, x])
        first.zero_()
        assert second.tolist() == [3.0, 3.0]

    def test_second_derivatives_are_refused_by_name(self):
        x = leaf(2.0)
        with pytest.raises(NotImplementedError, match="create_graph"):
            (x * x).backward(create_graph=True)
        with pytest.raises(NotImplementedError, match="create_graph"):
            grad(x * x, x, create_graph=True)
        (x * x).backward(create_graph=False)
        assert x.grad.tolist() == [4.0]
