"""Sign-in elsewhere: at an OpenID Connect provider, through Streamlit's `st.login`, as set in the operator's file.

The file has the form of Streamlit's secrets, with one provider, and is named by GEMSLIDE_OIDC; it is never the
project's, since a project must not choose who vouches for people.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from pipeline.ledger import key_of
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.settings import Section, load_section

PROVIDER_VARIABLE = "GEMSLIDE_OIDC"
CALLBACK = "/oauth2callback"
FRESH_S = 600.0
"""Maximum age of a provider's answer, in seconds."""
_SKEW_S = 120.0
_TRUE = (True, "true", "True")


class ProviderError(GemslideError):
    """Somebody came back from the provider but is not let in."""

    code = "provider"


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    is_here = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if parts.scheme not in (("http", "https") if is_here else ("https",)) or not parts.hostname:
        raise ValueError("expected an https:// address (http:// only on this computer)")
    return url


def _checked_callback(url: str) -> str:
    if urlsplit(_checked_url(url)).path != CALLBACK:
        raise ValueError(f"expected the app's own address followed by {CALLBACK}")
    return url


Url = Annotated[str, AfterValidator(_checked_url)]


class Provider(Section):
    """`[auth]`"""

    redirect_uri: Annotated[str, AfterValidator(_checked_callback)]
    cookie_secret: str = Field(min_length=32, repr=False)
    client_id: str = Field(min_length=1)
    client_secret: str = Field(min_length=1, repr=False)
    server_metadata_url: Url
    client_kwargs: dict[str, str] = Field({})

    @property
    def origin(self) -> str:
        """Scheme, host and port at which people reach the app."""
        parts = urlsplit(self.redirect_uri)
        return f"{parts.scheme}://{parts.netloc}"

    def secrets(self) -> dict[str, Any]:
        """The secrets as `st.App` takes them."""
        return {"auth": {key: value for key, value in self.model_dump().items() if value != {}}}


class _File(Section):
    auth: Provider


def provider_by_environment() -> Provider | None:
    """The provider that the operator has named.

    Raises:
        BadRecipeError: its file cannot be read, is invalid, or can be read by others.
    """
    name = os.environ.get(PROVIDER_VARIABLE)
    if not name:
        return None
    path = Path(name)
    provider = load_section(_File, path).auth
    if path.stat().st_mode & 0o077:
        raise BadRecipeError(f"{path}: others can read the secrets in it. Run: chmod 600 {path}")
    return provider


@dataclass(frozen=True)
class Identity:
    """Identity that a provider has confirmed.

    Attributes:
        email: only if the provider has verified it.
        key: one for each sign-in at the provider.
        left_s: seconds for which the provider's answer could be used again.
    """

    subject: str
    email: str | None
    shown: str
    key: str
    left_s: float


def identity_of(claims: Mapping[str, Any], *, now: float) -> Identity:
    """Identity from the provider's claims, as in `st.user`: signature, issuer, audience and nonce are checked there.

    Raises:
        ProviderError: not signed in there, too old, or incomplete.
    """
    subject, made, ends = claims.get("sub"), claims.get("iat"), claims.get("exp")
    if not claims.get("is_logged_in") or not isinstance(subject, str) or not subject:
        raise ProviderError("The identity provider did not say who you are. Sign in again.")
    if not isinstance(made, int | float) or not isinstance(ends, int | float):
        raise ProviderError("The identity provider did not say when you signed in. Sign in again.")
    if now > min(made + FRESH_S, ends + _SKEW_S) or made > now + _SKEW_S:
        raise ProviderError("Your sign-in at the provider is too old. Sign in again.")
    email = claims.get("email") if claims.get("email_verified") in _TRUE else None
    shown = claims.get("email") or claims.get("preferred_username") or subject
    answer = repr(sorted((key, value) for key, value in claims.items() if key != "tokens"))
    return Identity(subject, email if isinstance(email, str) else None, str(shown)[:120], key_of(answer), FRESH_S * 2)
