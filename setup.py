"""The compiled parts; everything else about the package is in pyproject.toml.

The decoder and the encoder of records are optional: where there is no compiler the install goes on
without them, and `decode_reference.py` and `encode_reference.py` do the same work.
"""

from setuptools import Extension, setup

MODEL = "src/goqueue/model"

setup(
    ext_modules=[
        Extension(
            "goqueue.model._decode",
            [f"{MODEL}/_decode.c"],
            depends=[
                f"{MODEL}/_decode_reading.h",
                f"{MODEL}/_decode_checksums.h",
                f"{MODEL}/_decode_columns.h",
                f"{MODEL}/_decode_json.h",
            ],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "goqueue.model._encode",
            [f"{MODEL}/_encode.c"],
            depends=[f"{MODEL}/_encode_columns.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
