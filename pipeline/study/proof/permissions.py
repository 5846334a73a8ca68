"""Permission to sign: the protocol names people and their keys; a change to that is an amendment, so it is logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import Ledger
from pipeline.study.proof.signing import SigningKey
from training.foundation.words.names import comparable


def check_may_sign(ledger: Ledger, study_id: str, key: SigningKey, what: str, name: str | None = None) -> None:
    """Check that the protocol lets a key sign.

    Args:
        what: "anchor", or the meaning of a signature on a report.
        name: as it is printed; None if it is not.

    Raises:
        BadManifestError: the protocol names signers, and this key, name or meaning is not among them.
    """
    signers = ledger.study(study_id).frozen().get("signers") or []
    if not may_sign(signers, key.public.key_id, what, name):
        who = f"{name} with key {key.public.key_id}" if name else f"key {key.public.key_id}"
        raise BadManifestError(
            f"study {study_id}: its protocol does not allow {who} to sign ({what}). [[signers]] names who may; to "
            "allow others, amend the protocol."
        )


def may_sign(signers: Sequence[Mapping[str, Any]], key_id: str, what: str, name: str | None = None) -> bool:
    """Whether a protocol's `[[signers]]` let a key sign; if nobody is named, every key may.

    Args:
        what, name: as for `check_may_sign`.
    """
    name = comparable(name) if name is not None else None
    fitting = [
        signer for signer in signers if signer["key_id"] == key_id and name in (None, comparable(signer["name"]))
    ]
    return not signers or any(what in signer["may"] for signer in fitting)
