"""Made-up orders, one per line: a customer, a colon, and the order as JSON.

python examples/orders.py 1000 | goqueue produce orders --key-separator :
"""

from __future__ import annotations

import json
import random
import sys

CITIES = ("Lisbon", "Oslo", "Nairobi", "Kyoto", "Lima", "Toronto")
ITEMS = ("lamp", "chair", "kettle", "atlas", "violin")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rng = random.Random(7)
    for number in range(1, count + 1):
        order = {
            "order": number,
            "item": rng.choice(ITEMS),
            "price": round(rng.uniform(5, 500), 2),
            "city": rng.choice(CITIES),
        }
        sys.stdout.write(f"customer-{rng.randrange(100):02}:{json.dumps(order)}\n")


if __name__ == "__main__":
    main()
