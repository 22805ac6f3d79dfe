"""belay in a Django project, as its processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
import os
SECRET_KEY = "x"
INSTALLED_APPS = ["belay_integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_FILE"]}}
BELAY_DATABASE = os.environ["SHOP_BELAY"]
BELAY_APP = "shop_flows:greeting"
USE_TZ = True
"""
FLOWS = """
from django.conf import settings
from belay_core import Context, workflow
assert settings.configured

@workflow("greeting")
async def greeting(ctx: Context, name: str) -> str:
    return f"hello {name}"
"""
SHOP = """
import django
django.setup()
from django.db import connection, transaction
from belay_integrations.django import client
from shop_flows import greeting

with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE IF NOT EXISTS orders (name text)")


def order(name, fail):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [name])
        transaction.on_commit(lambda: client().start(greeting, name, idempotency_key=f"order-{name}"))
        if fail:
            raise ValueError(name)


order("ana", fail=False)
try:
    order("bob", fail=True)
except ValueError:
    pass
assert client().find("order-bob") is None
print(client().find("order-ana", greeting).result())
"""


@pytest.fixture
def shop(tmp_path: Path, url: str) -> dict[str, str]:
    for name, text in [("shop_settings", SETTINGS), ("shop_flows", FLOWS), ("shop", SHOP)]:
        (tmp_path / f"{name}.py").write_text(text)
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
        assert worker.stdout.readline().endswith("is ready for greeting\n")
        done = subprocess.run([sys.executable, "-m", "shop"], env=shop, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, "hello ana\n"), done.stderr
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
