"""Our own reader of kubeconfigs: what it takes, what it refuses, and certificates that are renewed."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapters.api import PODS, APIError
from adapters.kubernetes import client as client_module
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import CredentialsError, trusting
from adapters.kubernetes.kubeconfig import from_file


class Node:
    """A folder as kubelet has it, and a server that tells who asked."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.pem = folder / "current.pem"
        self.refuse = set()
        self.asked = []
        self.authority.cert_pem.write_to_path(str(folder / "ca.crt"))

    async def serve(self):
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert("127.0.0.1", "apiserver.example").configure_cert(context)
        self.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self.server = TestServer(app, scheme="https")
        await self.server.start_server(ssl=context)

    async def _handle(self, request):
        certificate = request.transport.get_extra_info("peercert") or {}
        subject = {k: v for pairs in certificate.get("subject", ()) for k, v in pairs}
        who = subject.get("organizationalUnitName")
        self.asked.append((who, request.headers.get("Authorization")))
        if who in self.refuse:
            return web.json_response({"kind": "Status", "message": "expired"}, status=401)
        return web.json_response({"who": who, "token": request.headers.get("Authorization")})

    def issue(self, unit):
        issued = self.authority.issue_cert("node", organization_unit_name=unit)
        return issued.private_key_pem.bytes() + issued.cert_chain_pems[0].bytes()

    def renew(self, unit):
        """As kubelet does: a new file, to which the link is moved."""
        file = self.folder / f"kubelet-{unit}.pem"
        file.write_bytes(self.issue(unit))
        link = self.folder / "next.pem"
        link.symlink_to(file.name)
        link.rename(self.pem)

    def config(self, user, **cluster):
        file = self.folder / "kubelet.conf"
        document = {
            "clusters": [
                {"name": "c", "cluster": {"server": str(self.server.make_url("")).rstrip("/")} | cluster}
            ],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(document))
        return file


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    await made.serve()
    yield made
    await made.server.close()


TRUST = {"certificate-authority": "ca.crt"}


async def asked(endpoint):
    async with KubernetesAPI(endpoint) as api:
        return json.loads(await api.get(PODS, "shop", "web"))


async def test_a_kubelets_certificate_by_relative_paths(node):
    node.renew("first")
    file = node.config({"client-certificate": "current.pem", "client-key": "current.pem"}, **TRUST)
    assert await asked(from_file(file)) == {"who": "first", "token": None}


async def test_certificates_inline(node):
    pem = base64.b64encode(node.issue("inline")).decode()
    authority = base64.b64encode((node.folder / "ca.crt").read_bytes()).decode()
    file = node.config(
        {"client-certificate-data": pem, "client-key-data": pem}, **{"certificate-authority-data": authority}
    )
    endpoint = from_file(file)
    assert endpoint.renew_tls is None
    assert (await asked(endpoint))["who"] == "inline"


async def test_tokens(node):
    assert (await asked(from_file(node.config({"token": "t"}, **TRUST))))["token"] == "Bearer t"
    (node.folder / "token").write_text("from a file\n")
    endpoint = from_file(node.config({"token": "t", "tokenFile": "token"}, **TRUST))
    assert (await asked(endpoint))["token"] == "Bearer from a file"
    (node.folder / "token").write_text("renewed")
    assert (await asked(endpoint))["token"] == "Bearer renewed"


async def test_what_a_cluster_says_of_tls(node):
    name = {"tls-server-name": "apiserver.example"}
    assert await asked(from_file(node.config({}, **TRUST, **name)))
    assert await asked(from_file(node.config({}, **{"insecure-skip-tls-verify": True})))


