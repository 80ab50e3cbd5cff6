"""Holds the compose files against the schema of the Compose Specification.

    python -m tools.packages.compose

The schema is in the Go module of the specification, which `make check-deploy` fetches.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import yaml

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
SCHEMAS = REPOSITORY / ".cache" / "go" / "pkg" / "mod" / "github.com" / "compose-spec"


def main() -> int:
    *_, schema = sorted(SCHEMAS.glob("compose-go/v2@*/schema/compose-spec.json"))
    validator = jsonschema.Draft7Validator(json.loads(schema.read_text(encoding="utf-8")))
    problems = 0
    for file in sorted(DEPLOY.glob("compose*.yaml")):
        for error in validator.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8"))):
            problems += 1
            print(f"{file.name}: {error.json_path}: {error.message}", file=sys.stderr)
        print(f"{file.name}: checked")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
