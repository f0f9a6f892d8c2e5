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
        "Look for a constant left out or applied twice: the 2 of a square, the 1/n of a "
        "mean, the scale of the scores."),
    "transpose": Cause(
        "axes are exchanged, or a matrix was used where its transpose belongs",
        "For Y = X W: gX = gY W^T and gW = X^T gY. Write the shapes next to each factor; test "
        "with all sizes different."),
    "unsummed_broadcast": Cause(
        "the input was repeated along an axis, and the gradients of the copies are not added up",
        "Sum the gradient over every axis along which the input was repeated, so that it "
        "gets the input's shape again."),
    "lost_path": Cause(
        "the input reaches the result along several paths, and one of them is missing",
        "Find every place where the forward uses the input. The gradient is the sum over all: use += where = stands."),
    "missing_cross_term": Cause(
        "each result depends on the other entries through the common sum (or norm), and that part is missing",
        "Differentiate the denominator too. For softmax gx = y (g - sum(g y)): the sum is the missing part."),
    "missing_mean_path": Cause(
        "the mean depends on every entry, and the gradient's path through it is missing",
        "The mean was treated as a constant. For x_hat = (x - mean) r the path through it "
        "takes r mean(g) away from gx."),
    "missing_variance_path": Cause(
        "the variance (or root mean square) depends on every entry, and the gradient's path through it is missing",
        "The scale r was treated as a constant. The path through it takes r x_hat mean(g x_hat) away from gx."),
    "frozen_statistics": Cause(
        "mean and variance were both treated as constants",
        "That is right for fixed running statistics only. In training gx = r (g - mean(g) - x_hat mean(g x_hat))."),
    "ignored_upstream": Cause(
        "the result's own gradient g was not used: this is what comes out for g = 1",
        "Multiply by g. In the chain rule every local derivative is multiplied by the gradient that arrives."),
    "wrong_axis": Cause(
        "a sum (or other operation) in the backward runs along another axis than in the forward",
        "Compare the axis of every sum in the backward with the forward's; give it the same name in both."),
    "mask_ignored": Cause(
        "the mask of the forward is not applied to the gradient",
        "Entries that did not take part get gradient 0: multiply by the same mask, or fill with 0 where it hides."),
    "mask_inverted": Cause(
        "the gradient goes where the mask hides, and not where it lets through",
        "Check what True means: may be seen, or is left out? Invert the mask in the backward."),
    "diagonal_only": Cause(
        "only the effect of each entry on the result at its own place is there",
        "Entries act on other places as well: off the Jacobian's diagonal, or on later steps. Add these parts."),
    "missing_factor": Cause(
        "a factor of the local derivative is missing",
        "Write the derivative out and compare it factor by factor with the code."),
    "swapped": Cause(
        "the gradient of another input was returned in this one's place",
        "Return the gradients in the order of the inputs, and for x y remember that gx has y in it."),
    "misplaced": Cause(
        "the right numbers arrive at the wrong places: shifted, or in reverse order",
        "The backward must undo the forward's rearrangement: roll back, flip again, write to"
        " the slice that was read."),
    "zero_gradient": Cause(
        "no gradient arrives",
        "Does the backward return it, or None or zeros? Is the result computed with detach() or under no_grad()?"),
    "wrong_shape": Cause(
        "the gradient does not have the input's shape",
        "Write the shapes on every line of the backward; the gradient of each input must end"
        " with that input's shape."),
    "wrong_dtype": Cause(
        "the gradient does not have the input's dtype",
        "Keep the dtype: constants as Python numbers, no arrays of another dtype among the factors."),
    "unclear": Cause(
        "none of the known causes reproduces this gradient, or more than one does",
        "Check the backward's terms one at a time: set one input or one term of the forward to a constant."),
}
