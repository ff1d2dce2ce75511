"""Posts and mails a notification: blocking calls, for a thread of their own.

A URL is a user's: the server must not become a way into the network that it stands in. Its name is
resolved once, every address that is not public is refused unless an administrator allows it, the
connection goes to the address that was checked, and no redirection is followed.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any
from urllib.parse import SplitResult, urlsplit

from roost.errors import Forbidden, Retryable
from roost.jobfile.notify import is_mail
from roost.live.notifications.settings import MailSettings, NotificationSettings

#: How long a connection may be silent, and how long all of it may take, in seconds.
_SILENT_S = 10.0
_WHOLE_S = 30.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_OK = range(200, 300)

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def send(target: str, told: Mapping[str, Any], settings: NotificationSettings) -> None:
    """Tell a target; raises Forbidden where that is not allowed, Retryable where it failed."""
    try:
        if is_mail(target):
            _mail(target, told, settings.mail)
        else:
            _post(urlsplit(target), told, settings)
    except (OSError, ValueError, http.client.HTTPException, smtplib.SMTPException) as error:
        text = str(error) or type(error).__name__
        raise Retryable(f"{type(error).__name__}: {text}"[:300], after=0.0) from None


def signature(secret: str, time: str, body: bytes) -> str:
    """What a receiver compares: HMAC-SHA256 of the time, a dot and the body, in hex."""
    return hmac.new(secret.encode(), time.encode() + b"." + body, hashlib.sha256).hexdigest()


def _post(url: SplitResult, told: Mapping[str, Any], settings: NotificationSettings) -> None:
    host, secure = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if secure else 80)
    body = json.dumps(told).encode()
    time = str(int(float(told["time"])))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "roost",
        "Roost-Delivery": str(told["id"]),
    }
    if settings.secret:
        headers["Roost-Signature"] = f"t={time},v1={signature(settings.secret, time, body)}"
    sock = socket.create_connection(_checked(host, port, settings), _SILENT_S)
    # A peer that says a letter now and then would hold this thread for ever.
    watch = threading.Timer(_WHOLE_S, _cut, (sock,))
    watch.start()
    try:
        if secure:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        connection = http.client.HTTPConnection(host, port, timeout=_SILENT_S)
        connection.sock = sock
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        if answer.status not in _OK:
            raise Retryable(f"it answers {answer.status} {answer.reason}"[:300], after=0.0)
    finally:
        watch.cancel()
        sock.close()


def _cut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already


def _checked(host: str, port: int, settings: NotificationSettings) -> tuple[str, int]:
    """The address to connect to; Forbidden, if one that the name has must not be reached."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not settings.allows_name(host):
        for text in addresses:
            address = ipaddress.ip_address(text)
            if not is_public(address) and not settings.allows_address(address):
                raise Forbidden(
                    f"{host} is not a public address",
                    hint="an administrator can allow it: notifications, 'allow'",
                )
    return addresses[0], port


def is_public(address: _Address) -> bool:
    """Whether an address is one of the Internet, also behind its ways of hiding IPv4 in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def _mail(target: str, told: Mapping[str, Any], settings: MailSettings | None) -> None:
    if settings is None:
        raise Forbidden("no mail server is set", hint="an administrator sets one: roost notify set")
    domain = target.rpartition("@")[2].lower()
    if settings.domains and domain not in {name.lower() for name in settings.domains}:
        raise Forbidden(f"mail goes to {', '.join(settings.domains)} only, not to {domain}")
    message = EmailMessage()
    message["From"], message["To"] = settings.sender, target
    message["Subject"] = " ".join(f"[roost] {told['text']}".split())[:200]
    message["Message-ID"] = f"<{told['id']}@roost>"
    message.set_content(_text(told))
    with _connected(settings) as server:
        if settings.user:
            server.login(settings.user, settings.password)
        server.send_message(message)


def _connected(settings: MailSettings) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if settings.tls == "tls":
        return smtplib.SMTP_SSL(settings.host, settings.port, timeout=_SILENT_S, context=context)
    server = smtplib.SMTP(settings.host, settings.port, timeout=_SILENT_S)
    if settings.tls == "starttls":
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
    return server


def _text(told: Mapping[str, Any]) -> str:
    job = told.get("job") or {}
    lines = [str(told["text"]), "", *(f"{key}: {value}" for key, value in job.items() if value)]
    return "\n".join(lines) + "\n"
