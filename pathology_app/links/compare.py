"""Link to slides side by side: "compare=S-1~model-a,S-1~model-b,S-2"."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pathology_app.links.link import Link, Query
from training.foundation.words.names import is_name

COMPARE = "compare"
MAX_VIEWS = 4
OF_COMPARE = (COMPARE, "at", "overlay", "together")
"""The last three are the browser's own (frontend/src/compare/viewer.ts)."""
_MODEL = "~"
_MAX_TEXT = 1000


@dataclass(frozen=True)
class CompareView:
    """A slide, with one model's predictions over it."""

    slide_id: str
    model_id: str | None = None
    """None: the first one available; "": none is shown."""

    @property
    def text(self) -> str:
        return self.slide_id if self.model_id is None else f"{self.slide_id}{_MODEL}{self.model_id}"


@dataclass(frozen=True)
class CompareLink(Link):
    """Two to four views; fewer while they are being chosen."""

    views: tuple[CompareView, ...]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> CompareLink:
        """Parse a link; parts that are not a valid view are left out."""
        views = (_view(part) for part in Query(query).text(COMPARE, _MAX_TEXT).split(","))
        return cls(tuple(view for view in views if view)[:MAX_VIEWS])

    @property
    def text(self) -> str:
        return ",".join(view.text for view in self.views)

    def with_view(self, view: CompareView) -> CompareLink:
        return CompareLink((*self.views, view)[:MAX_VIEWS])

    def without(self, index: int) -> CompareLink:
        return CompareLink(tuple(view for at, view in enumerate(self.views) if at != index))

    def without_models(self, predicted: Collection[str] | None, models: Collection[str]) -> CompareLink:
        """The link without these models, which a link from somebody else may name, but over slides in `predicted`."""
        return CompareLink(
            tuple(
                replace(view, model_id="")
                if predicted is not None and view.slide_id not in predicted and view.model_id in models
                else view
                for view in self.views
            )
        )

    def with_model(self, index: int, model_id: str) -> CompareLink:
        views = list(self.views)
        views[index] = replace(views[index], model_id=model_id)
        return CompareLink(tuple(views))


def _view(part: str) -> CompareView | None:
    slide_id, says_model, model_id = part.partition(_MODEL)
    if not is_name(slide_id) or (model_id and not is_name(model_id)):
        return None
    return CompareView(slide_id, model_id if says_model else None)
