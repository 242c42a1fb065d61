"""Build the image, and run the small job with scheduler, two workers and client in containers of their own.

    python deploy/container/run.py build      # buildah; the base is made from Debian's packages by debootstrap
    python deploy/container/run.py smoke      # podman; in a network namespace that has loopback only

Both must be run as root and need no registry. What a killed run left is found by the next one, which says so and
removes it. With a registry and Docker, see README.md.
"""

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
scratch = runpy.run_path(str(ROOT / "deploy" / "scratch.py"))["scratch"]
IMAGE, BASE = "localhost/snmf-dist", "localhost/debian-python"
BEGINS = "snmf-smoke-"  # the names of containers and network namespaces; the number of the process follows
NAME = f"{BEGINS}{os.getpid()}"
PROGRAMS = ("buildah", "podman", "runc", "ip")
STORAGE = ["--storage-driver", os.environ.get("STORAGE_DRIVER", "overlay")]
PODMAN = ["podman", "--cgroup-manager", "cgroupfs", "--runtime", "runc", *STORAGE]
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]  # those of root are more than it may set
SAFE = ["--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
ADDRESS = "tcp://127.0.0.1:8786"
WORKERS = 2
WAIT = 120.0  # seconds for workers to register


def why_not() -> str:
    """What is missing here to build and run; nothing if both can be done."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        needs = "apt-get install buildah podman runc iproute2, and /usr/sbin on the PATH"
        return f"{', '.join(missing)} not found (Debian: {needs})"
    if os.geteuid() != 0:
        return "network namespaces and chroot builds need root"
    if not has_image(BASE) and shutil.which("debootstrap") is None:
        return "there is no base image, and no debootstrap to make one (Debian: apt-get install debootstrap)"
    return ""


def has_image(name: str) -> bool:
    """Whether an image is in the store of this machine."""
    return subprocess.run([*PODMAN, "image", "exists", name], capture_output=True).returncode == 0


def quietly(command: list[str]) -> None:
    """Run a command that says much, and show the end of that if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stdout[-2000:]}")


def build() -> None:
    """Build the image; layers that did not change are used again."""
    bud = ["buildah", *STORAGE, "bud", "--layers", "--isolation", "chroot", "--network", "host"]
    if not has_image(BASE):
        packages = "python3,python3-venv,ca-certificates"
        with scratch("base") as folder:
            command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", f"{folder}/root"]
            quietly(command)
            subprocess.run(["tar", "-C", f"{folder}/root", "-cf", f"{folder}/root.tar", "."], check=True)
            Path(folder, "Containerfile").write_text("FROM scratch\nADD root.tar /\n", encoding="utf-8")
            quietly([*bud, "-t", BASE, "-f", f"{folder}/Containerfile", folder])
    recipe = ["-f", str(ROOT / "deploy" / "container" / "Containerfile"), str(ROOT)]
    certificates = ["-v", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    command = [*bud, *certificates, "--build-arg", f"BASE={BASE}", "-t", IMAGE, *recipe]
    quietly(command)


@contextmanager
def cluster(folder: Path) -> Iterator[list[str]]:
    """Run scheduler and workers in containers; give the command that runs another one beside them."""
    remove_left()
    subprocess.run(["ip", "netns", "add", NAME], check=True)
    try:
        subprocess.run(["ip", "-n", NAME, "link", "set", "lo", "up"], check=True)
        os.chown(folder, 1000, 1000)  # the user in the image
        run = [
            *PODMAN,
            "run",
            "--rm",
            "--network",
            f"ns:/run/netns/{NAME}",
            *LIMITS,
            *SAFE,
            "-v",
            f"{folder}:/data",
        ]
        start(
            run, "scheduler", "dask", "scheduler", "--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:8787"
        )
        for i in range(WORKERS):
            size = ["--nthreads", "1", "--memory-limit", "1500MiB", "--local-directory", "/tmp/spill"]
            place = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", *size]
            start([*run, "--memory", "2g"], f"worker-{i}", "dask", "worker", ADDRESS, *place)
            until = time.monotonic() + WAIT
            while "Registered to" not in logs(f"worker-{i}"):
                if time.monotonic() > until:
                    raise SystemExit(f"worker-{i} did not register: {logs(f'worker-{i}')[-1000:]}")
                time.sleep(0.5)
        yield [*run, "--name", f"{NAME}-client", IMAGE]
    finally:
        remove([name for name in all_names() if name == NAME or name.startswith(f"{NAME}-")])


def start(run: list[str], name: str, *command: str) -> None:
    """Start a container that goes on by itself."""
    subprocess.run(
        [*run, "-d", "--name", f"{NAME}-{name}", IMAGE, *command], check=True, stdout=subprocess.DEVNULL
    )


def logs(name: str) -> str:
    """What a container has written."""
    done = subprocess.run([*PODMAN, "logs", f"{NAME}-{name}"], capture_output=True, text=True)
    return done.stdout + done.stderr


def remove_left() -> None:
    """Remove containers and network namespaces of runs that were killed, and say so."""
    left = sorted({name for name in all_names() if not Path(f"/proc/{name.split('-')[2]}").exists()})
    if left:
        print(f"a killed run left {', '.join(left)}; they are removed", file=sys.stderr)
        remove(left)


def all_names() -> list[str]:
    """The names of the containers and network namespaces of all runs."""
    listed = [*PODMAN, "ps", "-a", "--filter", f"name=^{BEGINS}", "--format", "{{.Names}}"]
    found = subprocess.run(listed, capture_output=True, text=True).stdout.split()
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout.split()
    return found + [name for name in spaces if name.startswith(BEGINS)]


def remove(names: list[str]) -> None:
    """Remove these containers, then these network namespaces."""
    spaces = [name for name in names if name.count("-") == BEGINS.count("-")]
    if containers := [name for name in names if name not in spaces]:
        subprocess.run([*PODMAN, "rm", "-f", "-t", "5", *containers], capture_output=True)
    for name in spaces:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def main() -> None:
    """Parse and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "smoke"])
    given = parser.parse_args()
    if missing := why_not():
        raise SystemExit(missing)
    if given.action == "build":
        build()
        return
    with scratch("container") as folder, cluster(folder) as beside:
        done = subprocess.run([*beside, "snmf-dist", "smoke", "--scheduler", ADDRESS, "--store", "/data"])
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
