"""Certificates for a cluster that talks TLS only: an authority, and one each for scheduler, worker and client.

    python deploy/local/tls/certificates.py certs

Dask does not compare host names: whoever has a certificate of this authority is let in, and nobody else. Keep the
folder private, and give a process only ``ca.pem`` and its own two files. ``ca.key`` is not kept.
"""

import argparse
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

WHO = ("scheduler", "worker", "client")


def make(folder: Path, *, days: int = 365) -> None:
    """Write all certificates and keys into `folder`, which must not have any yet."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / "ca.pem").exists():
        raise SystemExit(f"{folder}: has certificates already; choose another folder, or remove them")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = certificate("snmf_dist", authority_key, None, authority_key, days=days)
    for who in WHO:
        key = ec.generate_private_key(ec.SECP256R1())
        write(folder / f"{who}.key", private(key))
        write(folder / f"{who}.pem", certificate(who, key, authority, authority_key, days=days))
    write(folder / "ca.pem", authority)
    lines = ["distributed:", "  comm:", "    require-encryption: true", "    tls:"]
    lines.append(f"      ca-file: {(folder / 'ca.pem').resolve()}")
    for who in WHO:
        place = (folder / who).resolve()
        lines += [f"      {who}:", f"        cert: {place}.pem", f"        key: {place}.key"]
    (folder / "dask.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def certificate(name: str, key: ec.EllipticCurvePrivateKey, authority: bytes | None, signer: object, *, days: int):
    """A certificate in PEM; its own authority if none is given."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject if authority is None else x509.load_pem_x509_certificate(authority).subject
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key in PEM."""
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)


def write(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--days", type=int, default=365, help="how long they are valid")
    given = parser.parse_args()
    make(given.folder, days=given.days)
    print(f"{given.folder}: authority, scheduler, worker, client, and dask.yaml that names them")
