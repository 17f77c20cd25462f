"""The licences of what is in the image, as SPDX expressions; what is not known ends the build.

Standard library only. Where a distribution states its licence in words, or a shared library does not state any,
the table here says it; the texts lie beside the packages, in their ``dist-info``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "ISC",
        "LGPL-2.1-or-later",
        "MIT",
        "MPL-2.0",
        "PSF-2.0",
        "Zlib",
        "blessing",
        "bzip2-1.0.6",
    }
)
"""Licences under which the image may be passed on, each on its own or joined by AND."""

_IN_WORDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
}
"""How distributions of ours say it that have no SPDX expression."""

_BY_NAME = {
    "jinja2": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "python-dateutil": "Apache-2.0 AND BSD-3-Clause",
}
"""Distributions that do not state their licence, or not exactly; the text lies beside the package."""

INTERPRETER = "PSF-2.0"

_LIBRARIES = {
    "ld-linux": "LGPL-2.1-or-later",
    "libbz2": "bzip2-1.0.6",
    "libc": "LGPL-2.1-or-later",
    "libcom_err": "MIT",
    "libcrypt": "LGPL-2.1-or-later",
    "libcrypto": "Apache-2.0",
    "libdl": "LGPL-2.1-or-later",
    "libexpat": "MIT",
    "libffi": "MIT",
    "libgcc_s": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgfortran": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgssapi_krb5": "MIT",
    "libk5crypto": "MIT",
    "libkeyutils": "LGPL-2.1-or-later",
    "libkrb5": "MIT",
    "libkrb5support": "MIT",
    "liblzma": "0BSD",
    "libm": "LGPL-2.1-or-later",
    "libmvec": "LGPL-2.1-or-later",
    "libnsl": "LGPL-2.1-or-later",
    "libpthread": "LGPL-2.1-or-later",
    "libpython3": "PSF-2.0",
    "libquadmath": "LGPL-2.1-or-later",
    "libresolv": "LGPL-2.1-or-later",
    "librt": "LGPL-2.1-or-later",
    "libscipy_openblas64_": "BSD-3-Clause",
    "libsqlite3": "blessing",
    "libssl": "Apache-2.0",
    "libstdc++": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libtirpc": "BSD-3-Clause",
    "libutil": "LGPL-2.1-or-later",
    "libuuid": "BSD-3-Clause",
    "libz": "Zlib",
}
"""Shared libraries of the base images, and those that wheels bring along, without version and suffix."""


class UnknownLicenceError(Exception):
    """The licence of a part is not known, or is none under which the image may be passed on."""


def of_distribution(distribution: Distribution) -> str:
    """Return the licence of an installed distribution.

    Raises:
        UnknownLicenceError: see there.
    """
    metadata = distribution.metadata.json
    known = _BY_NAME.get(distribution.name.lower())
    stated = known or metadata.get("license_expression") or metadata.get("license") or ""
    return checked(distribution.name, _IN_WORDS.get(str(stated), str(stated)))


def of_library(name: str) -> str:
    """Return the licence of a shared library, given the name of its file.

    Raises:
        UnknownLicenceError: see there.
    """
    base = re.sub(r"(-[0-9a-f]{8}|-x86-64|-aarch64|\.|-[0-9]).*", "", name)
    return checked(name, _LIBRARIES.get(base, ""))


def checked(name: str, expression: str) -> str:
    """Return ``expression`` if all its parts are allowed.

    Raises:
        UnknownLicenceError: one is not.
    """
    wrong = [part for part in _parts(expression) if part not in ALLOWED]
    if wrong:
        raise UnknownLicenceError(f"{name}: its licence is {expression or 'not known'}")
    return expression


def _parts(expression: str) -> Iterable[str]:
    return expression.split(" AND ")
