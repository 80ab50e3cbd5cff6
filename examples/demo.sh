#!/usr/bin/env bash
# A tour of GoQueue in two minutes on two free cores: a log, a queue, a schedule, a dead letter, a
# transaction, a schema, a crash, and Spark, which archives a topic, replays it and writes a report.
# Everything lives in a temporary folder and is gone afterwards, except the report. `make demo` runs it.
#
# DEMO_PAUSE   seconds to read each part on a terminal (1.5)
# DEMO_REPORT  folder to keep the report in (./demo-report)
# DEMO_PATIENCE  a step that takes longer says what it waits for whenever so many seconds have passed (4)
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
report="${DEMO_REPORT:-$PWD/demo-report}"
work="$(mktemp -d "${TMPDIR:-/tmp}/goqueue-demo.XXXXXX")"
# The first start takes free ports, later ones take them again.
kafka="127.0.0.1:0" http="127.0.0.1:0" registry="127.0.0.1:0"
broker="" producer="" watcher="" part=0 patience="${DEMO_PATIENCE:-4}"
export GOQUEUE_CLI_CONFIG="$work/contexts.yaml"
unset GOQUEUE_SPARK_MASTER # Spark is to run here, whatever the user has elsewhere

bold="" dim="" blue="" plain="" pause=0
if [ -t 1 ]; then
	bold=$'\e[1m' dim=$'\e[2m' blue=$'\e[36m' plain=$'\e[0m' pause="${DEMO_PAUSE:-1.5}"
fi

say() { # a heading with the time since the start, and time to read what stood above it
	sleep "$pause"
	part=$((part + 1))
	printf '\n%s%2d  %s%s  %s[%s]%s\n' "$bold" "$part" "$*" "$plain" "$dim" "$(elapsed)" "$plain"
}

elapsed() {
	printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60))
}

watch() { # from now on say what is waited for, again and again, until `unwatch`
	# Waits in `read`, not in `sleep`: a process that it had started would outlive it.
	(
		exec {never}<> <(:)
		for ((waited = patience; ; waited += patience)); do
			read -rt "$patience" -u "$never" || true
			printf '%s... %d s so far, waiting for: %s%s\n' "$dim" "$waited" "$*" "$plain"
		done
	) &
	watcher=$!
	disown "$watcher"
}

unwatch() { # by a signal that no trap of the shell answers, so that nothing is printed
	[ -z "$watcher" ] || kill -9 "$watcher" 2>/dev/null || true
	watcher=""
}

note() {
	printf '%s%s%s\n' "$dim" "$*" "$plain"
}

show() { # a command as one would type it, and what it prints
	printf '%s$ %s%s\n' "$blue" "$*" "$plain"
	watch "${waits_for:-this command}"
	eval "$*"
	unwatch
	waits_for=""
}

show_refusal() { # a command that must not succeed
	printf '%s$ %s%s\n' "$blue" "$*" "$plain"
	watch "this command"
	if eval "$*" 2>&1; then
		echo "That should have been refused." >&2
		exit 1
	fi
	unwatch
}

note_lag() { # for the report at the end
	watch "the lag to be noted for the report"
	goqueue pipeline run lag --to lag -g billing >/dev/null
	unwatch
}

ask() { # curl, with the end of line that JSON over HTTP does without
	show "curl -s $*"
	echo
}

need() {
	command -v "$1" >/dev/null || { echo "$1 is not on the path; $2" >&2; exit 1; }
}

address_of() { # of a listener, from the file that the broker writes when it serves
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$work/ready" "$1"
}

