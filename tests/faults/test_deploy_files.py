"""The files for deploying are true: their commands start what they say, and what they name is there."""

import asyncio
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from governance.conf import GovernanceSettings
from scripts.servers import free_port
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.fork_server import ROOT
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync
from turns.conf import TurnsSettings
from webchat.conf import WebchatSettings

UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
EXIT_BOUND = TurnsSettings.DRAIN_GRACE + 10


def procfile() -> dict[str, str]:
    lines = (ROOT / "Procfile").read_text("utf-8").splitlines()
    return {name: command.strip() for name, _, command in (line.partition(":") for line in lines)}


def start(site: Site, name: str, command: str) -> None:
    words = shlex.split(command.replace("${PORT:-8000}", str(site.ports.setdefault(name, 0))))
    assert words[0] == "python"
    site._start(name, words[1:], role="runner")


@pytest.mark.timeout(600)
def test_the_procfile_starts_a_site(scaled: MakeSite):
    site = scaled()
    client = site.client("web")
    commands = procfile()
    assert set(commands) == {"release", "web", "runner"}
    for name, command in commands.items():
        start(site, name, command)
    assert site.processes["release"].wait(within=60) == 0

    def is_ready() -> bool:
        try:
            return httpx.get(f"{site.url('web')}/readyz", trust_env=False, timeout=5).is_success
        except httpx.TransportError:
            return False

    eventually_sync(is_ready, timeout=LONG_PATIENCE)
    turn = client.say(client.converse(), "help")
    assert client.until_ended(turn, within=PATIENCE)["status"] == "completed"
    assert site.owner_of(turn).name == "runner"


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name
)
def test_a_unit_starts_what_the_procfile_does(unit: Path):
    text = unit.read_text("utf-8")
    [command] = re.findall(r"^ExecStart=\S+/\.venv/bin/python (.+)$", text, re.MULTILINE)
    known = {line.partition(" ")[2] for line in procfile().values()}
    words = shlex.split(command)
    assert words[0] == "manage.py"
    assert words[1] in ("serve", "runner", "prune")
    if words[1] == "serve":
        [web] = [line for line in known if "serve" in line]
        options = {word for word in shlex.split(web) if word.startswith("--")}
        assert options <= set(words)
    if "oneshot" not in text:
        [limit] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        assert int(limit) > EXIT_BOUND
        assert "\nLimitNOFILE=" in text  # systemd's own is 1,024


def test_the_image_starts_what_the_procfile_does():
    image = (ROOT / "Dockerfile").read_text("utf-8")
    [command] = re.findall(r"^CMD (\[.+\])$", image, re.MULTILINE)
    assert json.loads(command) == shlex.split(procfile()["web"].replace("${PORT:-8000}", "8000"))


def test_compose_gives_everybody_time_and_names_what_there_is():
    text = (ROOT / "compose.yaml").read_text("utf-8")
    assert int(re.findall(r"stop_grace_period: (\d+)s", text)[0]) > EXIT_BOUND
    services = re.findall(r"^  ([\w-]+):", text.partition("\nservices:")[2], re.MULTILINE)
    assert {"web-1", "web-2", "runner-1", "runner-2", "postgres", "redis", "proxy"} <= {*services}
    proxy = (ROOT / "deploy" / "Caddyfile").read_text("utf-8")
    assert {name for name in services if name.startswith("web-")} == {*re.findall(r"web-\d", proxy)}
    for path in re.findall(r"- \./(\S+?):", text):
        assert (ROOT / path).exists(), path
    joined = ", ".join(re.findall(r"^ +networks: \[(.+)\]$", text, re.MULTILINE)).split(", ")
    networks = text.partition("\nnetworks:")[2].partition("\nvolumes:")[0]
    made = re.findall(r"^  (\w+):", networks, re.MULTILINE)
    assert {*joined} <= {*made}  # podman-compose makes no network that is not named


