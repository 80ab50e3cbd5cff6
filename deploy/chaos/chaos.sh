#!/usr/bin/env bash
# Breaks nodes of a running cluster while messages flow, and fails if one that was acknowledged is lost.
#
#   deploy/chaos/chaos.sh compose 120              the three nodes of deploy/compose.yaml
#   deploy/chaos/chaos.sh helm 300                 the pods of a release: RELEASE, NAMESPACE
#   PIDS="11 12 13" deploy/chaos/chaos.sh pids 60  processes of this machine
#
# One fault at a time, on a random node: kill (at once, then start), stop (in order, then start), pause (a
# node that stands still and comes back), cut (no network). FAULTS names those to choose from, SEED repeats
# a run. Messages are written, read and counted by `goqueue bench latency` (GOQUEUE_BOOTSTRAP or -b in
# BENCH_ARGS; RATE messages a second). Afterwards the cluster has to be healthy within HEAL_SECONDS.
set -euo pipefail

target=${1:?"usage: chaos.sh compose|helm|pids SECONDS"}
seconds=${2:?"usage: chaos.sh compose|helm|pids SECONDS"}
here=$(cd "$(dirname "$0")" && pwd)
fault_seconds=${FAULT_SECONDS:-8}   # longer than cluster.session_ms, so that leaders change
rest_seconds=${REST_SECONDS:-15}    # for the node to catch up
heal_seconds=${HEAL_SECONDS:-120}
rate=${RATE:-50}
release=${RELEASE:-goqueue}
namespace=${NAMESPACE:-default}
goqueue=${GOQUEUE:-goqueue}
read -ra bench_args <<< "${BENCH_ARGS:-}"
RANDOM=${SEED:-$$}
echo "seed ${SEED:-$$}"

compose() { docker compose -f "${COMPOSE_FILE:-$here/../compose.yaml}" "$@"; }
kube() { kubectl --namespace "$namespace" "$@"; }
network() { docker inspect --format '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}' "$1"; }
# The network of each container that is cut off, which it no longer has itself.
declare -A networks=()

nodes_compose() { compose ps --services --status running | grep '^node-'; }
faults_compose="kill stop pause cut"
begin_compose() {
  case $1 in
    kill) compose kill --signal KILL "$2" ;;
    stop) compose stop "$2" ;;
    pause) compose pause "$2" ;;
    cut)
      local container; container=$(compose ps --quiet "$2")
      networks[$2]=$(network "$container")
      docker network disconnect "${networks[$2]}" "$container" ;;
  esac
}
end_compose() {
  case $1 in
    kill | stop) compose start "$2" ;;
    pause) compose unpause "$2" ;;
    cut) docker network connect --alias "$2" "${networks[$2]}" "$(compose ps --quiet "$2")" ;;
  esac
}

nodes_helm() { kube get pods --selector "app.kubernetes.io/name=goqueue,app.kubernetes.io/instance=$release" --output name | sed 's|^pod/||'; }
faults_helm="kill stop cut"
begin_helm() {
  case $1 in
    kill) kube delete pod "$2" --force --grace-period 0 ;;
    stop) kube delete pod "$2" --wait=false ;;
    # Needs a network plugin that enforces policies. The policy of the chart allows clients and nodes, and
    # policies add up, so the pod leaves its selector too: the label is what both select by.
    cut)
      kube label pod "$2" app.kubernetes.io/name=goqueue-cut --overwrite
      kube apply --filename - <<POLICY
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: goqueue-chaos}
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: goqueue-cut}}
  policyTypes: [Ingress, Egress]
POLICY
      ;;
  esac
}
end_helm() {
  case $1 in
    kill | stop) kube wait "pod/$2" --for=condition=Ready --timeout "${heal_seconds}s" ;;
    cut)
      kube delete networkpolicy goqueue-chaos
      # A StatefulSet replaces a pod that has left its selector; the old one goes.
      kube delete pod "$2" --ignore-not-found ;;
  esac
}

nodes_pids() { tr ' ' '\n' <<< "${PIDS:?"PIDS names the processes"}"; }
faults_pids="pause"
begin_pids() { kill -STOP "$2"; }
end_pids() { kill -CONT "$2"; }

case $target in compose | helm | pids) ;; *) echo "unknown target $target" >&2; exit 2 ;; esac
default_faults=faults_$target
read -ra faults <<< "${FAULTS:-${!default_faults}}"
for fault in "${faults[@]}"; do
  [[ " ${!default_faults} " == *" $fault "* ]] || { echo "$target has no fault $fault; it has: ${!default_faults}" >&2; exit 2; }
done

broken=""
load=""
heal() {
  if [[ -n $broken ]]; then "end_$target" $broken; broken=""; fi
}
finish() {
  heal
  if [[ -n $load ]]; then kill "$load" 2>/dev/null || true; fi
}
trap finish EXIT

"$goqueue" bench latency --rate "$rate" --seconds "$seconds" --partitions 6 "${bench_args[@]}" &
load=$!

count=0
until_second=$((SECONDS + seconds))
while ((SECONDS + fault_seconds < until_second)) && kill -0 "$load" 2>/dev/null; do
  mapfile -t nodes < <("nodes_$target")
  node=${nodes[RANDOM % ${#nodes[@]}]}
  fault=${faults[RANDOM % ${#faults[@]}]}
  echo "$(date +%T) $fault $node"
  broken="$fault $node"
  "begin_$target" "$fault" "$node"
  sleep "$fault_seconds"
  heal
  count=$((count + 1))
  sleep "$rest_seconds"
done

status=0
wait "$load" || status=$?
load=""
for ((left = heal_seconds; ; left--)); do
  if "$goqueue" cluster health "${bench_args[@]}" > /dev/null 2>&1; then break; fi
  ((left > 0)) || { echo "the cluster is not healthy after $heal_seconds s" >&2; exit 1; }
  sleep 1
done
echo "$count faults; the load ended with $status, the cluster is healthy"
((count > 0)) || { echo "no fault fitted into $seconds s" >&2; exit 1; }
exit "$status"
