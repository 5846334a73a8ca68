"""Who may sign: the protocol names people and their keys; a change of that is an amendment, so it stands in the log."""

from __future__ import annotations

import json

from pipeline.errors import BadManifestError
from pipeline.study.ledger import Ledger
from pipeline.study.signing import SigningKey


def check_may_sign(ledger: Ledger, study_id: str, key: SigningKey, what: str, name: str | None = None) -> None:
    """Whether the protocol lets a key sign.

    Args:
        what: "anchor", or the meaning of a signature on a report.
        name: as it is printed; None where it is not.

    Raises:
        BadManifestError: the protocol names signers, and this key, name or meaning is not among them.
    """
    protocol = json.loads(ledger.study(study_id).protocol)
    signers = protocol.get("signers") or []
    fitting = [each for each in signers if each["key_id"] == key.public.key_id and name in (None, each["name"])]
    if signers and not any(what in each["may"] for each in fitting):
        who = f"{name} with key {key.public.key_id}" if name else f"key {key.public.key_id}"
        raise BadManifestError(
            f"study {study_id}: its protocol does not let {who} sign ({what}). [[signers]] names who may; to let "
            "others, amend the protocol."
        )
