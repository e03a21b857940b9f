#!/usr/bin/env bash
# First process of a container: the command it is given or, asked by Spark, an executor.
#
# What Spark 4.2 hands an executor's container (BasicExecutorFeatureStep in its Kubernetes
# resource manager): the argument `executor`, its JVM options one by one in SPARK_JAVA_OPT_0 ...,
# the rest in the variables below. The broker's password comes from the pod template.
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec "$@"
fi

options=()
while IFS= read -r name; do
  [ -z "$name" ] || options+=("${!name}")
done < <(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n)

# Kafka's client finds it within quotes (infra/kafka/auth.py).
if [ -n "${HEADGATE_KAFKA__PASSWORD:-}" ]; then
  HEADGATE_KAFKA_QUOTED_PASSWORD=$(sed 's/["\\]/\\&/g' <<< "$HEADGATE_KAFKA__PASSWORD")
  export HEADGATE_KAFKA_QUOTED_PASSWORD
  unset HEADGATE_KAFKA__PASSWORD
fi

exec java "${options[@]}" \
  -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
