"""Where PyTorch puts equal entries when it sorts without promising an order.

PyTorch's CPU build leaves ``sort`` and ``topk`` to the C++ standard library: introsort (quicksort by the median of
three, insertion sort for the last 16, heapsort when quicksort goes wrong) and introselect. Equal entries come out
as those algorithms happen to leave them. A program that meets ties gets the same indices here only if the
algorithms are followed step by step, which is what this file does, on lists of (key, place) compared by key alone.

References
----------
Musser 1997, "Introspective Sorting and Selection Algorithms".
"""
import numpy

from ..backend import to_host

LONGEST = 8192  # rows longer than this keep equal entries in their first order: steps in Python take time


def key_of(entry):
    return entry[0]


def entries_of(row, descending):
    """(rank, place) for each entry of a 1-d array; equal entries have equal ranks, NaN the largest."""
    ranks = numpy.unique(to_host(row), return_inverse=True)[1]
    return [(-rank if descending else rank, place) for place, rank in enumerate(ranks.tolist())]


def sort_order(row, descending):
    """The places of the entries of a 1-d array in sorted order."""
    entries = entries_of(row, descending)
    introsort(entries, 0, len(entries))
    return [place for _, place in entries]


def top_order(row, k, largest):
    """The places of the `k` first entries of a 1-d array in sorted order, as `topk` finds them."""
    entries = entries_of(row, largest)
    if k * 64 <= len(entries):
        heap_select(entries, 0, k, len(entries))
        heap_sort(entries, 0, k)
    elif k:
        introselect(entries, 0, k - 1, len(entries))
        introsort(entries, 0, k - 1)
    return [place for _, place in entries[:k]]


def depth_limit(n):
    """How many partitions quicksort may need before heapsort takes over: 2 floor(log2 n)."""
    return 2 * (n.bit_length() - 1)


def introsort(a, first, last):
    """Sort a[first:last] in place."""
    quicksort_coarsely(a, first, last, depth_limit(last - first))
    # the insertion sort that ends introsort is stable, so any stable sort leaves the same order
    a[first:last] = sorted(a[first:last], key=key_of)


def quicksort_coarsely(a, first, last, depth):
    """Partition until no piece has more than 16 entries."""
    while last - first > 16:
        if depth == 0:
            heap_select(a, first, last, last)
            heap_sort(a, first, last)
            return
        depth -= 1
        cut = partition(a, first, last)
        quicksort_coarsely(a, cut, last, depth)
        last = cut


def introselect(a, first, nth, last):
    """Bring the entry of rank `nth` to its place, with none larger before it and none smaller after it."""
    depth = depth_limit(last - first)
    while last - first > 3:
        if depth == 0:
            heap_select(a, first, nth + 1, last)
            a[first], a[nth] = a[nth], a[first]
            return
        depth -= 1
        cut = partition(a, first, last)
        first, last = (cut, last) if cut <= nth else (first, cut)
    a[first:last] = sorted(a[first:last], key=key_of)


def partition(a, first, last):
    """Split a[first:last] at the median of its second, middle and last entry; return where the upper part begins."""
    mid = median_place(a, first + 1, first + (last - first) // 2, last - 1)
    a[first], a[mid] = a[mid], a[first]
    pivot, i, j = a[first][0], first + 1, last
    while True:
        while a[i][0] < pivot:
            i += 1
        j -= 1
        while pivot < a[j][0]:
            j -= 1
        if i >= j:
            return i
        a[i], a[j] = a[j], a[i]
        i += 1


def median_place(a, x, y, z):
    """The place among x, y, z of the median, by the comparisons that the C++ library makes."""
    if a[x][0] < a[y][0]:
        return y if a[y][0] < a[z][0] else z if a[x][0] < a[z][0] else x
    return x if a[x][0] < a[z][0] else z if a[y][0] < a[z][0] else y


def sift(a, first, hole, size, entry):
    """Put `entry` into the heap a[first:first + size], whose place `hole` is free, on its way from the bottom up."""
    top, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * child + 2
        if a[first + child][0] < a[first + child - 1][0]:
            child -= 1
        a[first + hole] = a[first + child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:  # the last inner place has one child only
        child = 2 * child + 1
        a[first + hole] = a[first + child]
        hole = child
    while hole > top and a[first + (hole - 1) // 2][0] < entry[0]:
        a[first + hole] = a[first + (hole - 1) // 2]
        hole = (hole - 1) // 2
    a[first + hole] = entry


def heap_select(a, first, middle, last):
    """Bring the smallest entries of a[first:last] to a[first:middle], as a heap with the largest first."""
    size = middle - first
    for place in range(size // 2 - 1, -1, -1):
        sift(a, first, place, size, a[first + place])
    for i in range(middle, last):
        if a[i][0] < a[first][0]:
            entry, a[i] = a[i], a[first]
            sift(a, first, 0, size, entry)


def heap_sort(a, first, last):
    """Turn the heap a[first:last] into a sorted run."""
    for end in range(last - 1, first, -1):
        entry, a[end] = a[end], a[first]
        sift(a, first, 0, end - first, entry)
