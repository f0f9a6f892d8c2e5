"""Our library and PyTorch on the training that the peers do."""
from ..trainings import gpt_parts, step_of
from .shared import LEARNING_RATE, batches, weights

__all__ = ["training"]


def training(torch, size):
    """The step; `torch` is either library."""
    parts, logits_of = gpt_parts(torch, size)
    parts.load_state_dict({name: torch.from_numpy(array) for name, array in weights(size).items()})
    data = [[torch.from_numpy(array) for array in batch] for batch in batches(size)]
    count = 0

    def loss():
        nonlocal count
        x, y = data[count % len(data)]
        count += 1
        return torch.nn.functional.cross_entropy(logits_of(x).reshape(-1, size.vocabulary), y.reshape(-1))

    return step_of(torch.optim.AdamW(parts.parameters(), lr=LEARNING_RATE), loss)
