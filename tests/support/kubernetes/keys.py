"""Keys, certificates, users and kubeconfig files of a control plane."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

#: Who may do everything.
ADMIN = "admin"


def write_account_keys(folder: Path) -> None:
    """Write the pair of keys that tokens of service accounts are signed and checked with."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "accounts.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "accounts.pub").write_bytes(public)


def write_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that vouches for itself; answers its file and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / f"{name}.key", key)
    path = folder / f"{name}.crt"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path, folder / f"{name}.key"


def write_tokens(path: Path, users: Mapping[str, Iterable[str]], tokens: Mapping[str, str]) -> None:
    """Write the API server's file of users: token, name, id and groups."""
    lines = [f'{tokens[user]},{user},{user},"{",".join(users[user])}"\n' for user in users]
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)


def write_kubeconfig(
    path: Path, server: str, token: str, *, authority: Path | None = None, namespace: str = ""
) -> Path:
    """Write a kubeconfig of one context, "roost"; JSON, for that is YAML, too."""
    trust = {"certificate-authority": str(authority)} if authority else {}
    context = {"cluster": "roost", "user": "roost", "namespace": namespace or "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "roost", "cluster": {"server": server, **trust}}],
        "users": [{"name": "roost", "user": {"token": token}}],
        "contexts": [{"name": "roost", "context": context}],
        "current-context": "roost",
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    path.chmod(0o600)
    return path


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
