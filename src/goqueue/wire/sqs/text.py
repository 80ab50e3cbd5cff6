"""Which text SQS carries: what XML can say."""

from __future__ import annotations

import re

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
