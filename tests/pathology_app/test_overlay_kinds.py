"""Every kind of overlay is served as declared: at its path, and hidden from blinded readers if it is a result."""

from __future__ import annotations

import io
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from pathology_app.readings.blinding import Shows
from pathology_app.routes.declared import DeclaredRoute
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlays import DAMAGE, KINDS, OverlayKind, Shown
from pathology_app.tiles.routes import viewer_routes
from pipeline.palettes import PALETTES
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.small_attention import SLIDE_MODEL, write_small_attention
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, make_damaged_project


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> SlideCache:
    project = make_damaged_project(tmp_path_factory.mktemp("overlays"))
    write_small_attention(project)
    return SlideCache(project)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_s_route_hides_it_from_blinded_readers_just_where_it_is_a_result(
    cache: SlideCache, kind: OverlayKind
) -> None:
    routes = [route for route in viewer_routes(cache) if isinstance(route, DeclaredRoute)]

    (route,) = (route for route in routes if route.path == kind.path)

    assert route.shows is (Shows.PREDICTION if kind.blinded else Shows.NEITHER)
    assert all(other.blinded == kind.blinded for other in KINDS if other.path == kind.path)
    assert kind.style.palette in PALETTES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_s_layers_lead_to_grey_images_of_their_cells(cache: SlideCache, kind: OverlayKind) -> None:
    layers = list(kind.layers(cache, Shown(SLIDE_ID, [MODEL_ID], (MODEL_ID, 0), [SLIDE_MODEL])))
    urls = [layer["url"] for layer in layers] or ([f"/damaged/{SLIDE_ID}.png"] if kind is DAMAGE else [])

    for url in urls:
        answer = get(cache, urlsplit(url).path)
        assert answer.status_code == 200
        cells = np.asarray(Image.open(io.BytesIO(answer.content)))
        assert cells.shape[0] != cells.shape[1]
        assert len(np.unique(cells)) > 1
    assert {layer["kind"] for layer in layers} <= {kind.name}
    assert len({layer["id"] for layer in layers}) == len(layers)
