"""Which certificates a client trusts, and what to say of one that it does not.

A server with an own CA is trusted by that CA alone. The server of this machine's home is known by
its very certificate, which its note names: that may carry any name. All others have to be vouched
for by a CA that the machine, or the environment (``SSL_CERT_FILE``), trusts.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roost.errors import InvalidSpec
from roost.files import load

_MOST_BYTES = 1 << 20
#: Codes of OpenSSL's verification: who vouches for it is not known; it names others; its time.
_UNKNOWN_ISSUER = {2, 18, 19, 20, 21, 24, 26, 27, 79}
_OTHER_NAME = {62, 63, 64}
_NOT_YET, _EXPIRED = 9, 10
#: What comes from a port where nobody speaks TLS.
_NO_TLS = {
    *("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"),
    *("PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"),
}


class TrustedCertificates(NamedTuple):
    """Certificates as PEM text: of CAs, or (``exact``) of the one server that is meant."""

    text: str = ""
    exact: bool = False


def from_file(path: str | os.PathLike[str]) -> TrustedCertificates:
    """The CAs in a file; raises InvalidSpec or NotFound."""
    text = load(Path(path).expanduser(), _MOST_BYTES).text
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise InvalidSpec(
            f"{os.fspath(path)} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)"
        ) from None
    return TrustedCertificates(text)


def context(url: str, trusted: TrustedCertificates) -> ssl.SSLContext:
    """What checks the certificate of a server."""
    if not url.startswith("https:"):
        # Never used, and trusts nobody: to load all CAs of the world takes a while.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not trusted.text:
        return _usual()
    found = ssl.create_default_context(cadata=trusted.text)
    # A server's own certificate may stand in for its CA, and home-made ones lack what newer
    # Pythons ask of public CAs.
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    found.verify_flags &= ~ssl.VERIFY_X509_STRICT
    found.check_hostname = not trusted.exact
    return found


def _usual() -> ssl.SSLContext:
    """The CAs of the machine and, where Python came without them, those of certifi."""
    found = ssl.create_default_context()
    with suppress(ImportError):
        import certifi  # noqa: PLC0415 - it comes with the HTTP library

        found.load_verify_locations(certifi.where())
    return found


def complaint(url: str, error: BaseException) -> str:
    """What is wrong with the TLS of a server, and what to do; empty if it is something else."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"the certificate of {url} is not accepted: {_why(found)}"
    if isinstance(found, ssl.SSLError) and found.reason in _NO_TLS:
        plain = f"http{url.removeprefix('https')}"
        return f"{url} does not speak TLS; without it the address is {plain}"
    return ""


def _why(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _UNKNOWN_ISSUER:
        return (
            "nobody whom this machine trusts vouches for it; if it is signed by a CA of your own, "
            "name that CA's file with roost login --ca FILE, or as ROOST_CA"
        )
    if code in _OTHER_NAME:
        told = error.verify_message.rstrip(".")
        return f"{told}; use a name that is in the certificate, or put this one into it"
    if code == _EXPIRED:
        return "it has expired; the server needs a new one"
    if code == _NOT_YET:
        return "it is not valid yet; compare the clocks of both machines"
    return f"{error.verify_message} (roost login --ca FILE names a CA of your own)"
