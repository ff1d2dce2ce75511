"""The cookie of a session, and what a request with it must show: that a page of ours sent it.

Browsers send cookies along with requests that pages of others make. So a request with the cookie is
refused where the browser says that another site, or another port of this host, sent it; and one
that changes something must carry a header that such pages cannot set, and our own address as its
origin.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import Scope

from roost.server.errors import HttpError
from roost.store.accounts import SESSION

#: What a page sends along with whatever changes something.
PAGE_HEADER = b"x-roost-request"
_READING = frozenset({"GET", "HEAD"})
_OWN = frozenset({b"same-origin", b"none"})
_PORTS = {"http": 80, "https": 443}


def session_secret(scope: Scope) -> str:
    """The secret in the cookie of a session; empty if there is none."""
    found = ""
    for name, value in scope["headers"]:
        if name == b"cookie":
            found = _read(value.decode("latin-1"), cookie_name(scope)) or found
    return found if found.startswith(SESSION) else ""


def _read(header: str, name: str) -> str:
    # Part by part: one odd cookie of another program on this host must not hide ours.
    for part in header.split(";"):
        try:
            morsel = SimpleCookie(part.strip()).get(name)
        except CookieError:
            continue
        if morsel is not None:
            return str(morsel.value)
    return ""


def cookie_name(scope: Scope) -> str:
    """What the cookie is called: browsers send it to all ports of a host."""
    host = _header(scope, b"host")
    try:
        port = urlsplit(f"//{host}").port
    except ValueError:
        port = None
    return f"roost_session_{port or _PORTS.get(str(scope.get('scheme')), 80)}"


def cookie(scope: Scope, secret: str, lasts_s: float) -> str:
    """The value of ``Set-Cookie``; without a secret, one that makes the browser forget it."""
    parts = [
        f"{cookie_name(scope)}={secret}",
        "Path=/",
        f"Max-Age={max(0, int(lasts_s)) if secret else 0}",
        "HttpOnly",
        "SameSite=Strict",
    ]
    if scope.get("scheme") == "https":
        parts.append("Secure")
    return "; ".join(parts)


def check_sender(scope: Scope) -> None:
    """Refuse a request with the cookie that no page of ours has sent; raises HttpError."""
    site = _header(scope, b"sec-fetch-site").encode()
    if site and site not in _OWN:
        raise HttpError(403, "forbidden", "the request comes from a page that is not Roost's own")
    if scope["method"] in _READING:
        return
    if not _header(scope, PAGE_HEADER):
        raise HttpError(
            403,
            "forbidden",
            "with the cookie of a session, changes need the header X-Roost-Request",
            "send 'X-Roost-Request: portal', or a token: 'Authorization: Bearer TOKEN'",
        )
    if not _same(_header(scope, b"origin"), _header(scope, b"host")):
        raise HttpError(
            403,
            "forbidden",
            "with the cookie of a session, changes need an Origin header that is this server",
        )


def _same(origin: str, host: str) -> bool:
    """Whether an origin is this server; its name was compared with ours before."""
    try:
        one, other = urlsplit(origin), urlsplit(f"//{host}")
        ports = (one.port, other.port)
    except ValueError:
        return False
    usual = _PORTS.get(one.scheme)
    if usual is None or not one.hostname:
        return False
    # A proxy may call the server by another name than browsers call the proxy.
    return one.hostname != other.hostname or len({port or usual for port in ports}) == 1


def _header(scope: Scope, wanted: bytes) -> str:
    return next((v.decode("latin-1") for name, v in scope["headers"] if name == wanted), "")