start_broker() {
	rm -f "$work/ready"
	goqueue serve --data-dir "$work/data" --listen-kafka "$kafka" --listen-http "$http" \
		--listen-registry "$registry" --listen-sqs 127.0.0.1:0 \
		--ready-file "$work/ready" >"$work/broker.log" 2>&1 &
	broker=$!
	disown "$broker" # so that the shell does not comment on its end
	watch "the broker to start and to check its logs"
	until [ -s "$work/ready" ]; do
		kill -0 "$broker" 2>/dev/null || { cat "$work/broker.log" >&2; exit 1; }
		sleep 0.05
	done
	unwatch
	kafka="$(address_of kafka)" http="$(address_of http)" registry="$(address_of registry)"
	export GOQUEUE_BOOTSTRAP="$kafka" GOQUEUE_HTTP="$http"
	note "$(cat "$work/broker.log")"
}

quiet_spark() { # what Spark says of itself goes to a file; scripts that start it read this one first
	mkdir -p "$work/spark"
	echo "exec 2>>'$work/spark.log'" >"$work/spark/spark-env.sh"
	export SPARK_CONF_DIR="$work/spark" SPARK_LOCAL_IP=127.0.0.1
}

hasten_spark() { # each session is short: map its classes if they were prepared, compile them lightly
	classes="$(dirname "$(command -v goqueue)")/../spark-classes.jsa"
	options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
	[ ! -e "$classes" ] || options+=" \"-XX:SharedArchiveFile=$(realpath "$classes")\" -Xlog:disable"
	export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-$options}"
}

