"""Whether a producer may be computed in its consumer: against every tile and every point, and by hand."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping

import pytest
from core_regions import Made, needed_at, points, random_region, region, sizes_of

from tinyc.index.compute_at import MinBuffer, can_compute_at, make_fusable_groups, min_buffer_for_edge
from tinyc.index.footprint import Halo, footprint
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.index import Affine, axis
from tinyc.ir.region import Read, Region

Element = tuple[int, ...]


def elementwise(name: str, source: str, *shape: int) -> Region:
    b = Made({f"p{number}": size for number, size in enumerate(shape)})
    return b.done(b.unary("NEG", b.read(source, shape, *b.iters)), name=name)


def summing(name: str, source: str, *shape: int, over: int = 7) -> Region:
    b = Made({f"p{number}": size for number, size in enumerate(shape)})
    return b.done(b.reduce(b.read(source, (*shape, over), *b.iters, "q"), q=over), name=name)


def tiles_read(consumer: Region, tensor: str, tile: Mapping[str, int]) -> dict[Element, set[Element]]:
    """Per tile of the consumer, the elements of ``tensor`` that it needs: every point is tried."""
    sizes, iters = sizes_of(consumer), {each.name for each in consumer.iters}
    sides = {name: tile.get(name, 1 if name in iters else size) for name, size in sizes.items()}
    touched: dict[Element, set[Element]] = defaultdict(set)
    for point in points(sizes):
        place = tuple(point[name] // sides[name] for name in sizes)
        needed = needed_at(consumer, point)
        for let in consumer.lets:
            if isinstance(let.value, Read) and let.value.tensor == tensor and let.name in needed:
                touched[place].add(tuple(index.evaluate(point) for index in let.value.map))
    return touched


@pytest.mark.spec("004-101", "004-104")
def test_against_every_tile_of_random_pairs() -> None:
    generator = random.Random(3)
    overlapping = 0
    for _ in range(160):
        shape = tuple(1 + generator.randrange(6) for _ in range(1 + generator.randrange(2)))
        consumer = random_region(generator.randrange, "P", shape)
        tile = {name: 1 + generator.randrange(4) for name in sizes_of(consumer) if generator.randrange(3)}
        found = can_compute_at(elementwise("P", "X", *shape), consumer, tile)
        touched = tiles_read(consumer, "P", tile)
        distinct = set().union(*touched.values())
        largest = max(map(len, touched.values()), default=0)
        assert found.ok and found.why is None
        assert found.footprint_bytes == 4 * largest
        if distinct:
            assert found.recompute == sum(map(len, touched.values())) / len(distinct)
            overlapping += found.recompute > 1
        else:
            assert found.recompute == 0
    assert overlapping > 50


def windowed(
    size: int, kernel: int, stride: int, dilation: int, offset: int, flip: bool, guard: bool
) -> tuple[Region, Affine]:
    """y[i] = sum of P at a window; the index of its elements, over i and r."""
    span = dilation * (kernel - 1)
    out = (size - span - 1) // stride + 1
    index = axis("i") * stride + axis("r") * dilation + offset
    if flip:
        index = axis("i") * -stride + axis("r") * dilation + (size - 1 - span - offset)
    b = region(i=out)
    x = b.read("P", (size,), index)
    x = b.select(b.within(index, 0, size), x) if guard else x
    return b.done(b.reduce(x, r=kernel), name="Y"), index


@pytest.mark.spec("004-101")
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_halo_of_windows(stride: int, dilation: int, flip: bool) -> None:
    for kernel, offset, side in itertools.product((1, 2, 3, 5), (-2, -1, 0, 1), (1, 2, 4)):
        consumer, index = windowed(48, kernel, stride, dilation, offset, flip, guard=True)
        found = footprint(consumer, consumer.inputs[0], {"i": side}).extents[0].halo
        spans = {"i": 2, "r": kernel}
        tile = [index.evaluate({"i": side + i, "r": r}) for i in range(side) for r in range(spans["r"])]
        length = max(tile) - min(tile) + 1
        assert found.total == max(0, length - stride * side), "what is beyond a tile's share"
        # shares are laid out from the end at which the tiles begin
        share = stride * side if not flip else 48 - 2 * stride * side
        assert found.low >= 0 and found.high >= 0
        if flip:
            assert found.high == min(found.total, max(0, max(tile) - (share + stride * side - 1)))
        else:
            assert found.low == min(found.total, max(0, share - min(tile)))


def image(kernel: int, pad: int, size: int = 32, channels: int = 3) -> Region:
    """A convolution that reads P."""
    out = size + 2 * pad - kernel + 1
    b = region(co=4, h=out, w=out)
    rows, columns = axis("h") + axis("kh") - pad, axis("w") + axis("kw") - pad
    x = b.read("P", (channels, size, size), "ci", rows, columns)
    for index in (rows, columns) if pad else ():
        x = b.select(b.within(index, 0, size), x)
    product = b.mul(b.read("W", (4, channels, kernel, kernel), "co", "ci", "kh", "kw"), x)
    return b.done(b.reduce(product, ci=channels, kh=kernel, kw=kernel), name="Y")


@pytest.mark.spec("004-104", "004-059")
@pytest.mark.parametrize(("kernel", "pad", "sides"), [(3, 1, (1, 1)), (3, 0, (0, 2)), (5, 2, (2, 2))])
def test_a_tile_of_a_convolution(kernel: int, pad: int, sides: tuple[int, int]) -> None:
    """(Th + Kh - 1) x (Tw + Kw - 1)."""
    found = can_compute_at(elementwise("P", "X", 3, 32, 32), image(kernel, pad), {"h": 8, "w": 4, "co": 4})
    rows, columns = 8 + kernel - 1, 4 + kernel - 1
    assert found.footprint_bytes == 4 * 3 * rows * columns
    assert found.halo == {"p0": Halo(), "p1": Halo(*sides), "p2": Halo(*sides)}
    assert found.halo_bytes == 4 * 3 * (rows * columns - 8 * 4)
    one = can_compute_at(elementwise("P", "X", 3, 32, 32), image(kernel, pad))
    assert one.footprint_bytes == 4 * 3 * kernel * kernel and one.ok


@pytest.mark.spec("004-101", "004-127")
def test_a_reduction_must_fit_on_chip() -> None:
    needed = 4 * 3 * 10 * 10
    tile = {"h": 8, "w": 8, "co": 4}
    fits = can_compute_at(summing("P", "X", 3, 32, 32), image(3, 1), tile, capacity=needed)
    assert fits.ok and fits.footprint_bytes == needed and 1 < fits.recompute < 2
    large = can_compute_at(summing("P", "X", 3, 32, 32), image(3, 1), tile, capacity=needed - 1)
    assert not large.ok and large.why is not None
    assert (
        "reduction t1" in large.why and f"{needed} bytes" in large.why and f"{needed - 1} bytes" in large.why
    )
    # elementwise work may be done again
    assert can_compute_at(elementwise("P", "X", 3, 32, 32), image(3, 1), tile, capacity=1).ok
    # at the same point every result is used once: nothing is kept
    assert can_compute_at(summing("P", "X", 4, 4), elementwise("Y", "P", 4, 4), None, capacity=1).ok


def test_a_product_of_products() -> None:
    """Y[m, f] = sum over n of P[m, n] * W[n, f]: a row of P for every tile of rows, again for every tile of columns."""
    b = region(m=16, f=12)
    y = b.reduce(b.mul(b.read("P", (16, 10), "m", "n"), b.read("W", (10, 12), "n", "f")), n=10)
    consumer, producer = b.done(y, name="Y"), summing("P", "X", 16, 10)
    point = can_compute_at(producer, consumer)
    assert point.footprint_bytes == 40 and point.recompute == 12
    tiled = can_compute_at(producer, consumer, {"m": 4, "f": 4})
    assert tiled.footprint_bytes == 160 and tiled.recompute == 3
    assert tiled.halo == {"p0": Halo(), "p1": Halo()}
    assert can_compute_at(producer, consumer, {"m": 4, "f": 12, "n": 5}).footprint_bytes == 80
    assert not can_compute_at(producer, consumer, capacity=39).ok


def test_large_tensors_are_counted_by_their_factors() -> None:
    b = region(n=8, h=224, w=224, c=64)
    rows, columns = axis("h") + axis("kh") - 1, axis("w") + axis("kw") - 1
    x = b.read("P", (8, 64, 224, 224), "n", "c", rows, columns)
    for index in (rows, columns):
        x = b.select(b.within(index, 0, 224), x)
    found = can_compute_at(
        elementwise("P", "X", 8, 64, 224, 224),
        b.done(b.reduce(x, kh=3, kw=3), name="Y"),
        {"h": 8, "w": 8, "c": 4},
    )
    assert found.footprint_bytes == 4 * 4 * 10 * 10
    # 28 tiles of 10 rows, of which the first and the last have one outside, over 224 rows
    assert found.recompute == 278**2 / 224**2


def test_guards_that_tie_axes_together() -> None:
    """A triangle is no product: 0 <= i - j."""
    b = region(i=6, j=5)
    lower = b.within(axis("i") - axis("j"), 0, 6)
    consumer = b.done(b.select(lower, b.read("P", (6, 5), "i", "j")), name="Y")
    found = can_compute_at(elementwise("P", "X", 6, 5), consumer, {"i": 2, "j": 2})
    touched = tiles_read(consumer, "P", {"i": 2, "j": 2})
    assert found.footprint_bytes == 4 * max(map(len, touched.values())) == 16
    assert found.recompute == 1


def test_two_reads_of_a_stencil_are_one_footprint() -> None:
    b = region(i=20)
    parts = [b.read("P", (22,), axis("i") + number) for number in range(3)]
    consumer = b.done(b.mul(b.mul(parts[0], parts[1]), parts[2]), name="Y")
    found = can_compute_at(elementwise("P", "X", 22), consumer, {"i": 5})
    assert found.footprint_bytes == 28 and found.halo == {"p0": Halo(0, 2)}
    assert found.recompute == 28 / 22


def test_floor_divisions_share_what_neighbours_share() -> None:
    b = region(i=24)
    consumer = b.done(b.read("P", (8,), axis("i") // 3), name="Y")
    producer = elementwise("P", "X", 8)
    assert can_compute_at(producer, consumer, {"i": 6}).halo["p0"] == Halo()
    assert can_compute_at(producer, consumer, {"i": 4}).halo["p0"] == Halo(0, 1)
    b = region(i=24)  # a reshape reads every element once
    index = axis("i")
    consumer = b.done(b.read("P", (3, 8), index // 8, index - (index // 8) * 8), name="Y")
    found = can_compute_at(elementwise("P", "X", 3, 8), consumer, {"i": 4})
    assert found.halo == {"p0": Halo(), "p1": Halo()} and found.recompute == 1 and found.footprint_bytes == 16


def test_a_buffer_that_is_filled_in_other_dimensions() -> None:
    producer = summing("P", "X", 4, 6)  # 24 elements, read as 3 x 8
    b = region(i=3, j=8)
    consumer = b.done(b.read("P", (3, 8), "i", "j"), name="Y")
    found = can_compute_at(producer, consumer, {"i": 1, "j": 8})
    assert found.ok and found.footprint_bytes == 32 and found.recompute == 1
    b = region(i=3, j=7)
    refused = can_compute_at(producer, b.done(b.read("P", (3, 7), "i", "j"), name="Y"))
    assert not refused.ok and refused.why is not None and "[3, 7]" in refused.why


def test_pairs_that_are_none() -> None:
    a, b = elementwise("A", "X", 4), elementwise("B", "A", 4)
    assert can_compute_at(a, b).ok
    unrelated = can_compute_at(b, a)
    assert not unrelated.ok and unrelated.why == "k_A reads no output of k_B"
    circle = can_compute_at(elementwise("A", "B", 4), b)
    assert not circle.ok and circle.why is not None and "cycle" in circle.why
    loose = region(i=4)
    strided = loose.done(loose.read("A", (4,), axis("s")), name="Y")
    nowhere = can_compute_at(a, strided)
    assert not nowhere.ok and nowhere.why is not None and "no affine index" in nowhere.why


@pytest.mark.parametrize("tile", [{"z": 4}, {"i": 0}, {"i": -1}, {"i": 2.0}, {"i": True}])
def test_tiles_that_are_none(tile: dict[str, int]) -> None:
    b = region(i=4)
    consumer = b.done(b.read("A", (4,), "i"), name="Y")
    for ask in (can_compute_at, min_buffer_for_edge):
        with pytest.raises(TinycError) as raised:
            ask(elementwise("A", "X", 4), consumer, tile)
        assert raised.value.kind == "InvalidArgument"


@pytest.mark.spec("004-102", "004-104")
def test_the_smallest_buffer() -> None:
    producer = summing("P", "X", 16, 16)
    same = elementwise("Y", "P", 16, 16)
    assert min_buffer_for_edge(producer, same, {"p0": 8, "p1": 8}) == MinBuffer("reg", 2)
    b = region(i=16, j=16)
    turned = b.done(b.read("P", (16, 16), "j", "i"), name="Y")
    assert min_buffer_for_edge(producer, turned, {"i": 4, "j": 4}) == MinBuffer("smem_ring", 2)
    b = region(i=16, j=16)
    product = b.mul(b.read("P", (16, 16), "i", "k"), b.read("W", (16, 16), "k", "j"))
    summed = b.done(b.reduce(product, k=16), name="Y")
    tile = {"i": 4, "j": 4, "k": 8}
    assert min_buffer_for_edge(producer, summed, tile) == MinBuffer("smem_ring", 3)
    bytes_ = 4 * 4 * 8
    assert min_buffer_for_edge(producer, summed, tile, capacity=3 * bytes_) == MinBuffer("smem_ring", 3)
    assert min_buffer_for_edge(producer, summed, tile, capacity=3 * bytes_ - 1) == MinBuffer("smem_ring", 2)
    assert min_buffer_for_edge(producer, summed, tile, capacity=bytes_ - 1) == MinBuffer("gmem", 2)
    halo = min_buffer_for_edge(elementwise("P", "X", 3, 32, 32), image(3, 1), {"h": 8, "w": 8})
    assert halo == MinBuffer("smem_ring", 3)
    with pytest.raises(TinycError, match="reads no output"):
        min_buffer_for_edge(same, producer)


@pytest.mark.spec("004-104", "004-127")
def test_chains_that_may_be_one_kernel() -> None:
    a, b, c = elementwise("A", "X", 8), summing("B", "A2", 8), elementwise("C", "B", 8)
    assert make_fusable_groups([a, b, c]) == (("k_A",), ("k_B", "k_C"))
    # A is read twice: nobody takes it up
    d, e = elementwise("D", "A", 8), elementwise("E", "A", 8)
    assert make_fusable_groups([a, d, e]) == (("k_A",), ("k_D",), ("k_E",))
    # of two chains the longer output goes along; the order of the Regions does not matter
    both = Made({"i": 4})
    joined = both.done(both.mul(both.read("C", (8,), "i"), both.read("F", (64,), "i")), name="G")
    f = elementwise("F", "Z", 64)
    assert make_fusable_groups([joined, c, f, b]) == (("k_F", "k_G"), ("k_B", "k_C"))
    assert make_fusable_groups([]) == ()


def test_a_chain_stops_where_its_reductions_do_not_fit() -> None:
    """sum -> elementwise -> window: the sums are needed wherever the window goes."""
    first, middle = summing("P", "X", 3, 32, 32), elementwise("Q", "P", 3, 32, 32)
    b = Made({"h": 30, "w": 30})
    x = b.read("Q", (3, 32, 32), "c", axis("h") + axis("kh"), axis("w") + axis("kw"))
    last = b.done(b.reduce(x, c=3, kh=3, kw=3), name="Y")
    regions = [first, middle, last]
    assert make_fusable_groups(regions, capacity=4 * 27) == (("k_P", "k_Q", "k_Y"),)
    assert make_fusable_groups(regions, capacity=4 * 27 - 1) == (("k_P", "k_Q"), ("k_Y",))


def test_regions_that_are_no_program() -> None:
    with pytest.raises(TinycError) as raised:
        make_fusable_groups([elementwise("A", "X", 4), elementwise("A", "Y", 4)])
    assert raised.value.kind == "DuplicateId"
    circle = [elementwise("A", "C", 4), elementwise("B", "A", 4), elementwise("C", "B", 4)]
    with pytest.raises(TinycError) as raised:
        make_fusable_groups(circle)
    assert raised.value.kind == "CyclicGraph"


def test_the_tile_of_an_axis_is_no_longer_than_the_axis() -> None:
    consumer = image(3, 1, size=6)
    read = footprint(consumer, consumer.inputs[0], {"h": 99, "w": 99, "co": 99})
    assert [extent.length for extent in read.extents] == [3, 8, 8]
    assert read.counts.largest == 3 * 6 * 6 and read.counts.pairs == read.counts.distinct
