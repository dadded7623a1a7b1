"""The page at `/` as the server gives it; what it does is for the browser's tests."""

import re

import pytest
from fastapi.testclient import TestClient

from app.routes.playground import _FILES
from app.server import create_app
from app.settings import Settings
from tests.app.conftest import failure

PARTS = sorted(path.name for path in _FILES.iterdir())
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def test_the_page_is_html(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Latte-Mix</title>" in page.text


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_served_as_what_it_is(client: TestClient, name: str) -> None:
    part = client.get(f"/playground/{name}")
    assert part.content == (_FILES / name).read_bytes()
    assert part.headers["content-type"].partition(";")[0] == TYPES[name.rpartition(".")[2]]


@pytest.mark.parametrize("path", ["/", "/playground/main.js"])
def test_a_strict_policy_goes_with_it(client: TestClient, path: str) -> None:
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


def test_nothing_in_it_points_elsewhere() -> None:
    for name in PARTS:
        text = (_FILES / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)(^|\s)// .*$", "", text), name  # but comments


def test_what_it_points_to_is_there_and_relative(client: TestClient) -> None:
    page = client.get("/").text
    found = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(found) == 4
    for target in found:
        assert not target.startswith("/")  # so that it works behind a proxy's prefix
        assert client.get(f"/{target}").status_code == 200
    for name in PARTS:
        text = (_FILES / name).read_text(encoding="utf-8")
        for other in re.findall(r'from "\./([^"]+)"', text):
            assert other in PARTS


def test_no_style_or_script_is_inline() -> None:
    page = (_FILES / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", page)


def test_what_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/").headers["etag"]
    again = client.get("/", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/playground/x.js", "/playground/", "/playground/..%2fserver.py", "/playground/a/b"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert failure(client.get(path))[:2] == (404, "NotFound")


def test_it_can_be_switched_off(settings: Settings) -> None:
    with TestClient(create_app(settings.model_copy(update={"playground": False}))) as client:
        for path in ("/", "/playground/main.js"):
            assert failure(client.get(path))[:2] == (404, "NotFound")


def test_it_is_open_where_keys_are_needed(settings: Settings) -> None:
    locked = settings.model_copy(update={"api_keys": Settings(api_keys="s3cret").api_keys})
    with TestClient(create_app(locked)) as client:
        assert client.get("/").status_code == 200
        assert client.get("/playground/main.js").status_code == 200
        assert client.get("/info").status_code == 401