clean_up() {
	code=$?
	# A child that is killed right after its start still has this trap.
	[ "$BASHPID" = "$$" ] || return 0
	[ "$code" = 0 ] || [ ! -s "$work/spark.log" ] || tail -n 40 "$work/spark.log" >&2
	unwatch
	[ -z "$producer" ] || kill "$producer" 2>/dev/null || true
	[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true
	rm -rf "$work"
}
trap clean_up EXIT

need goqueue "run \`make demo\`."
need curl "on Debian: apt-get install curl"
need java "Spark runs on Java 17 or newer; on Debian: apt-get install default-jre-headless"
python3 "$here/orders.py" 10000 >"$work/orders.txt"
quiet_spark
hasten_spark
cd "$work"

say "One process, one folder. Nothing else to install or to start."
start_broker

say "A log: ten thousand orders in three partitions; the customer is the key."
show "goqueue topic create orders -p 3 --config retention_ms=7d"
show "head -2 orders.txt"
show "goqueue produce orders -f orders.txt --key-separator : --compression zstd"
if command -v kcat >/dev/null; then
	note "Any Kafka client does the same:"
	show "echo 'customer-42:{\"item\": \"harp\"}' | kcat -P -b $kafka -t orders -K :"
else
	show "goqueue produce orders -k customer-42 -m '{\"item\": \"harp\"}'"
fi
show "goqueue consume orders -n 3 --template '%p@%o  %k  %s\n'"

say "A group remembers how far it is; its lag is what it has still to read."
show "goqueue consume orders --group billing -n 9000 --template '%k\n' | wc -l"
show "goqueue group lag billing"
note_lag

say "A queue, with nothing but curl: receive a message, and acknowledge it."
show "goqueue topic create mails"
ask "$http/v1/topics/mails/publish -d '{\"value\": \"welcome\", \"priority\": \"high\"}'"
ask "$http/v1/groups/post/receive -d '{\"topic\": \"mails\"}' | tee received.json"
receipt_of="grep -o '\"receipt\":\"[^\"]*' received.json | cut -d'\"' -f4"
show "receipt=\$($receipt_of)"
ask "$http/v1/groups/post/ack -d '{\"receipts\": [\"'\$receipt'\"]}'"

say "A schedule: this message appears in three seconds, not earlier, whatever happens meanwhile."
ask "$http/v1/topics/mails/publish -d '{\"value\": \"a reminder\", \"delay_ms\": 3000}'"
show "goqueue schedule list"
show "goqueue queue receive mails --group post --wait 20s --ack"

say "A dead letter: a message that cannot succeed is put aside with its reason, and brought back."
show "goqueue produce mails -k customer-7 -m 'to nowhere'"
show "curl -s $http/v1/groups/post/receive -d '{\"topic\": \"mails\", \"wait_ms\": 9000}' >received.json"
show "receipt=\$($receipt_of)"
show "goqueue queue reject --group post --reason 'no such address' \$receipt"
show "goqueue queue dead-letters mails -o yaml | grep -E '^  (value|reason|attempts|source):'"
note "Somebody has corrected the address:"
show "goqueue queue redrive mails --reason 'no such address'"
show "goqueue queue receive mails --group post --wait 20s --ack"

say "A transaction: what is received and what is made of it count together, or not at all."
note "From examples/all_or_nothing.py:"
sed -n '/^        \[message\]/,/^        print(/{/^        print(/!s/^        //p}' "$here/all_or_nothing.py"
show "python3 $here/all_or_nothing.py $http"

say "A schema: the registry knows what a reading is, and the topic refuses everything else."
echo '{"type": "object", "required": ["celsius"], "properties": {"celsius": {"type": "number"}}}' \
	>reading.json
show "cat reading.json"
show "goqueue schema register readings-value reading.json"
ask "$registry/subjects/readings-value/versions/latest"
show "goqueue topic create readings --config schema.validation=value"
show "printf '\\0\\0\\0\\0\\1{\"celsius\": 21.5}\n' | goqueue produce readings"
show_refusal "printf '\\0\\0\\0\\0\\1{\"celsius\": \"warm\"}\n' | goqueue produce readings"

say "A crash: a producer writes 100,000 more, and half way through the broker is killed, kill -9."
before="$(du -sm data | cut -f1)"
show "goqueue produce orders --count 100000 --size 100 >producer.log 2>&1 &"
producer=$!
watch "the producer to have written half of its records"
until [ "$(du -sm data | cut -f1)" -ge $((before + 5)) ]; do
	kill -0 "$producer" 2>/dev/null || break
	sleep 0.02
done
unwatch
show "kill -9 $broker"
note "The producer keeps trying. The broker starts again on the same folder:"
start_broker
watch "the producer to write the rest of its 100,000 records"
wait "$producer"
unwatch
producer=""
show "cat producer.log"
note "10,000 + 1 + 100,000 records, none lost, none twice:"
waits_for="110,001 records to be read and sorted"
show "goqueue consume orders --template '%p@%o\n' | sort -u | wc -l"
show "goqueue group lag billing"
note_lag

say "Spark archives the topic as Parquet, and reads it again to compare every count and checksum."
waits_for="Spark to start, to archive 110,001 records and to read them again"
show "goqueue pipeline run archive orders --to archive/orders --verify"
show "find archive/orders -name '*.parquet' | head -3"

say "Spark replays the archive into another topic: the same checksum, records where their keys go."
show "goqueue topic create orders-again -p 6"
waits_for="Spark to start, to write 110,001 records in transactions and to compare them"
show "goqueue pipeline run replay --archive archive/orders --to orders-again --run demo"

say "Dead letters by their reason, lag with its forecast, and one page about all of it."
waits_for="Spark to start and to count dead letters"
show "goqueue pipeline run deadletters mails --by reason --by hour --save letters"
show "goqueue consume orders --group billing -n 50000 --template '%o\n' | wc -l"
show "goqueue pipeline run lag --to lag -g billing"
mkdir -p "$report"
show "goqueue pipeline report --to $report/report.html --archive archive/orders --lag lag \\
    --dead-letters letters"

sleep "$pause"
printf '\n%sThat was it, in %s minutes. What to look at:%s\n' "$bold" "$(elapsed)" "$plain"
printf '  %s%s%s\n      %s\n' \
	"$blue" "$report/report.html" "$plain" "the report; open it in a browser" \
	"$blue" "make serve" "$plain" "a broker that stays; its API to try out is at http://127.0.0.1:8080/docs" \
	"$blue" "docs/walkthrough.md" "$plain" "archives and replays with Spark, step by step" \
	"$blue" ".venv/bin/goqueue --help" "$plain" "everything else"
