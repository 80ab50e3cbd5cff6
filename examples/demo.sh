#!/usr/bin/env bash
# A tour of GoQueue in about a minute: a broker, a topic, messages, a group, a crash.
# Everything lives in a temporary folder and is gone afterwards. `make demo` runs it.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
address="127.0.0.1:0" # the first start takes a free port, later ones take it again
broker=""
export GOQUEUE_CLI_CONFIG="$work/contexts.yaml"

bold="" dim="" blue="" plain="" pause=0
if [ -t 1 ]; then
	bold=$'\e[1m' dim=$'\e[2m' blue=$'\e[36m' plain=$'\e[0m' pause="${DEMO_PAUSE:-1.5}"
fi

say() { # a heading, and time to read what stood above it
	sleep "$pause"
	printf '\n%s%s%s\n' "$bold" "$*" "$plain"
}

show() { # a command as one would type it, and what it prints
	printf '%s$ %s%s\n' "$blue" "$*" "$plain"
	eval "$*"
}

start_broker() {
	rm -f "$work/ready"
	goqueue serve --data-dir "$work/data" --listen-kafka "$address" --listen-http 127.0.0.1:0 \
		--listen-registry 127.0.0.1:0 --ready-file "$work/ready" >"$work/broker.log" 2>&1 &
	broker=$!
	disown "$broker" # so that the shell does not comment on its end
	until [ -s "$work/ready" ]; do
		kill -0 "$broker" 2>/dev/null || { cat "$work/broker.log" >&2; exit 1; }
		sleep 0.05
	done
	address="$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kafka"])' "$work/ready")"
	export GOQUEUE_BOOTSTRAP="$address"
	printf '%s%s%s\n' "$dim" "$(cat "$work/broker.log")" "$plain"
}

clean_up() {
	[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true
	rm -rf "$work"
}
trap clean_up EXIT

command -v goqueue >/dev/null || { echo "goqueue is not on the path; run \`make demo\`." >&2; exit 1; }
python3 "$here/orders.py" 10000 >"$work/orders.txt"
cd "$work"

say "1. One process, one folder. Nothing else to install or to start."
start_broker

say "2. A topic, and ten thousand orders; the customer is the key."
show "goqueue topic create orders -p 3 --config retention_ms=7d"
show "head -2 orders.txt"
show "goqueue produce orders -f orders.txt --key-separator : --compression zstd"
show "goqueue produce orders -k customer-42 -m '{\"item\": \"harp\"}'"

say "3. Read it back: some of it, as text, as JSON, from a point in time."
show "goqueue consume orders -n 3 --template '%p@%o  %k  %s\n'"
show "goqueue consume orders -p 0 --from 5m -n 1 --format json"

say "4. A group remembers how far it is; its lag is what it has still to read."
show "goqueue consume orders --group billing -n 7000 --format raw | wc -c"
show "goqueue group lag billing"
show "goqueue group reset-offsets billing --topic orders --by-duration 2h --dry-run"

say "5. A producer writes 300,000 more, and half way through the broker is killed with kill -9."
show "goqueue produce orders --count 300000 --size 100 >producer.log 2>&1 &"
producer=$!
until [ "$(du -sm data | cut -f1)" -ge 15 ]; do
	kill -0 "$producer" 2>/dev/null || break
	sleep 0.02
done
show "kill -9 $broker"
printf '%sThe producer keeps trying. The broker starts again on the same folder:%s\n' "$dim" "$plain"
start_broker
wait "$producer"
show "cat producer.log"

say "6. 10,000 + 1 + 300,000 records, in three partitions: none is lost, none came twice."
show "goqueue topic describe orders | sed -n 1,6p"
show "goqueue consume orders --template '%p@%o\n' | sort -u | wc -l"
show "goqueue group lag billing"

say "That was it. \`goqueue --help\` shows the rest; \`make serve\` starts a broker that stays."
