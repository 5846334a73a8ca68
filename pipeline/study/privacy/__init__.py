"""What leaves a study: pseudonyms by a key, exports, and the scan that lets none out that names anybody."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "export": "Exported export_study",
        "keyed": "PseudonymKey open_pseudonym_key",
        "scan": "find_identifiers",
    },
)
