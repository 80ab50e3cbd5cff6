"""The one compiled part; everything else about the package is in pyproject.toml.

The decoder of records is optional: where there is no compiler the install goes on without it, and
`goqueue/model/decode_reference.py` does the same work.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "goqueue.model._decode",
            ["src/goqueue/model/_decode.c"],
            depends=["src/goqueue/model/_decode_reading.h", "src/goqueue/model/_decode_json.h"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