async def test_a_renewed_certificate_is_used_when_the_old_one_is_refused(node):
    node.renew("first")
    file = node.config({"client-certificate": "current.pem", "client-key": "current.pem"}, **TRUST)
    async with KubernetesAPI(from_file(file)) as api:
        await api.get(PODS, "shop", "web")
        node.renew("second")
        await api.get(PODS, "shop", "web")
        node.refuse.add("first")
        assert json.loads(await api.get(PODS, "shop", "web"))["who"] == "second"
        assert [who for who, _ in node.asked] == ["first", "first", "first", "second"]
        node.refuse.add("second")
        with pytest.raises(APIError, match="expired"):
            await api.get(PODS, "shop", "web")


async def test_a_renewed_certificate_is_looked_for_every_minute(node, monkeypatch):
    node.renew("first")
    file = node.config({"client-certificate": "current.pem", "client-key": "current.pem"}, **TRUST)
    async with KubernetesAPI(from_file(file)) as api:
        await api.get(PODS, "shop", "web")
        node.renew("second")
        monkeypatch.setattr(client_module, "_RENEW_SECONDS", 0.0)
        api._forget_credentials(401)
        assert json.loads(await api.get(PODS, "shop", "web"))["who"] == "second"


async def test_a_certificate_without_its_key_yet_changes_nothing(node, caplog):
    node.renew("first")
    pem = node.pem.resolve()
    (node.folder / "key.pem").write_bytes(pem.read_bytes())
    file = node.config({"client-certificate": "current.pem", "client-key": "key.pem"}, **TRUST)
    endpoint = from_file(file)
    assert endpoint.renew_tls() is None
    node.renew("second")
    assert endpoint.renew_tls() is None
    assert "the old one stays" in caplog.text
    (node.folder / "key.pem").write_bytes(node.pem.read_bytes())
    assert endpoint.renew_tls() is not None
    assert endpoint.renew_tls() is None
    (node.folder / "key.pem").unlink()
    assert endpoint.renew_tls() is None


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"exec": {"command": "aws"}}, r"users\[u\]\.exec: .*plugins are not started here: use client-cert"),
        ({"auth-provider": {"name": "oidc"}}, "auth-provider"),
        ({"username": "a", "password": "b"}, "take no passwords"),
        ({"as": "root"}, "acts for itself"),
        ({"client-certificate": "current.pem"}, "and client-key: both or none"),
        ({"client-certificate": "no.pem", "client-key": "no.pem"}, "certificates: .*No such file"),
        (
            {"client-certificate-data": "!", "client-key-data": "!"},
            "client-certificate-data: .*is not base64",
        ),
        ({"client-certificate-data": "QUJD", "client-key-data": "QUJD"}, "certificates: "),
        ({"token": 5}, r"users\[u\]\.token: 5: expected text"),
    ],
)
async def test_what_is_refused(node, user, words):
    with pytest.raises(CredentialsError, match=words):
        from_file(node.config(user, **TRUST))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: [", "cannot be read"),
        ("[]", r"the whole: \[\]: expected a mapping"),
        ("{}", "contexts: '': is not in it"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: c}}]}", "clusters: 'c': is not in it"),
        (
            "{current-context: '', contexts: [{name: ''}], clusters: [{name: ''}], users: [{name: ''}]}",
            r"clusters\[\]\.server: '': expected https",
        ),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path, text, words):
    file = tmp_path / "bad.conf"
    file.write_text(text)
    with pytest.raises(CredentialsError, match=words) as error:
        from_file(file)
    assert str(file) in str(error.value)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(CredentialsError, match="nowhere: cannot be read"):
        from_file(tmp_path / "nowhere")


def test_trust_in_the_systems_authorities_is_the_default():
    assert trusting().check_hostname


def test_no_kubernetes_package_is_loaded(tmp_path: Path):
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'https://h:1'}}], users: [{name: u, user: {token: t}}]}"
    )
    asked = "import sys, pathlib; from adapters.kubernetes.kubeconfig import from_file;"
    asked += f"from_file(pathlib.Path({str(file)!r}));"
    asked += "print(*{'kubernetes', 'yaml', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
