"""Images: squarest grids, windows cut by edges, and orders that transformers has for Qwen2.5-VL."""

from itertools import groupby

import pytest

from meshwright.workload.images import Images

GRIDS = [(4, (2, 2)), (24, (4, 6)), (28, (2, 14)), (256, (16, 16)), (1024, (32, 32)), (600, (20, 30))]
CASES = [
    (images, tokens, side) for images in (1, 3) for tokens in (4, 24, 28, 96, 256, 600) for side in (2, 4, 8)
]
MERGE = 2


@pytest.mark.parametrize(("tokens", "grid"), GRIDS)
def test_the_grid_is_the_squarest_of_whole_merged_squares(tokens, grid):
    assert Images(1, tokens).grid(MERGE) == grid


@pytest.mark.parametrize(("images", "tokens", "side"), CASES)
def test_patches_of_a_span_lie_in_one_window_and_squares_are_neighbours(images, tokens, side):
    asked = Images(images, tokens)
    places, at = [*zip(*asked.patch_places(MERGE, side).tolist(), strict=True)], 0
    for span in asked.spans(MERGE, side):
        windows = {(at // tokens, row // side, column // side) for row, column in places[at : at + span]}
        assert len(windows) == 1
        at += span
    assert at == len(places) == asked.patches
    squares = [places[i : i + MERGE**2] for i in range(0, len(places), MERGE**2)]
    assert all({(row // MERGE, column // MERGE) for row, column in square} for square in squares)
    assert all(len({(row // MERGE, column // MERGE) for row, column in square}) == 1 for square in squares)
    assert sorted(places) == sorted(images * places[:tokens])
    assert len(set(places[:tokens])) == tokens


@pytest.mark.parametrize(("images", "tokens", "side"), CASES)
def test_the_order_of_squares_is_a_permutation_within_each_image(images, tokens, side):
    asked, of_one = Images(images, tokens), tokens // MERGE**2
    order = asked.window_order(MERGE, side).tolist()
    assert sorted(order) == list(range(asked.rows(MERGE)))
    assert [place // of_one for place in order] == sorted(place // of_one for place in order)


def test_a_window_of_the_whole_image_leaves_raster_order():
    asked = Images(2, 24)
    assert asked.window_order(MERGE, 8).tolist() == list(range(12))
    assert asked.window_order(MERGE, 4)[:6].tolist() == [0, 1, 3, 4, 2, 5]
    assert asked.spans(MERGE, 4) == (16, 8) * 2
    assert asked.spans(MERGE, None) == (24, 24)


def test_text_follows_the_largest_position_of_the_images_before_it():
    time, row, column = Images(2, 24).positions(MERGE, 15).tolist()
    assert time == [0] * 6 + [3] * 6 + [6, 7, 8]
    assert row == [0, 0, 0, 1, 1, 1, 3, 3, 3, 4, 4, 4, 6, 7, 8]
    assert column == [0, 1, 2] * 2 + [3, 4, 5] * 2 + [6, 7, 8]


def vision_model():
    return pytest.importorskip("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("images", "tokens", "side"), CASES)
def test_windows_and_places_are_those_of_transformers(images, tokens, side):
    theirs, torch = vision_model(), pytest.importorskip("torch")
    asked = Images(images, tokens)
    grid = torch.tensor([[1, *asked.grid(MERGE)]] * images)
    order, ends = theirs.get_vision_window_index(
        grid, spatial_merge_size=MERGE, window_size=14 * side, patch_size=14
    )
    assert asked.window_order(MERGE, side).tolist() == order.tolist()
    assert list(asked.spans(MERGE, side)) == torch.tensor(ends).diff().tolist()
    places = theirs.get_vision_position_ids(grid, MERGE).reshape(-1, MERGE**2, 2)[order].reshape(-1, 2)
    assert asked.patch_places(MERGE, side).T.tolist() == places.tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("images", "tokens"), [(1, 4), (1, 24), (1, 600), (3, 28), (2, 256)])
def test_positions_are_those_of_transformers(images, tokens):
    """transformers wants a token between images: its positions are later by one for each, and its own are left out."""
    theirs, torch = vision_model(), pytest.importorskip("torch")
    asked = Images(images, tokens)
    of_one, text = tokens // MERGE**2, 5
    kinds = [kind for image in range(images) for kind in [*([0] if image else []), *[1] * of_one]] + [
        0
    ] * text
    model = type("Model", (), {"get_vision_position_ids": theirs.Qwen2_5_VLModel.get_vision_position_ids})()
    model.config = theirs.Qwen2_5_VLConfig()
    model.config.vision_config.spatial_merge_size = MERGE
    found, _ = theirs.Qwen2_5_VLModel.get_rope_index(
        model,
        torch.zeros(1, len(kinds), dtype=torch.long),
        torch.tensor([kinds]),
        torch.tensor([[1, *asked.grid(MERGE)]] * images),
    )
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    kept, later, at, between = [], [], 0, 0
    for place, (kind, length) in enumerate(runs):
        if kind or place == len(runs) - 1:
            kept += range(at, at + length)
            later += [between] * length
        else:
            between += 1
        at += length
    expected = found[:, 0, kept] - torch.tensor(later)
    assert asked.positions(MERGE, len(kept)).tolist() == expected.tolist()
