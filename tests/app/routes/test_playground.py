"""The files of the playground as served; browser tests cover their behaviour."""

import re

import pytest
from fastapi.testclient import TestClient

from app.routes.playground import _FILES
from app.server import create_app
from app.settings import Settings
from tests.app.conftest import failure

FILES = sorted(path.name for path in _FILES.iterdir())
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def test_page_is_html(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Latte-Mix</title>" in page.text


@pytest.mark.parametrize("name", FILES)
def test_serves_every_file_with_its_content_type(client: TestClient, name: str) -> None:
    response = client.get(f"/playground/{name}")
    assert response.content == (_FILES / name).read_bytes()
    assert response.headers["content-type"].partition(";")[0] == TYPES[name.rpartition(".")[2]]


@pytest.mark.parametrize("path", ["/", "/playground/main.js"])
def test_sends_a_strict_content_security_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    assert policy.pop("frame-ancestors") == "'none'"
    assert set(policy) == {"script-src", "style-src", "img-src", "connect-src"}
    assert set(policy.values()) == {"'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_files_have_no_absolute_urls() -> None:
    for name in FILES:
        text = (_FILES / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)(^|\s)// .*$", "", text), name  # except comments


def test_links_are_relative_and_exist(client: TestClient) -> None:
    page = client.get("/").text
    targets = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(targets) == 4
    for target in targets:
        assert not target.startswith("/")  # works behind a proxy that adds a prefix
        assert client.get(f"/{target}").status_code == 200
    for name in FILES:
        text = (_FILES / name).read_text(encoding="utf-8")
        for module in re.findall(r'from "\./([^"]+)"', text):
            assert module in FILES


def test_has_no_inline_style_or_script() -> None:
    page = (_FILES / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", page)


def test_returns_304_for_a_matching_etag(client: TestClient) -> None:
    etag = client.get("/").headers["etag"]
    again = client.get("/", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/playground/x.js", "/playground/", "/playground/..%2fserver.py", "/playground/a/b"]
)
def test_serves_no_other_files(client: TestClient, path: str) -> None:
    assert failure(client.get(path))[:2] == (404, "NotFound")


def test_can_be_disabled(settings: Settings) -> None:
    with TestClient(create_app(settings.model_copy(update={"playground": False}))) as client:
        assert failure(client.get("/"))[:2] == (405, "MethodNotAllowed")  # `POST /` remains
        assert failure(client.get("/playground/main.js"))[:2] == (404, "NotFound")


def test_needs_no_key(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": Settings(api_keys="s3cret").api_keys})
    with TestClient(create_app(keyed)) as client:
        assert client.get("/").status_code == 200
        assert client.get("/playground/main.js").status_code == 200
        assert client.get("/info").status_code == 401
