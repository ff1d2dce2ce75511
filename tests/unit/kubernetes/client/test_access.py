"""The ways to an API server, and the sentences for those that lead nowhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kubernetes.client.faulty_server import kubeconfig

from roost.errors import InvalidSpec
from roost.kubernetes.client import access as ways
from roost.kubernetes.client.access import Access, access

URL = "http://127.0.0.1:9"
Opened = tuple[str, dict[str, str], str, dict[str, Any]]


def opened(context: str = "", file: str = "") -> Opened:
    """The host, headers, namespace and options of a way."""

    async def look() -> Opened:
        way = access(context, file)
        await way.open()
        try:
            return way.host, await way.headers(), way.namespace, way.options
        finally:
            await way.close()

    return asyncio.run(look())


def refused(context: str = "", file: str = "") -> str:
    with pytest.raises(InvalidSpec) as caught:
        opened(context, file)
    return str(caught.value)


def test_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    file = kubeconfig(tmp_path, URL, {"token": "t"}, {"namespace": "lab"})
    expected: Opened = (URL, {"Authorization": "Bearer t"}, "lab", {})
    assert opened(file=str(file)) == expected
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{file}")
    assert opened("one") == expected


def test_the_token_of_a_plugin(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(credential)],
    }
    file = kubeconfig(tmp_path, URL, {"exec": plugin})
    assert opened(file=str(file))[1] == {"Authorization": "Bearer made"}
    file = kubeconfig(tmp_path, URL, {"exec": plugin | {"command": "false"}})
    assert "process returned 1" in refused(file=str(file))
    file = kubeconfig(tmp_path, URL, {"exec": plugin | {"command": "no-such-plugin"}})
    assert "no-such-plugin" in refused(file=str(file))


def test_a_proxy_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(kubeconfig(tmp_path, "http://far.example", {"token": "t"}))
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    assert opened(file=file)[3] == {"proxy": "http://proxy.example:3128"}
    monkeypatch.setenv("no_proxy", "far.example")
    assert opened(file=file)[3] == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a kubeconfig"),
        ("a: [", "is not YAML"),
        ("- 1\n- 2", "is not a kubeconfig"),
        ('{"clusters": [], "contexts": [], "users": []}', "current-context"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "broken"
    file.write_text(text)
    sentence = refused(file=str(file))
    assert said in sentence
    assert str(file) in sentence


def test_what_may_be_wrong_in_a_kubeconfig(tmp_path: Path) -> None:
    assert refused(file=str(tmp_path / "none")) == f"there is no kubeconfig at {tmp_path / 'none'}"
    file = str(kubeconfig(tmp_path, URL, {"token": "t"}))
    assert refused("two", file) == f"kubeconfig {file} has no context 'two'; it has: one"
    file = str(kubeconfig(tmp_path, "far.example", {"token": "t"}))
    assert "'far.example' is no http(s) address" in refused(file=file)
    file = str(kubeconfig(tmp_path, "https://far.example", {"client-certificate": "none.crt"}))
    assert "none.crt" in refused(file=file)
    junk = tmp_path / "junk.crt"
    junk.write_text("junk")
    user = {"client-certificate": str(junk), "client-key": str(junk)}
    file = str(kubeconfig(tmp_path, "https://far.example", user))
    assert "the certificates for https://far.example are no use" in refused(file=file)


def test_nothing_to_go_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no kubeconfig" in refused()
    assert "context 'x' is in no kubeconfig" in refused("x")


def test_the_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(ways, "ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("roost-system\n")
    assert "ertificat" in refused()
    (tmp_path / "ca.crt").write_text("junk")
    assert "are no use" in refused()
    authority = _authority()
    (tmp_path / "ca.crt").write_text(authority)
    host, headers, namespace, _ = opened()
    assert (host, namespace) == ("https://10.0.0.1:443", "roost-system")
    assert headers == {"Authorization": "Bearer first"}


def _authority() -> str:
    """Any certificate will do: nothing is asked of the server."""
    import certifi  # noqa: PLC0415 - a dependency of the tests' HTTP client

    text = Path(certifi.where()).read_text()
    return text[text.index("-----BEGIN") : text.index("-----END") + 25]


def test_reloading_keeps_what_is_under_way_and_closes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(kubeconfig(tmp_path, URL, {"token": "t"}))

    async def main() -> None:
        way: Access = access("", file)
        await way.open()
        first = way.session
        assert not await way.reload()  # too soon
        monkeypatch.setattr(ways, "RELOAD_S", 0.0)
        assert await way.reload()
        assert not first.closed
        assert await way.reload()
        assert first.closed
        assert not way.session.closed
        await way.close()
        assert way.session.closed

    asyncio.run(main())
