"""kill -9 at random moments of inference: the next run resumes, to the same bytes as an unbroken run.

`make chaos` kills a hundred times: `python -m tests.pipeline.inference.chaos --times 100 --seed 0`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import list_predictions
from tests.pipeline.slide_chaos import Victim, log_batches, main
from tests.small_trained_project import SmallProject, make_small_project

CONFIG = InferConfig(batch_size=4, overlap=0.5)


def infer(model_id: str, slide_id: str, project: Path, log: Path) -> None:
    """Run the inference that is killed."""
    predictor = Predictor.load(project / "models" / model_id)
    log_batches(predictor, log)
    infer_slide(slide_id, predictor, Project(project), CONFIG)


def inference_of(small_project: SmallProject) -> Victim:
    """Inference of the small project's model on its test slide."""
    return Victim(
        work=partial(infer, small_project.model_id, small_project.test_slide),
        store=small_project.project.store_path(small_project.test_slide),
        linked=small_project.project.models_dir,
        layer="predictions",
        list_layers=list_predictions,
        preloaded=("pipeline.inference.infer", "tests.pipeline.slide_chaos", "tests.small_trained_project"),
        late_kills=0.03,
        publishing_s=0.5,
    )


if __name__ == "__main__":
    main(__doc__, lambda folder: inference_of(make_small_project(folder / "small_project")))