def test_the_containers_are_told_settings_that_exist_and_all_of_the_file():
    compose = (ROOT / "compose.yaml").read_text("utf-8").partition("\nservices:")[0]
    image = (ROOT / "Dockerfile").read_text("utf-8")
    told = {
        *re.findall(r"^    ([A-Z_]+): ", compose, re.MULTILINE),
        *re.findall(r"(\w+)=", "".join(re.findall(r"^ENV (?!PYTHON)(.+)", image, re.MULTILINE))),
    }
    read = re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', (ROOT / "config/settings.py").read_text("utf-8"))
    apps = (GovernanceSettings, TurnsSettings, WebchatSettings)
    read += [setting.full_name for app in apps for setting in app.DECLARED.values()]
    assert {"SECRET_KEY", "DATABASE_URL", "VAR_DIR"} <= told <= {*read}
    assert "\n  env_file: .env\n" in compose


def test_the_web_processes_answer_to_the_names_by_which_they_are_scraped():
    guide = (ROOT / "docs/howto/deploy.md").read_text("utf-8")
    compose = (ROOT / "compose.yaml").read_text("utf-8")
    [allowed] = re.findall(r"^    ALLOWED_HOSTS: (.+)$", compose, re.MULTILINE)
    [scraped] = re.findall(r"scheme: http\n(?:    .+\n)*?    static_configs: (.+)", guide)
    hosts = re.findall(r'"([^"]+):8000"', scraped)
    assert hosts
    assert {*hosts} <= {*allowed.split(",")}


def test_the_image_is_made_of_files_that_exist():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()}
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path.partition("/")[0] in kept, path


def test_every_container_is_closed_and_the_stores_want_passwords():
    text = (ROOT / "compose.yaml").read_text("utf-8")
    listed = text.partition("\nservices:")[2].partition("\nnetworks:")[0]
    services = re.split(r"^  (?=[\w-]+:)", listed, flags=re.MULTILINE)
    for service in filter(str.strip, services):
        own = re.search(r"<<: \*(\w+)|: \*(\w+)$", service, re.MULTILINE)
        assert own, service
        assert own[1] or own[2] in ("closed", "site", "web")
    closed = text.partition("x-closed: &closed\n")[2].partition("\n\n")[0]
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", "pids_limit:"):
        assert line in closed
    assert "x-site: &site\n  <<: *closed" in text
    assert "redis://:${REDIS_PASSWORD:?" in text
    assert "requirepass" in text
    assert "internal: true" in text


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name
)
def test_a_unit_keeps_its_process_in(unit: Path):
    lines = unit.read_text("utf-8").splitlines()
    wanted = {"NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "UMask=0077"}
    assert wanted <= set(lines)
    # Of these each would keep bubblewrap from making a sandbox.
    breaking = {"RestrictNamespaces", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc"}
    found = {line.partition("=")[0] for line in lines} & breaking
    assert found == (set() if "runner" in unit.name else breaking)


def test_a_redis_with_a_password_works_as_compose_starts_it(tmp_path: Path):
    """The password goes in by the environment and comes out of `REDIS_URL`. A stop reaches Redis itself."""
    text = (ROOT / "compose.yaml").read_text("utf-8")
    [script] = re.findall(r"""command: \["sh", "-c", '(.+)'\]""", text)
    port = free_port()
    script = script.replace("$$", "$").replace("/data", str(tmp_path))
    script += f" --port {port} --bind 127.0.0.1"
    environment = {"PATH": os.environ["PATH"], "REDISCLI_AUTH": "s3cret"}
    with subprocess.Popen(
        ["sh", "-c", script], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as server:
        try:
            with Redis(port=port, password="s3cret", retry=Retry(NoBackoff(), 0)) as redis:
                eventually_sync(lambda: answers(redis), timeout=PATIENCE)
            with Redis(port=port) as stranger, pytest.raises(AuthenticationError):
                stranger.ping()
            url = f"redis://:s3cret@127.0.0.1:{port}/0"
            assert asyncio.run(through(url)) == {"type": "said"}
        finally:
            server.terminate()
        assert server.wait(PATIENCE) == 0
    with pytest.raises(RedisConnectionError), Redis(port=port, retry=Retry(NoBackoff(), 0)) as gone:
        gone.ping()


def answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except RedisConnectionError:
        return False


async def through(url: str) -> dict[str, str]:
    """Send something through the channel layer of the site."""
    layer = RedisPubSubChannelLayer(hosts=[url])
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "said"})
    received: dict[str, str] = await layer.receive(channel)
    await layer.flush()
    return received
