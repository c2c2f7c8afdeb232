"""What a deploy refuses: a clear line, and nothing that it touched."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from deployed import DeployedHost
from support import ROOT

pytestmark = pytest.mark.integration


def one_line(output: str) -> str:
    return " ".join(output.split())


def assert_untouched(host: DeployedHost) -> None:
    assert not (host.root / "app" / "releases").exists()
    assert not (host.root / "app" / "pm2" / "pm2.pid").exists()


def sample_with(tmp_path: Path, **package: object) -> Path:
    """The sample application with other values in its package.json."""
    source = ROOT / "roles" / "strapi" / "files" / "sample"
    content = {**json.loads((source / "package.json").read_text()), **package}
    (tmp_path / "package.json").write_text(json.dumps(content))
    (tmp_path / "package-lock.json").write_bytes((source / "package-lock.json").read_bytes())
    return tmp_path


# The first, as long as the host is bare.
def test_check_mode_on_a_bare_host_promises_and_touches_nothing(host: DeployedHost) -> None:
    done = host.run("ansible-playbook", "-i", str(host.inventory), "deploy.yml", "--check", "--diff")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "would be built" in done.stdout
    assert "+instances: 2" in done.stdout
    assert not (host.root / "app").exists()


def test_a_directory_that_is_no_strapi_application(host: DeployedHost, tmp_path: Path) -> None:
    done = host.playbook("deploy.yml", strapi_source=str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is no Strapi application" in one_line(done.stdout)
    assert_untouched(host)


@pytest.mark.parametrize("method", ["existing", "wheel", "auto"])
def test_a_node_version_outside_engines(host: DeployedHost, tmp_path: Path, method: str) -> None:
    source = sample_with(tmp_path, engines={"node": "<10"})
    done = host.playbook("deploy.yml", strapi_source=str(source), nodejs_method=method)
    assert done.returncode == 2
    assert "The application runs on Node.js <10 (its package.json says so)" in one_line(done.stdout)
    assert not (host.root / "nodejs" / "bin").exists()
    assert_untouched(host)


def test_a_package_manager_that_the_role_does_not_know(host: DeployedHost, tmp_path: Path) -> None:
    done = host.playbook("deploy.yml", strapi_source=str(sample_with(tmp_path, packageManager="bun@1.2.0")))
    assert done.returncode == 2
    assert "names the package manager bun@1.2.0, and npm, yarn or pnpm with an exact version" in one_line(done.stdout)
    assert_untouched(host)


@pytest.mark.parametrize("name", ["../../evil", "a;touch OWNED", "$(touch OWNED)", "a\nb", "", "-x", "x" * 65])
def test_a_name_that_would_be_run_or_lead_elsewhere(host: DeployedHost, name: str) -> None:
    done = host.playbook("deploy.yml", strapi_app_name=name)
    assert done.returncode == 2
    assert "pm2, systemd and files go by it: use letters, digits" in one_line(done.stdout)
    assert not list(host.root.rglob("OWNED"))
    assert_untouched(host)


def test_a_package_whose_names_would_be_run(host: DeployedHost, tmp_path: Path) -> None:
    hostile = "$(touch OWNED)`touch OWNED`;touch OWNED {{ lookup('pipe', 'touch OWNED') }}"
    source = sample_with(tmp_path, name=hostile, packageManager=f"npm@{hostile}", engines={"node": hostile})
    done = host.playbook("deploy.yml", strapi_source=str(source))
    assert done.returncode == 2
    assert "package.json" in one_line(done.stdout)
    assert not [place for place in (host.root, ROOT) if list(place.glob("OWNED"))]
    assert not list(host.root.rglob("OWNED"))
    assert_untouched(host)


def test_a_port_that_another_process_holds(host: DeployedHost) -> None:
    with socket.create_server(("127.0.0.1", host.port)):
        done = host.playbook("deploy.yml")
    assert done.returncode == 2
    assert f"Port {host.port} is taken by" in one_line(done.stdout)
    assert_untouched(host)


def test_several_instances_on_an_sqlite_file_that_was_not_made_for_it(host: DeployedHost) -> None:
    done = host.playbook("deploy.yml", strapi_sqlite_multi_process=False)
    assert done.returncode == 2
    assert "2 instances would share one SQLite file" in one_line(done.stdout)
    assert_untouched(host)


def test_recommend_without_a_deployed_application(host: DeployedHost) -> None:
    done = host.tuner("recommend")
    assert done.returncode == 2
    assert "no application 'strapi' runs under pm2 on itest; deploy it first" in done.stderr
    assert not host.written.exists()


# The last, since it leaves directories behind.
def test_an_install_script_that_asks_git_for_what_an_empty_repository_lacks(host: DeployedHost, tmp_path: Path) -> None:
    # It runs before anything is fetched, sets something in the repository, and is told that there is no commit in it.
    source = sample_with(
        tmp_path,
        packageManager="yarn@1.22.22",
        scripts={"preinstall": "git config core.hooksPath hooks && git rev-parse HEAD"},
    )
    (source / "package-lock.json").unlink()
    done = host.playbook("deploy.yml", strapi_source=str(source))
    assert done.returncode == 2
    assert "yarn-classic could not install the application's packages: " in one_line(done.stdout)
    assert "fatal: ambiguous argument 'HEAD'" in one_line(done.stdout)
    assert list((host.root / "app" / "releases").iterdir()) == []
    assert not (host.root / "app" / "pm2" / "pm2.pid").exists()
