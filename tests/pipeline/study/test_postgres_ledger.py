"""A ledger on a shared PostgreSQL server: encrypted, with roles that have no more rights than needed."""

from __future__ import annotations

import datetime
import ipaddress
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from pipeline.ledger import postgres as postgres_module
from pipeline.ledger.database import Database, LedgerUnavailableError
from pipeline.ledger.ledger import Ledger, NewSlide
from tests.postgres import Postgres
from training.foundation.errors import BadRecipeError, UnreadableError


def certificate(folder: Path, server: Postgres, address: str = "127.0.0.1") -> Path:
    """Self-signed certificate for a server with this address, with its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = folder / "server.key"
    plain = serialization.NoEncryption()
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )
    for parent in [folder, *folder.parents][:4]:
        parent.chmod(parent.stat().st_mode | 0o011)
    server.give(private)
    return path


@pytest.fixture
def encrypted(postgres, tmp_path) -> Path:
    """Give the server a certificate, and return it."""
    path = certificate(tmp_path, postgres)
    postgres.set_option("ssl_cert_file", str(path))
    postgres.set_option("ssl_key_file", str(tmp_path / "server.key"))
    postgres.set_option("ssl", "on")
    yield path
    for name in ("ssl", "ssl_cert_file", "ssl_key_file"):
        postgres.execute("postgres", f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


def is_encrypted(url: str) -> bool:
    database = Database(url)
    try:
        with database.read() as connection:
            return bool(connection.scalar(text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")))
    finally:
        database.close()


def test_the_connection_is_encrypted_and_the_server_is_who_it_says_it_is(postgres, encrypted, tmp_path):
    url = postgres.new_database()
    assert is_encrypted(f"{url}?sslmode=verify-full&sslrootcert={encrypted}")
    assert is_encrypted(f"{url}?sslmode=require")
    assert not is_encrypted(f"{url}?sslmode=disable")
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other", postgres)
    for strangers in (f"?sslmode=verify-full&sslrootcert={other}", "?sslmode=verify-full"):
        with pytest.raises(UnreadableError, match=r"no encrypted connection.*certificate verify failed"):
            Database(url + strangers)
    with pytest.raises(UnreadableError, match="Hostname mismatch"):
        Database(f"{url.replace('127.0.0.1', 'localhost')}?sslmode=verify-full&sslrootcert={encrypted}")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmod=require", "unknown in a PostgreSQL URL: sslmod"),
        ("sslmode=require&sslmode=disable", "once each"),
        ("sslmode=perhaps", "sslmode=perhaps"),
        ("sslmode=require&sslrootcert=/x", "with a certificate"),
        ("host=elsewhere", "host names the folder of a socket"),
        ("host=/run&sslmode=require", "is the only parameter"),
        ("sslrootcert=/nowhere/ca.pem", "sslrootcert=/nowhere/ca.pem: cannot be used: No such file"),
    ],
)
def test_an_encryption_that_cannot_be_is_refused_before_anybody_is_asked(query, said):
    with pytest.raises(BadRecipeError, match=said):
        Database(f"postgresql://ada@127.0.0.1:1/x?{query}")


def test_a_server_of_this_machine_is_reached_by_its_socket(postgres):
    name = postgres.new_database().rpartition("/")[2]
    database = Database(f"postgresql://postgres@:{postgres.port}/{name}?host={postgres.folder}")
    with database.read() as connection:
        assert connection.scalar(text("SELECT inet_server_addr()")) is None
    database.close()


def test_a_client_that_is_cut_off_within_a_write_does_not_stop_the_others(postgres, monkeypatch):
    monkeypatch.setattr(postgres_module, "IDLE_S", 1)
    url = postgres.new_database()
    cut_off, other = Ledger(Database(url)), Ledger(Database(url))
    other.begin("s", {"question": "?"}, "0" * 64, [NewSlide("S-1")], ("ingest",), actor="ada")

    def write_and_fall_silent() -> None:
        with cut_off.database.write() as connection:
            connection.execute(text("SELECT * FROM study FOR UPDATE"))
            start = time.monotonic()
            assert other.set_state("s", "paused", actor="ada", why="x")
            assert time.monotonic() - start < 20
            connection.execute(text("SELECT 1"))

    with pytest.raises(LedgerUnavailableError):
        write_and_fall_silent()
    with cut_off.database.read() as connection:
        time.sleep(1.5)
        assert connection.scalar(text("SELECT state FROM study WHERE study_id = 's'")) == "paused"
    cut_off.database.close()
    other.database.close()
