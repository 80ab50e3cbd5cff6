"""What deployments say about settings, held against the settings that there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from goqueue.cli.access import VARIABLES
from goqueue.config import SETTINGS, Settings, load
from goqueue.config.reading import FILE_VARIABLE

REPOSITORY = Path(__file__).parents[3]
DEPLOY = REPOSITORY / "deploy"
OF_IMAGE = DEPLOY / "goqueue.yaml"  # the settings file in the image

OF_SETTINGS = {name for setting in SETTINGS.values() for name in setting.variables}
# Read by the command line, and by the provisioning of Grafana.
OF_COMMANDS = {"GOQUEUE_BOOTSTRAP", "GOQUEUE_HTTP", *VARIABLES.values()}
OF_GRAFANA = {"GOQUEUE_PROMETHEUS_URL", "GOQUEUE_DASHBOARDS"}


def unknown(variables: Mapping[str, object]) -> set[str]:
    """Those that look like ours and that nothing reads."""
    ours = {name for name in variables if name.startswith("GOQUEUE_")}
    return ours - OF_SETTINGS - OF_COMMANDS - OF_GRAFANA - {FILE_VARIABLE}


def settings_of(variables: Mapping[str, object], file: Path = OF_IMAGE) -> Settings:
    """The settings of a node in a container; names and values that are wrong raise."""
    assert not unknown(variables)
    return load(environ={name: str(value) for name, value in variables.items()}, file=file)
