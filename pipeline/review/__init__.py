"""What people say of slides outside studies: annotations, kept with who and when in the ledger's database."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "annotation": "Annotation Draft KINDS new_id",
        "combining": "joined split_by",
        "exchange": "exported features_of import_file Imported",
        "reading": "annotations_of Changes changes_since class_colours find_annotations some_annotations",
        "outlines": "OutlineRow outlines_since",
        "saving": "MAX_DRAFTS save Saved",
        "shapes": "shape_of",
    },
)
