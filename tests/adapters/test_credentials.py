"""Kubeconfigs and service accounts, against a server with TLS that wants what they hold."""

import json
import ssl
import sys

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapters.api import PODS, Unreachable
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import CredentialsError, from_kubeconfig, in_cluster


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
async def server(authority):
    """Tells who asked: the client certificate's common name, and the Authorization header."""

    async def handle(request):
        certificate = request.transport.get_extra_info("peercert") or {}
        subject = {k: v for pairs in certificate.get("subject", ()) for k, v in pairs}
        return web.json_response(
            {"unit": subject.get("organizationalUnitName"), "token": request.headers.get("Authorization")}
        )

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "apiserver.example").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    running = TestServer(app, scheme="https")
    await running.start_server(ssl=context)
    yield running
    await running.close()


def kubeconfig(tmp_path, server, user, **cluster):
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": str(server.make_url("")).rstrip("/")} | cluster}],
        "users": [{"name": "u", "user": user}, {"name": "nobody", "user": {}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "c", "user": "nobody"}},
        ],
        "current-context": "one",
    }
    path.write_text(json.dumps(config))
    return path


async def asked(endpoint):
    async with KubernetesAPI(endpoint) as api:
        return json.loads(await api.get(PODS, "shop", "web-1"))


async def test_a_client_certificate(authority, ca_file, tmp_path, server):
    issued = authority.issue_cert("admin", organization_unit_name="admins")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    issued.private_key_pem.write_to_path(str(key))
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    path = kubeconfig(tmp_path, server, user, **{"certificate-authority": str(ca_file)})
    assert await asked(from_kubeconfig(path)) == {"unit": "admins", "token": None}
    assert await asked(from_kubeconfig(path, "two")) == {"unit": None, "token": None}


async def test_a_token_and_a_plugin(ca_file, tmp_path, server):
    trust = {"certificate-authority": str(ca_file)}
    path = kubeconfig(tmp_path, server, {"token": "secret"}, **trust)
    assert (await asked(from_kubeconfig(path)))["token"] == "Bearer secret"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-a-plugin"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(credential))})"],
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path, server, {"exec": plugin}, **trust)
    assert (await asked(from_kubeconfig(path)))["token"] == "Bearer from-a-plugin"


async def test_the_name_the_certificate_is_for(ca_file, tmp_path, server):
    trust = {"certificate-authority": str(ca_file)}
    path = kubeconfig(tmp_path, server, {}, **trust, **{"tls-server-name": "apiserver.example"})
    assert await asked(from_kubeconfig(path))
    path = kubeconfig(tmp_path, server, {}, **trust, **{"tls-server-name": "other.example"})
    with pytest.raises(Unreachable, match=r"[Cc]ertificate"):
        await asked(from_kubeconfig(path))


async def test_a_server_of_another_authority_is_not_trusted(tmp_path, server):
    other = tmp_path / "other.crt"
    trustme.CA().cert_pem.write_to_path(str(other))
    path = kubeconfig(tmp_path, server, {"token": "secret"}, **{"certificate-authority": str(other)})
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        await asked(from_kubeconfig(path))
    path = kubeconfig(tmp_path, server, {"token": "secret"}, **{"insecure-skip-tls-verify": True})
    assert await asked(from_kubeconfig(path))


async def test_a_service_account_whose_token_is_renewed(ca_file, server, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    token = ca_file.parent / "token"
    token.write_text("first\n")
    endpoint = in_cluster(ca_file.parent)
    assert (await asked(endpoint))["token"] == "Bearer first"
    token.write_text("second\n")
    assert (await asked(endpoint))["token"] == "Bearer second"


def test_an_address_of_six_bytes_is_bracketed(ca_file, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (ca_file.parent / "token").write_text("x")
    assert in_cluster(ca_file.parent).server == "https://[fd00::1]:443"


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match=r"KUBERNETES_SERVICE_HOST=None.*give --kubeconfig"):
        in_cluster(tmp_path)
    with pytest.raises(CredentialsError, match="nowhere"):
        from_kubeconfig(tmp_path / "nowhere")
    broken = tmp_path / "broken"
    for text in ("clusters: [", "[]", "clusters: 5", ""):
        broken.write_text(text)
        with pytest.raises(CredentialsError, match="broken"):
            from_kubeconfig(broken)


async def test_a_context_that_is_not_there_is_named(ca_file, tmp_path, server):
    path = kubeconfig(tmp_path, server, {})
    with pytest.raises(CredentialsError, match="context three"):
        from_kubeconfig(path, "three")


@pytest.mark.parametrize(
    ("environment", "stated", "server", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, None, "https://k8s.example:6443", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, None, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "k8s.example"}, None, "https://k8s.example:6443", None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://q:2", "https://k8s.example:6443", "http://q:2"),
        ({}, "http://q:2", "https://127.0.0.1:6443", "http://q:2"),
        ({}, None, "https://k8s.example:6443", None),
    ],
)
def test_proxies(tmp_path, monkeypatch, environment, stated, server, proxy):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cluster = {"server": server} | ({"proxy-url": stated} if stated else {})
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "one",
            }
        )
    )
    assert from_kubeconfig(path).proxy == proxy
