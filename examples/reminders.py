"""Coroutines and schedules: messages that appear later, and can be moved or taken back.

python examples/reminders.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from goqueue import AsyncClient, ReceivedMessage


async def main(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.topics.create("reminders")
        meeting = await client.publish("reminders", "meeting", delay=timedelta(hours=3))
        dentist = await client.publish("reminders", "dentist", delay=timedelta(days=200))
        print(f"{await client.schedules.count(topic='reminders')} reminders wait")

        soon = await client.publish("reminders", "drink tea", delay=0.3)
        await client.schedules.reschedule(meeting.schedule_id or "", delay=0.6)
        await client.schedules.cancel(dentist.schedule_id or "")

        consumer = client.consumer("reminders", group="phone")

        @consumer.handler
        async def remind(message: ReceivedMessage) -> None:
            early = message.timestamp_ms < (soon.deliver_at_ms or 0)
            print(f"{message.text}{' (too early!)' if early else ''}")
            if message.text == "meeting":
                consumer.stop()

        await consumer.run()
        print(f"{await client.schedules.count(topic='reminders')} reminders wait")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080"))
