#!/bin/sh
# Apache Kafka 4.3.1 as a peer of the benchmarks: KRaft, broker and controller in one process.
#   kafka43.sh prepare|run DIR PORT     DIR takes its configuration, data and log; PORT+1 is the controller's
#
# prepare  fetches the jars where they are not there yet, writes the configuration, formats the storage
# run      becomes the broker, in the foreground
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
libs=$root/build/kafka-4.3.1/libs
command=${1:-} dir=${2:-} port=${3:-}

prepare() {
    [ -f "$libs/.complete" ] || "$root/tests/interop/fetch.sh" jars
    mkdir -p "$dir/logs"
    cat >"$dir/log4j2.properties" <<P
appender.stdout.type=Console
appender.stdout.name=STDOUT
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.stdout.ref=STDOUT
P
    # What server.properties of the distribution says, beyond identity and addresses; and segment.delete.delay, so that
    # a deleted topic's files go at once instead of after a minute, as with the other brokers of a run.
    cat >"$dir/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=$dir/logs
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
log.segment.delete.delay.ms=1000
P
    [ -f "$dir/logs/meta.properties" ] ||
        java "-Dlog4j2.configurationFile=$dir/log4j2.properties" -cp "$libs/*" kafka.tools.StorageTool format \
            --standalone -t MkU3OEVBNTcwNTJENDM2Qg -c "$dir/server.properties"
}

# The flags are those of kafka-run-class.sh and kafka-server-start.sh.
run() {
    exec java -Xms1G -Xmx1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
        -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true \
        "-Dlog4j2.configurationFile=$dir/log4j2.properties" -cp "$libs/*" kafka.Kafka "$dir/server.properties"
}

case $command in
prepare) prepare ;;
run) run ;;
*)
    echo "usage: $0 prepare|run DIR PORT" >&2
    exit 2
    ;;
esac
