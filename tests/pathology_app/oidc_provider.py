"""An OpenID Connect provider on this computer that makes any claims a test wants about its visitors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from pathology_app.server import listen

CLIENT_ID, CLIENT_SECRET = "gemslide", "provider-secret"


@dataclass
class Provider:
    """OpenID Connect provider whose next answers a test sets."""

    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "1", "email": "ada@lab.example"})
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, parameters={"kid": "1"}))
    signs_with: RSAKey | None = None
    """Signing key other than the published one."""
    state: str | None = None
    """State to return in place of the requested one."""
    url: str = ""
    nonces: dict[str, str] = field(default_factory=dict)

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def authorize(self, request: Request) -> Response:
        query = request.query_params
        code = f"code-{len(self.nonces)}"
        self.nonces[code] = query["nonce"]
        answer = urlencode({"code": code, "state": self.state or query["state"]})
        return RedirectResponse(f"{query['redirect_uri']}?{answer}", 302)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 3600}
        claims |= {"nonce": self.nonces.pop(str(form["code"]), ""), "email_verified": True, **self.claims}
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.signs_with or self.key)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "expires_in": 3600, "id_token": token})

    async def jwks(self, request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})


@contextmanager
def started_provider() -> Iterator[Provider]:
    """Serve the provider in a thread."""
    provider = Provider()
    names = ("authorize", "token", "jwks")
    routes = [Route(f"/{name}", getattr(provider, name), methods=["GET", "POST"]) for name in names]
    routes.append(Route("/.well-known/openid-configuration", provider.metadata))
    listening = listen("127.0.0.1", [0])
    provider.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def secrets_toml(provider: Provider, app_url: str) -> str:
    """Content of the operator's secrets.toml."""
    return f"""[auth]
redirect_uri = "{app_url}/oauth2callback"
cookie_secret = "{"0123456789abcdef" * 2}"
client_id = "{CLIENT_ID}"
client_secret = "{CLIENT_SECRET}"
server_metadata_url = "{provider.url}/.well-known/openid-configuration"
"""
