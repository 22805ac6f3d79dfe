"""belay in a Django project, as its processes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "fastapi-and-django.md"
SETTINGS = """
import os
SECRET_KEY = "x"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["belay_integrations.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_FILE"]}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
BELAY_DATABASE = os.environ["SHOP_BELAY"]
BELAY_APP = "shop.workflows:workflows"
USE_TZ = True
"""
MODELS = """
from django.db import models

class Order(models.Model):
    name = models.CharField(max_length=10, unique=True)
"""
URLS = """
from django.urls import path
from shop import views

urlpatterns = [path("place/<name>", views.place_order), path("orders/<int:order>", views.show_order)]
"""
REQUESTS = """
import django
django.setup()
from django.db import connection
from django.db.utils import IntegrityError
from django.test import Client
from belay_integrations.django import client
from shop.models import Order
from shop.workflows import ship

with connection.schema_editor() as editor:
    editor.create_model(Order)
browser = Client()
placed = browser.post("/place/ana")
assert (placed.status_code, placed.json()) == (202, {"order": 1}), placed.content
try:
    browser.post("/place/ana")
except IntegrityError:
    pass
assert [each.workflow for each in client().list()] == ["ship"]
missing = browser.get("/orders/2")
assert (missing.status_code, missing.json()) == (404, {"detail": "run: there is no run order-2"})
print(client().find("order-1", ship).result())
print(browser.get("/orders/1").json())
"""


def written() -> dict[str, str]:
    """The files of the project that the page shows."""
    return dict(re.findall(r"^```text\n# (shop/\w+\.py)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.fixture
def shop(tmp_path: Path, url: str) -> dict[str, str]:
    assert set(written()) == {"shop/workflows.py", "shop/views.py"}
    own = {"shop_settings.py": SETTINGS, "ask_shop.py": REQUESTS, "shop/models.py": MODELS, "shop/urls.py": URLS}
    (tmp_path / "shop").mkdir()
    for name, text in {**own, "shop/__init__.py": "", **written()}.items():
        (tmp_path / name).write_text(text)
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "shop_settings",
        "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}",
        "SHOP_FILE": str(tmp_path / "shop.db"),
        "SHOP_BELAY": url,
    }


def manage(shop: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "django", "belay", *arguments]
    return subprocess.Popen(command, env=shop, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_run_starts_when_the_transaction_commits_and_the_command_works_for_it(shop: dict[str, str]):
    worker = manage(shop, "worker")
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline().endswith("is ready for ship\n")
        done = subprocess.run([sys.executable, "-m", "ask_shop"], env=shop, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, "packed for ana\n{'state': 'completed'}\n"), done.stderr
        worker.send_signal(signal.SIGTERM)
        said, complaints = worker.communicate(timeout=40)
        assert (worker.returncode, "has left" in said) == (0, True), complaints
    finally:
        worker.kill()


def test_the_command_answers_as_belay_does(shop: dict[str, str]):
    prepared = manage(shop, "migrate")
    prepared.communicate(timeout=40)
    assert prepared.returncode == 0
    ran = manage(shop, "show", "r-9")
    _, complaints = ran.communicate(timeout=40)
    assert (ran.returncode != 0, "there is no run r-9" in complaints) == (True, True)


def test_a_missing_setting_is_named(shop: dict[str, str], tmp_path: Path):
    code = "import django; django.setup(); from belay_integrations.django import client; client()"
    (tmp_path / "shop_settings.py").write_text(SETTINGS.replace("BELAY_DATABASE", "OTHER"))
    done = subprocess.run([sys.executable, "-c", code], env=shop, text=True, capture_output=True, check=False)
    assert "ImproperlyConfigured: BELAY_DATABASE must be set, to text" in done.stderr
