"""The certificate of a server and its key: what is wrong with them is said before it starts."""

from __future__ import annotations

import re
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from roost.errors import InvalidSpec, NotFound

_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----", re.ASCII)
_MOST_BYTES = 1 << 20
#: Another key of the same kind; a key of another kind.
_OTHER_KEY = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


class _ProtectedKey(Exception):
    """OpenSSL wants a passphrase."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a certificate and its key."""

    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """What serves TLS with them; raises InvalidSpec or NotFound."""
        cert, key = _text(self.cert), _text(self.key)
        if not _CERTIFICATE.search(cert):
            if _KEY.search(cert) and _CERTIFICATE.search(key):
                raise InvalidSpec("--tls-cert names a key and --tls-key a certificate: swap them")
            raise InvalidSpec(f"{self.cert} holds no certificate in PEM form")
        if not _KEY.search(key):
            raise InvalidSpec(f"{self.key} holds no private key in PEM form")
        if self.key.stat().st_mode & stat.S_IROTH:
            raise InvalidSpec(
                f"everybody can read the key {self.key}: run chmod o-r {self.key}, "
                "and make a new key if others may have read it"
            )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.cert, self.key, password=_refuse)
        except _ProtectedKey:
            raise InvalidSpec(
                f"the key {self.key} asks for a passphrase, which a server cannot type: "
                f"openssl pkey -in {self.key} writes one without"
            ) from None
        except (ssl.SSLError, OSError) as error:
            raise InvalidSpec(self._unfit(error)) from None
        return context

    def leaf(self) -> str:
        """The server's own certificate, without those of its CAs."""
        found = _CERTIFICATE.search(_text(self.cert))
        return f"{found[0]}\n" if found else ""

    def _unfit(self, error: OSError) -> str:
        reason = getattr(error, "reason", "") or ""
        if reason in _OTHER_KEY:
            return f"the key {self.key} is not that of the certificate {self.cert}"
        told = reason.replace("_", " ").lower() or error.strerror or str(error)
        return f"the certificate {self.cert} with the key {self.key} cannot be used: {told}"


def _refuse() -> str:
    raise _ProtectedKey


def _text(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except OSError as error:
        raise InvalidSpec(f"cannot read {path}: {error.strerror}") from None
