"""The compiled parts; everything else about the package is in pyproject.toml.

They are optional: where there is no compiler the install goes on without them, and modules in plain
Python do the same work, `decode_reference.py` for `_decode.c` and so on.
"""

from setuptools import Extension, setup

MODEL = "src/goqueue/model"
KAFKA = "src/goqueue/wire/kafka"
RUNTIME = "src/goqueue/runtime"

setup(
    ext_modules=[
        Extension(
            "goqueue.model._decode",
            [f"{MODEL}/_decode.c"],
            depends=[
                f"{MODEL}/_records.h",
                f"{MODEL}/_decode_reading.h",
                f"{MODEL}/_decode_checksums.h",
                f"{MODEL}/_crc.h",
                f"{MODEL}/_decode_columns.h",
                f"{MODEL}/_decode_json.h",
                f"{MODEL}/_search.h",
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
        Extension(
            "goqueue.model._runs",
            [f"{MODEL}/_runs.c"],
            depends=[f"{MODEL}/_crc.h", f"{MODEL}/_records.h", f"{MODEL}/_search.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "goqueue.wire.kafka._requests",
            [f"{KAFKA}/_requests.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "goqueue.runtime._turns",
            [f"{RUNTIME}/_turns.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
