#!/usr/bin/env bash
# Before an executor's container is ended (Spark sets it as the pod's preStop hook when
# spark.decommission.enabled is true): tell the executor to take no further task, and wait while
# it finishes those it has. SIGPWR is how Spark is told. Kubernetes ends us at the pod's grace period.
set -u
executor=$(pgrep -f org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend | head -n 1)
[ -n "$executor" ] || exit 0
kill -s PWR "$executor"
while kill -0 "$executor" 2>/dev/null; do
  sleep 1
done
