#!/bin/sh
# Apache Kafka 3.9.1 as a peer of the benchmarks, with a ZooKeeper of its own.
#   kafka39.sh prepare|run DIR PORT     DIR takes configuration, data and logs; PORT+1 is ZooKeeper's
#
# prepare  fetches the jars where they are not there yet and writes the configuration
# run      starts ZooKeeper, which ends with the broker, and becomes the broker, in the foreground
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
libs=$root/build/kafka-3.9.1/libs
command=${1:-} dir=${2:-} port=${3:-}
log4j=-Dlog4j.configuration=file:$dir/log4j.properties

prepare() {
    [ -f "$libs/.complete" ] || "$root/tests/interop/fetch.sh" jars
    mkdir -p "$dir/logs" "$dir/zookeeper"
    cat >"$dir/log4j.properties" <<P
log4j.rootLogger=WARN, stdout
log4j.logger.kafka.log.LogManager=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
P
    cat >"$dir/zookeeper.properties" <<P
dataDir=$dir/zookeeper
clientPort=$((port + 1))
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
P
    # What server.properties of the distribution says; and segment.delete.delay, as with the other brokers of a run.
    cat >"$dir/server.properties" <<P
broker.id=0
listeners=PLAINTEXT://127.0.0.1:$port
zookeeper.connect=127.0.0.1:$((port + 1))
zookeeper.connection.timeout.ms=18000
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
group.initial.rebalance.delay.ms=0
log.retention.hours=168
log.retention.check.interval.ms=300000
log.segment.delete.delay.ms=1000
P
}

# The flags are those of kafka-run-class.sh, kafka-server-start.sh and zookeeper-server-start.sh.
run() {
    setpriv --pdeathsig TERM java -Xms512M -Xmx512M -server -XX:+UseG1GC "$log4j" -cp "$libs/*" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zookeeper.properties" >"$dir/zookeeper.log" 2>&1 &
    exec java -Xms1G -Xmx1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
        -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true \
        "$log4j" -cp "$libs/*" kafka.Kafka "$dir/server.properties"
}

case $command in
prepare) prepare ;;
run) run ;;
*)
    echo "usage: $0 prepare|run DIR PORT" >&2
    exit 2
    ;;
esac
