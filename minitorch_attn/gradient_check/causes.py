"""The causes that can be named: what each means, and where to look."""
from typing import NamedTuple

__all__ = ["CAUSES"]


class Cause(NamedTuple):
    """What a cause means, and what to do about it."""
    meaning: str
    advice: str


CAUSES = {
    "sign": Cause(
        "the gradient has the wrong sign",
        "Look for a lost minus: d(x - y)/dy = -1, d(1/x)/dx = -1/x^2, d cos x/dx = -sin x."),
    "factor": Cause(
        "the gradient is a constant times the true one",
        "Look for a constant left out or applied twice: the 2 of a square, the 1/n of a mean (over the batch, "
        "too), the scale of the scores, the 1/(1 - p) of a dropout."),
    "transpose": Cause(
        "axes are exchanged, or a matrix was used where its transpose belongs",
        "For Y = X W: gX = gY W^T and gW = X^T gY. Write the shapes next to each factor; test with all sizes "
        "different."),
    "unsummed_broadcast": Cause(
        "the input was repeated along an axis, and the gradients of the copies are not added up",
        "Sum the gradient over every axis along which the input was repeated, so that it gets the input's shape "
        "again."),
    "lost_path": Cause(
        "the input reaches the result along several paths, and one of them is missing",
        "Find every place where the forward uses the input; the gradient is the sum over all. Is one cut off by "
        "detach(), .item() or numpy? Does a later = overwrite what an earlier line found? For repeated indices even "
        "gw[ids] += g counts an id once: numpy.add.at(gw, ids, g) counts all."),
    "missing_cross_term": Cause(
        "each result depends on the other entries through the common sum, and that part is missing",
        "Differentiate the denominator too. For softmax gx = y (g - sum(g y)): the sum is the missing part."),
    "missing_mean_path": Cause(
        "the mean depends on every entry, and the gradient's path through it is missing",
        "With g_hat = g * weight (g where there is no weight), r = 1/std and x_hat = (x - mean) r, the whole is "
        "gx = r (g_hat - mean(g_hat) - x_hat mean(g_hat x_hat)), means along the normalised axes. Add the term with "
        "mean(g_hat)."),
    "missing_variance_path": Cause(
        "the variance (root mean square, length) depends on every entry, and the path through it is missing",
        "With g_hat = g * weight (g where there is no weight), r = 1/std (or 1/root mean square) and x_hat the "
        "normalised x, the path through r is -r x_hat mean(g_hat x_hat), means along the normalised axes. Add it. For "
        "y = x / length(x) it is -y sum(g y) / length(x)."),
    "frozen_statistics": Cause(
        "mean and variance were both treated as constants",
        "That is right for fixed running statistics only. In training, with g_hat = g * weight (g where there is no "
        "weight), r = 1/std and x_hat = (x - mean) r: gx = r (g_hat - mean(g_hat) - x_hat mean(g_hat x_hat))."),
    "ignored_upstream": Cause(
        "the result's own gradient g was not used: this is what comes out for g = 1",
        "Multiply by g. In the chain rule every local derivative is multiplied by the gradient that arrives."),
    "passed_on": Cause(
        "g is passed on as it is, as if the result were the input itself",
        "Multiply g by the derivative of the result by the input. In y = x + h(x) add the path through h."),
    "wrong_axis": Cause(
        "a sum (or other operation) in the backward runs along another axis than in the forward",
        "Compare the axis of every sum in the backward with the forward's; give it the same name in both."),
    "mask_ignored": Cause(
        "the mask of the forward is not applied to the gradient",
        "Entries that did not take part (hidden by a mask, below 0 for relu, not the largest for a maximum) get "
        "gradient 0: multiply by the same mask, or fill with 0 where it hides."),
    "mask_inverted": Cause(
        "the gradient goes where the mask hides, and not where it lets through",
        "Check what True means: may be seen, or is left out? Invert the mask in the backward."),
    "diagonal_only": Cause(
        "only the effect of each entry on the result at its own place is there",
        "Entries act on other places as well: on their whole row, or on later steps. Add these parts."),
    "wrong_factor": Cause(
        "a factor of the derivative that is not constant is missing, or one too many, or multiplied where the "
        "derivative divides",
        "Write the derivative out and compare it factor by factor with the code."),
    "swapped": Cause(
        "the gradient of another input was returned in this one's place",
        "Return the gradients in the order of the inputs, and for x y remember that gx has y in it."),
    "misplaced": Cause(
        "the right numbers arrive at the wrong places: shifted, in reverse order, or not put back",
        "The backward must undo the forward's rearrangement: roll back, flip again, write to the slice that was "
        "read."),
    "zero_gradient": Cause(
        "no gradient arrives",
        "Does the backward return it, or None or zeros? Is the result computed with detach(), .item() or numpy, or "
        "under no_grad()?"),
    "wrong_form": Cause(
        "the backward does not return a tuple of arrays, one for each input",
        "End with return (gx,), or return gx, gy, ...: arrays (the .array of a Tensor, no numbers), and None for an "
        "input that has no gradient."),
    "wrong_shape": Cause(
        "the gradient does not have the input's shape",
        "Write the shapes on every line of the backward; the gradient of each input must end with that input's shape. "
        "After a sum, repeat g along the summed axes again."),
    "wrong_dtype": Cause(
        "the gradient does not have the input's dtype",
        "Keep the dtype: constants as Python numbers, no arrays of another dtype among the factors."),
    "unclear": Cause(
        "no single cause could be named",
        "Shrink the input to a row or two, print report[0].analytic and .numeric side by side, and look where they "
        "part. Check each operation that the function is made of by itself."),
}
