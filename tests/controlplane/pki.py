"""Keys and certificates of one control plane, made at its start and deleted at its end."""

import base64
import datetime as dt
import ipaddress
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=7)


@dataclass(frozen=True)
class Pki:
    """Paths of the files made by `create`."""

    ca_cert: Path
    ca_key: Path
    server_cert: Path
    server_key: Path
    service_account_key: Path
    service_account_public: Path


def create(folder: Path, addresses: list[str]) -> Pki:
    """Make a CA, a serving certificate for these IP addresses, and the ServiceAccount key pair."""
    folder.mkdir(parents=True, exist_ok=True)
    pki = Pki(
        *(folder / name for name in ("ca.crt", "ca.key", "tls.crt", "tls.key", "sa.key", "sa.pub"))
    )
    ca_key, server_key, account_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca = _certificate("controlplane-ca", ca_key.public_key(), "controlplane-ca", ca_key)
    server = _certificate(
        "kube-apiserver", server_key.public_key(), "controlplane-ca", ca_key, addresses
    )
    _write_key(pki.ca_key, ca_key)
    _write_key(pki.server_key, server_key)
    _write_key(pki.service_account_key, account_key)
    pki.ca_cert.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    pki.server_cert.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    pki.service_account_public.write_bytes(
        account_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pki


def sign_token(key_file: Path, claims: Mapping[str, Any], lifetime: float) -> str:
    """Sign a JSON web token as the API server would; a negative lifetime makes an expired one."""
    key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = int(time.time())
    times = {"iat": now - 3600, "nbf": now - 3600, "exp": int(now + lifetime)}
    parts = [_base64({"alg": "ES256", "typ": "JWT"}), _base64({**claims, **times})]
    signature = key.sign(".".join(parts).encode(), ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(signature)
    parts.append(_encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")))
    return ".".join(parts)


def _certificate(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    addresses: list[str] | None = None,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    is_ca = addresses is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )
    if addresses is not None:
        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            # The traditional format: the ServiceAccount key reader of Kubernetes knows no PKCS 8
            # for elliptic curves in all versions.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _base64(value: Mapping[str, Any]) -> str:
    return _encode(json.dumps(value, separators=(",", ":")).encode())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
