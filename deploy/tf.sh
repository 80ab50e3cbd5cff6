#!/usr/bin/env bash
# A cluster on AWS: deploy/tf.sh up|status|url|bench|down. Values are in deploy/terraform/terraform.tfvars;
# TERRAFORM names another program, such as tofu. Run it where the private addresses can be reached.
set -euo pipefail

here=$(cd "$(dirname "$0")/terraform" && pwd)
terraform=${TERRAFORM:-terraform}
goqueue=${GOQUEUE:-goqueue}
wait_seconds=${WAIT_SECONDS:-900} # for the first boot, which installs packages

tf() { "$terraform" -chdir="$here" "$@"; }
use_cluster() {
  GOQUEUE_BOOTSTRAP=$(tf output -raw bootstrap)
  GOQUEUE_HTTP=$(tf output -raw http)
  GOQUEUE_USER=admin
  GOQUEUE_PASSWORD=$(tf output -raw admin_password)
  export GOQUEUE_BOOTSTRAP GOQUEUE_HTTP GOQUEUE_USER GOQUEUE_PASSWORD
}

command=${1:-}
shift || true
case $command in
  up)
    if [[ ! -f $here/terraform.tfvars ]]; then
      echo "copy $here/example.tfvars to $here/terraform.tfvars and edit it" >&2
      exit 2
    fi
    tf init -input=false
    tf apply "$@"
    use_cluster
    echo "Waiting until the cluster is healthy; the first boot takes some minutes."
    for ((waited = 0; waited < wait_seconds; waited += 5)); do
      if "$goqueue" cluster health > /dev/null 2>&1; then
        echo "ready after $waited s: $GOQUEUE_BOOTSTRAP"
        exit 0
      fi
      ((waited % 30)) || echo "  $waited s"
      sleep 5
    done
    echo "not healthy after $wait_seconds s; journalctl -u goqueue and cloud-init-output.log on the machines say why" >&2
    exit 1 ;;
  status)
    use_cluster
    "$goqueue" cluster nodes
    "$goqueue" cluster health ;;
  url)
    use_cluster
    echo "kafka $GOQUEUE_BOOTSTRAP"
    echo "http  http://$GOQUEUE_HTTP"
    echo "user  $GOQUEUE_USER (password: $terraform -chdir=$here output -raw admin_password)" ;;
  bench)
    use_cluster
    for load in produce consume queue latency; do "$goqueue" bench "$load" "$@"; done ;;
  down) tf destroy "$@" ;;
  *)
    echo "usage: tf.sh up|status|url|bench|down" >&2
    exit 2 ;;
esac
