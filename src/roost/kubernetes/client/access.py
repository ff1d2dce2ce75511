"""How to reach an API server, and who we are there: kubeconfig or the account of a pod.

Reading kubeconfig files, running credential plugins, client certificates and TLS are the
library's; this module chooses the place to look, turns what is wrong into a sentence, and loads
again when the server no longer accepts what we have: tokens expire, files are rotated.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config import ConfigException, kube_config
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from roost.errors import InvalidSpec

#: Where a pod finds the token, the authority and the namespace of its account.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Credentials are not loaded again more often than this: a plugin may ask a person.
RELOAD_S = 5.0
#: What connections are given to end in.
LINGER_S = 0.1


class _Line:
    """One loaded configuration with its session.

    The session is ours, on the library's connector with its certificates: the library's own looks
    for a proxy and for ``~/.netrc`` on two threads, at each request.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.host = str(configuration.host)
        self._configuration: Any = configuration
        try:
            self._rest: Any = RESTClientObject(configuration, maxsize=0)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidSpec(f"the certificates for {self.host} are no use: {error}") from error
        connector = self._rest.pool_manager.connector
        self.session = aiohttp.ClientSession(connector=connector, connector_owner=False)
        proxy = self._configuration.proxy or _proxy(self.host)
        given = {"proxy": proxy, "server_hostname": self._configuration.tls_server_name}
        self.options = {name: value for name, value in given.items() if value}

    async def headers(self) -> dict[str, str]:
        key = await self._configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": key.strip()} if key else {}

    async def close(self) -> None:
        await self.session.close()
        await self._rest.close()


class Access:
    """A way to an API server: its address, an HTTP session, and the header that says who we are."""

    def __init__(self, load: Callable[[], Awaitable[tuple[Configuration, str]]]) -> None:
        self._load = load
        self._loaded_at = -math.inf
        self._lock = asyncio.Lock()
        self._lines: list[_Line] = []
        self.namespace = "default"

    async def open(self) -> None:
        """Read the configuration; InvalidSpec says what is wrong with it."""
        await self.reload()

    @property
    def host(self) -> str:
        """The address of the server, without a slash at its end."""
        return self._lines[-1].host

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session to send requests with."""
        return self._lines[-1].session

    @property
    def options(self) -> dict[str, Any]:
        """What each request of the session needs besides: a proxy, the name in the certificate."""
        return self._lines[-1].options

    async def headers(self) -> dict[str, str]:
        """The headers that authenticate us; a rotated token file is read again in here."""
        return await self._lines[-1].headers()

    async def reload(self) -> bool:
        """Load everything again, as after a 401; whether there is something new to try.

        Requests under way go on with the session they have: it is closed a reload later.
        """
        asked_at = time.monotonic()
        async with self._lock:
            if self._loaded_at >= asked_at:
                return True  # another task did while we waited
            if asked_at - self._loaded_at < RELOAD_S:
                return False
            configuration, self.namespace = await self._load()
            self._lines.append(_Line(configuration))
            self._loaded_at = time.monotonic()
            for old in self._lines[:-2]:
                await old.close()
            del self._lines[:-2]
            return True

    async def close(self) -> None:
        """Close every connection."""
        for line in self._lines:
            await line.close()
        # Those that a cancelled request left are on their way: TLS says goodbye, unseen by aiohttp.
        await asyncio.sleep(LINGER_S)


def access(context: str = "", kubeconfig: str = "") -> Access:
    """The way that a kubeconfig describes, or else the one of the pod that we are in.

    Looked at: what is given, ``$KUBECONFIG``, ``~/.kube/config``, and the account of the pod.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not files and Path("~/.kube/config").expanduser().exists():
        files = "~/.kube/config"
    if files:
        return Access(lambda: _from_file(files, context))
    if context:
        raise InvalidSpec(f"context {context!r} is in no kubeconfig: there is no such file here")
    return Access(lambda: _from_pod(ACCOUNT))


async def _from_file(files: str, context: str) -> tuple[Configuration, str]:
    missing = [path for path in files.split(os.pathsep) if path and not _exists(path)]
    if len(missing) == len([path for path in files.split(os.pathsep) if path]):
        raise InvalidSpec(f"there is no kubeconfig at {files}")
    configuration = Configuration()
    try:
        loader = await kube_config.load_kube_config(
            config_file=files, context=context or None, client_configuration=configuration
        )
    except ConfigException as error:
        raise InvalidSpec(_context_sentence(files, context, error)) from error
    except yaml.YAMLError as error:
        raise InvalidSpec(f"kubeconfig {files} is not YAML: {error}") from error
    except OSError as error:
        raise InvalidSpec(f"kubeconfig {files}: {error}") from error
    except Exception as error:  # the library trips over what is not shaped as it thinks
        raise InvalidSpec(f"kubeconfig {files} is not a kubeconfig ({error!r})") from error
    _check_host(files, configuration)
    chosen = cast("dict[str, Any]", loader.current_context)["context"]
    return configuration, str(chosen.get("namespace") or "default")


def _exists(path: str) -> bool:
    return Path(path).expanduser().is_file()


def _context_sentence(files: str, context: str, error: ConfigException) -> str:
    """What is wrong, with the contexts that there are when ours is not among them."""
    try:
        config = kube_config.KubeConfigMerger(files).config
        names = sorted(str(item["name"]) for item in cast("Any", config)["contexts"].value)
    except Exception:  # noqa: BLE001 - the sentence is worse without the names, not wrong
        names = []
    if context and names and context not in names:
        return f"kubeconfig {files} has no context {context!r}; it has: {', '.join(names)}"
    return f"kubeconfig {files}: {error}"


def _check_host(files: str, configuration: Configuration) -> None:
    host = str(configuration.host)
    if not host.startswith(("http://", "https://")):
        raise InvalidSpec(f"kubeconfig {files}: the server {host!r} is no http(s) address")


async def _from_pod(folder: Path) -> tuple[Configuration, str]:
    configuration = Configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise InvalidSpec(
            "no kubeconfig (give one with --kubeconfig or $KUBECONFIG), "
            f"and no account of a pod to use: {error}"
        ) from error
    named = folder / "namespace"
    return configuration, named.read_text().strip() if named.is_file() else "default"


def _proxy(host: str) -> str:
    """The proxy that the environment names for this server, if it does."""
    parts = urlsplit(host)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    return getproxies().get(parts.scheme, "")
