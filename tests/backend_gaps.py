"""What does not hold on an array library other than NumPy, and why: the tests that fail there.

A name may leave out the brackets of a parametrised test and then stands for all its cases. Each test listed is still
run, and has to fail: one that passes, or that no longer exists, fails the run, so the list stays true. TOO_LONG are
tests that would hold, but are left out for the time they take; they have to exist, too.
"""

NO_WEAKREF = "dpnp's arrays cannot be referred to weakly, which is how the test sees that one is gone"
UNSEEN = "tracemalloc does not see a device's memory, by which the test measures"
COPIES = "from_numpy copies to the device, so that the two cannot share memory"
EXPAND_COPIES = "expand copies, because dpnp's matrix products refuse arrays in which one entry stands for many"

GAPS = {
    "numpy": {},
    "dpnp": {
        "tests/test_autograd.py::TestMemory::test_graph_goes_without_the_collector": NO_WEAKREF,
        "tests/test_autograd.py::TestMemory::test_values_no_backward_needs_are_freed_at_once": NO_WEAKREF,
        "tests/test_autograd.py::TestMemory::test_a_factor_of_a_constant_is_freed_at_once": NO_WEAKREF,
        "tests/models/test_gpt.py::test_training_does_not_grow_without_the_collector": UNSEEN,
        "tests/nn/functional/test_linear_attention.py::test_memory_is_linear": UNSEEN,
        "tests/nn/functional/test_tiled_attention.py::test_memory_is_linear": UNSEEN,
        "tests/ops/test_broadcast.py::test_expand_is_a_view": EXPAND_COPIES,
        "tests/ops/test_create.py::test_as_tensor_and_from_numpy_share_memory_where_they_can": COPIES,
    },
    "cupy": {
        "tests/models/test_gpt.py::test_training_does_not_grow_without_the_collector": UNSEEN,
        "tests/nn/functional/test_linear_attention.py::test_memory_is_linear": UNSEEN,
        "tests/nn/functional/test_tiled_attention.py::test_memory_is_linear": UNSEEN,
        "tests/ops/test_create.py::test_as_tensor_and_from_numpy_share_memory_where_they_can": COPIES,
    },
}

STEPS = "hundreds of training steps, each of hundreds of kernels that take longer to start than to run"
CLOCK = "compares times of a thousand small steps, which on dpnp are those of starting kernels"

TOO_LONG = {
    "numpy": {},
    "dpnp": {
        "tests/models/test_bert.py::test_it_learns_a_rule_that_needs_both_sides": STEPS,
        "tests/models/test_gpt.py::test_time_per_token_stays_flat_with_the_cache": CLOCK,
        "tests/models/test_llama.py::test_it_learns_to_repeat": STEPS,
        "tests/models/test_llama.py::test_time_per_token_stays_flat_with_the_cache": CLOCK,
        "tests/models/test_seq2seq.py::test_it_learns_to_reverse_short_sequences": STEPS,
        "tests/models/test_sequence.py::test_it_learns_what_lies_within_reach": STEPS,
        "tests/models/test_sequence.py::test_time_per_token_stays_flat_with_the_cache": CLOCK,
        "tests/models/test_transformer.py::test_it_learns_to_double_letters": STEPS,
        "tests/models/test_transformer.py::test_time_per_token_stays_flat_with_the_cache": CLOCK,
        "tests/models/test_vit.py::test_it_learns_where_the_square_is": STEPS,
    },
    "cupy": {},
}
